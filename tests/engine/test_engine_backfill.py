"""Backfill of StrictFIFO ClusterQueues: short workloads pass the first one, whose start does not move."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.engine import WorkloadEvicted
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


def test_all_that_end_together_leave_room_for_others_beside_the_first_one():
    world = new_world()
    world.submit(job("one", 5, 4), job("two", 4, 4))
    assert world.admitted() == ["one", "two"]
    world.submit(job("first", 6, 1, 1), job("beside", 1, 9, 2))
    assert world.admitted() == ["beside"]


def test_what_is_evicted_ends_now():
    world = new_world()
    world.submit(job("held", 6, None), job("runs", 2, 4))
    assert len(world.admitted()) == 2
    world.engine.observe(WorkloadEvicted("held"), now=world.now)  # by its user; its pods terminate
    world.submit(job("first", 7, 1, 1), job("beside", 1, None, 2), job("larger", 2, None, 3))
    assert world.admitted() == ["beside"]


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


def latest_start(first: tuple[int, int], runs: list[tuple[int, int]], hour: int) -> int:
    """Return when enough of what runs (cpu, end of its time limit) has ended at the latest for the first that waits."""
    free = 10 - sum(cpu for cpu, _ in runs)
    for cpu, ends in sorted(runs, key=lambda one: one[1]):
        if free >= first[0]:
            break
        free, hour = free + cpu, max(hour, ends)
    return hour


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 10), st.integers(1, 6), st.integers(0, 6), st.integers(0, 5)), max_size=14))
def test_no_workload_that_became_the_first_starts_later_than_was_estimated_then(jobs):
    """Also if others end before their time limits, and whatever starts before it meanwhile."""
    world = new_world()
    ends: dict[int, int] = {}
    limits: dict[int, int] = {}
    latest: dict[int, int] = {}
    started: set[int] = set()
    for hour in range(100):
        world.now = 1000.0 + HOUR * hour
        for number in [number for number, end in ends.items() if end <= hour]:
            world.gone(f"{number}")
            del ends[number]
        for number, (cpu, hours, at, _) in enumerate(jobs):
            if at == hour:
                world.submit(job(f"{number}", cpu, hours, hour + number / 100))
        for name in world.admitted():
            number = int(name)
            cpu, hours, _, early = jobs[number]
            ends[number], limits[number] = hour + max(hours - early, 1), hour + hours
            started.add(number)
            assert hour <= latest.get(number, hour)
        waits = [n for n, (_, _, at, _) in enumerate(jobs) if at <= hour and n not in started]
        if waits:
            first = min(waits, key=lambda n: (jobs[n][2], n))
            runs = [(jobs[n][0], limits[n]) for n in ends]
            latest.setdefault(first, latest_start(jobs[first][:2], runs, hour))
    assert started == set(range(len(jobs)))
