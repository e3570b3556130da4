"""Backfill of StrictFIFO ClusterQueues: short workloads pass the first one, whose start does not move."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.model.errors import InvalidObject
from tests.engine.scenes import World, cluster_queue, local_queue, workload

HOUR = 3600


def new_world(*, backfill: bool = True, cpu: int = 10, **fields) -> World:
    given = {"backfill": "WithinTimeLimits"} if backfill else {}
    queue = cluster_queue("a", cpu, queueingStrategy="StrictFIFO", **given, **fields)
    return World(queue, local_queue("a"))


def job(name: str, cpu: int, hours: float | None, created: float = 0.0, **fields):
    return workload(
        name, "a", cpu, created=created, max_seconds=None if hours is None else round(hours * HOUR), **fields
    )


def test_short_workloads_pass_the_first_one_and_others_do_not():
    world = new_world()
    world.submit(job("runs", 6, 4))
    assert world.admitted() == ["runs"]
    world.submit(
        job("first", 9, 1, 1),
        job("short", 2, 4, 2),
        job("long", 1, 5, 3),  # it would end after the first one could start, but fits beside it
        job("longer", 1, 5, 4),
        job("longest", 1, 5, 5),
        job("endless", 1, None, 6),
    )
    assert sorted(world.admitted()) == ["long", "short"]
    assert world.engine.is_admitted("long")
    world.now += 4 * HOUR
    for name in ("runs", "short"):
        world.gone(name)
    assert world.admitted()[0] == "first"


def test_nothing_passes_without_time_limits_or_without_backfill():
    for limit, backfill in ((None, True), (4, False)):
        world = new_world(backfill=backfill)
        world.submit(job("runs", 6, limit))
        assert world.admitted() == ["runs"]
        world.submit(job("first", 8, 1, 1), job("short", 1, 1, 2))
        assert world.admitted() == []


def test_others_start_when_the_first_one_leaves_the_queue():
    world = new_world()
    world.submit(job("runs", 6, 4))
    assert world.admitted() == ["runs"]
    world.submit(job("first", 8, 1, 1), job("endless", 3, None, 2))
    assert world.admitted() == []
    world.gone("first")
    assert world.admitted() == ["endless"]


def test_workload_of_higher_priority_becomes_the_first_one():
    world = new_world()
    world.submit(job("runs", 6, 4))
    assert world.admitted() == ["runs"]
    world.submit(job("first", 8, 1, 1))
    assert world.admitted() == []
    world.submit(job("urgent", 4, None, 2, priority=9))
    assert world.admitted() == ["urgent"]


def test_time_that_workloads_outlive_gives_no_estimate():
    world = new_world()
    world.submit(job("runs", 6, 4))
    assert world.admitted() == ["runs"]
    world.now += 5 * HOUR
    world.submit(job("first", 8, 1, 1), job("short", 1, 1, 2))
    assert world.admitted() == []


def test_backfill_needs_strict_fifo():
    with pytest.raises(InvalidObject) as error:
        cluster_queue("a", 1, backfill="WithinTimeLimits")
    assert error.value.causes[0][0] == "spec.backfill"


def starts(jobs, *, backfill: bool) -> tuple[dict[str, int], str]:
    """Return when each workload starts, if each runs as long as it may; and the first one that does not fit at once."""
    world = new_world(backfill=backfill)
    started: dict[str, int] = {}
    first = ""
    for hour in range(200):
        world.now = 1000.0 + HOUR * hour
        for name, at in list(started.items()):
            if at + jobs[int(name)][1] == hour:
                world.gone(name)
        for number, (cpu, hours, at) in enumerate(jobs):
            if at == hour:
                world.submit(job(f"{number}", cpu, hours, hour + number / 100))
        started.update((name, hour) for name in world.admitted())
        waiting = [f"{n}" for n, (_, _, at) in enumerate(jobs) if at <= hour and f"{n}" not in started]
        first = first or min(waiting, key=lambda name: (jobs[int(name)][2], int(name)), default="")
    return started, first


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 10), st.integers(1, 6), st.integers(0, 6)), max_size=14))
def test_first_workload_that_waits_starts_no_later_than_without_backfill(jobs):
    strict, first = starts(jobs, backfill=False)
    passed, _ = starts(jobs, backfill=True)
    assert passed.keys() == strict.keys()
    if first:
        assert passed[first] <= strict[first]
