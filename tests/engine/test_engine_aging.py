"""Aging: priorities that grow with waiting, and workloads that are not overtaken any more."""

from __future__ import annotations

from heapq import heappop, heappush

import pytest

from admission.engine import Engine, Policy
from admission.model import sentences
from tests.engine.scenes import World, cluster_queue, local_queue, workload


def scene(cpu: int = 4, policy: Policy | None = None, **aging: str) -> World:
    fields = {"aging": aging} if aging else {}
    return World(cluster_queue("q", cpu, **fields), local_queue("q"), engine=Engine(policy))


def order(world: World) -> list[str]:
    waiting = world.engine.pending("q")
    return [one.name for one in (*waiting.active, *waiting.inadmissible)]


def fill(world: World, cpu: int = 4) -> None:
    world.submit(workload("running", "q", cpu, created=0.0))
    assert world.admitted() == ["running"]


def test_ten_minutes_of_waiting_count_as_one_more_of_priority():
    world = scene(priorityInterval="10m")
    fill(world)
    world.submit(
        workload("old", "q", created=0.0),
        workload("soon", "q", created=1799.0, priority=3),
        workload("late", "q", created=1801.0, priority=3),
    )
    world.admitted()
    assert order(world) == ["soon", "old", "late"]
    assert [one.workload.name for one in world.engine.listing("q", limit=9)] == ["soon", "old", "late"]


def test_order_follows_a_change_of_the_queue():
    world = scene()
    fill(world)
    jobs = [workload("old", "q", created=0.0), workload("late", "q", created=1801.0, priority=3)]
    world.submit(*jobs)
    world.admitted()
    assert order(world) == ["late", "old"]
    world.tell(cluster_queue("q", 4, aging={"priorityInterval": "10m"}))
    world.admitted()
    assert order(world) == ["old", "late"]
    world.tell(cluster_queue("q", 4))
    world.admitted()
    assert order(world) == ["late", "old"]
    world.gone("running")
    assert world.admitted() == ["late", "old"]


def test_waiting_stops_nobody():
    world = World(
        cluster_queue("q", 1, preemption={"withinClusterQueue": "LowerPriority"}, aging={"priorityInterval": "1s"}),
        local_queue("q"),
    )
    world.submit(workload("running", "q", priority=1, created=999.0))
    world.admitted()
    world.submit(workload("old", "q", created=0.0))
    assert world.engine.settle(world.now).evicted == ()


def test_workload_that_waited_long_is_not_overtaken():
    world = scene(strictAfter="1h")
    world.submit(workload("small", "q", 2, created=0.0))
    world.admitted()
    world.submit(workload("large", "q", 4, created=1000.0))
    assert world.admitted() == []
    world.submit(workload("next", "q", 1, created=1001.0))
    assert world.admitted() == ["next"], "it has not waited for an hour"
    assert world.engine.wake_at() == 4600
    world.now = 4600
    world.submit(workload("last", "q", 1, created=1002.0))
    assert world.admitted() == []
    found = world.engine.explain("last")
    assert found is not None
    assert (found.reason, found.message) == ("WaitingForQuota", sentences.BEHIND_OVERDUE)
    world.gone("small")
    assert world.admitted() == [], "what is free is kept"
    world.gone("next")
    assert world.admitted() == ["large"]
    world.gone("large")
    assert world.admitted() == ["last"]


def test_workload_that_can_never_start_keeps_nobody_waiting():
    world = scene(strictAfter="1h")
    world.submit(workload("huge", "q", 5, created=0.0))
    world.now = 9000
    world.admitted()
    world.submit(workload("small", "q", created=1.0))
    assert world.admitted() == ["small"]


def test_queue_without_aging_again_lets_others_pass():
    world = scene(strictAfter="1h")
    fill(world, 2)
    world.submit(workload("large", "q", 4, created=0.0))
    world.now = 4600
    world.submit(workload("small", "q", created=1.0))
    assert world.admitted() == []
    world.tell(cluster_queue("q", 4))
    assert world.admitted() == ["small"]


def starts(world: World, *, until: float) -> float | None:
    """Return when a large workload starts in an endless stream of small ones."""
    ends: list[tuple[float, str]] = []
    world.now = 0.0
    world.submit(workload("first", "q", created=0.0))
    world.admitted()
    ends.append((100.0, "first"))
    world.submit(workload("large", "q", 4, created=50.0))
    number = 0
    while world.now < until:
        for admit in world.engine.settle(world.now).admitted:
            if admit.workload.name == "large":
                return world.now
            heappush(ends, (world.now + 100 + 7 * (number % 5), admit.workload.uid))
        world.now += 10
        number += 1
        world.submit(workload(f"small{number}", "q", created=world.now))
        while ends and ends[0][0] <= world.now:
            world.gone(heappop(ends)[1])
    return None


@pytest.mark.parametrize("policy", [None, Policy(fair_sharing=True)])
def test_large_workload_starves_only_without_aging(policy):
    stream = scene(4, policy)
    assert starts(stream, until=6000) is None
    stream = scene(4, policy, strictAfter="20m")
    began = starts(stream, until=6000)
    assert began is not None
    assert 1250 <= began <= 1250 + 150


def test_large_and_unimportant_workload_starts_although_more_important_ones_keep_coming():
    world = scene(1, priorityInterval="1m")
    world.now = 0.0
    world.submit(workload("old", "q", created=0.0))
    fillers = 0
    world.submit(workload("first", "q", created=0.0, priority=10))
    while "old" not in (names := world.admitted()):
        world.now += 60
        fillers += 1
        world.gone(names[0])
        world.submit(workload(f"new{fillers}", "q", created=world.now + 1, priority=10))
        assert fillers < 100
    assert fillers == 10
