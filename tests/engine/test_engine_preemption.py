"""Who is chosen as a victim, where there is a choice, and what is told of it beforehand."""

from __future__ import annotations

import pytest

from admission.engine import AdmissionFairSharing, Engine, LocalQueueUsed, Policy
from tests.engine.scenes import World, cluster_queue, cohort, local_queue, workload


def victims(world: World) -> set[str]:
    return {evict.workload.uid for evict in world.engine.settle(world.now).evicted}


@pytest.mark.parametrize(("borrow", "expected"), [("Never", {"of-b4", "own2"}), ("LowerPriority", {"own1", "own2"})])
def test_borrowers_go_before_more_of_the_own_where_borrowing_would_need_preemption(borrow, expected):
    """With 3 it would use 5 of its 4: not to borrow takes one of its own, and one that borrows."""
    policies = {
        "withinClusterQueue": "LowerPriority",
        "reclaimWithinCohort": "Any",
        "borrowWithinCohort": {"policy": borrow},
    }
    world = World(
        cluster_queue("a", 4, cohort="all", preemption=policies),
        cluster_queue("b", 4, cohort="all"),
        *map(local_queue, "ab"),
    )
    for number in range(5):
        world.now += 1
        world.submit(workload(f"of-b{number}", "b", priority=9))
        world.admitted()
    for number in (1, 2):
        world.now += 1
        world.submit(workload(f"own{number}", "a"))
        world.admitted()
    world.submit(workload("w", "a", 3, priority=5))
    assert victims(world) == expected


@pytest.mark.parametrize("fair_sharing", [False, True])
def test_local_queues_that_used_more_lose_first(fair_sharing):
    config = AdmissionFairSharing(half_life=60.0)
    world = World(
        cluster_queue(
            "cq",
            2,
            cohort="all",
            preemption={"withinClusterQueue": "LowerPriority"},
            admissionScope={"admissionMode": "UsageBasedAdmissionFairSharing"},
        ),
        *(local_queue(name, to="cq") for name in "ab"),
        engine=Engine(Policy(fair_sharing=fair_sharing, admission_fair_sharing=config)),
    )
    world.engine.observe(LocalQueueUsed("ns", "a", {"cpu": 9.0}, world.now), now=world.now)
    for name in "ab":
        world.now += 1
        world.submit(workload(f"of-{name}", name))
        assert world.admitted() == [f"of-{name}"]
    world.submit(workload("w", "b", priority=5))
    assert victims(world) == {"of-a"}, "although the other one came last"


@pytest.mark.parametrize("fair_sharing", [False, True])
def test_a_cohort_that_is_within_its_quota_loses_nothing(fair_sharing):
    """One of its queues borrows from the other, which is nobody else's business."""
    world = World(
        cohort("all"),
        cohort("left", parent="all"),
        cluster_queue("a", 4, cohort="all", preemption={"reclaimWithinCohort": "Any"}),
        cluster_queue("b", 1, cohort="left"),
        cluster_queue("c", 3, cohort="left"),
        cluster_queue("d", 0, cohort="all"),
        *map(local_queue, "abcd"),
        engine=Engine(Policy(fair_sharing=fair_sharing)),
    )
    world.submit(*(workload(f"b{number}", "b") for number in range(4)))
    assert len(world.admitted()) == 4
    world.submit(*(workload(f"d{number}", "d") for number in range(4)))
    assert len(world.admitted()) == 4
    world.submit(workload("w", "a", 4))
    assert victims(world) == {"d0", "d1", "d2", "d3"}


@pytest.fixture
def borrowed():
    """8 of `a` are lent to `b` and `c`, and it runs 3 of its own; of equal priority are none but the own ones."""
    policies = {"withinClusterQueue": "LowerOrNewerEqualPriority", "reclaimWithinCohort": "Any"}
    world = World(
        cluster_queue("a", 11, cohort="all", preemption=policies),
        cluster_queue("b", 2, cohort="all"),
        cluster_queue("c", 0, cohort="all"),
        *map(local_queue, "abc"),
    )
    world.submit(*(workload(f"a{number}", "a", priority=3, created=100.0 + number) for number in range(3)))
    world.submit(*(workload(f"b{number}", "b", 2, priority=9, created=200.0) for number in range(4)))
    world.submit(*(workload(f"c{number}", "c", 1, priority=9, created=200.0) for number in range(2)))
    assert len(world.admitted()) == 9
    return world


def test_all_that_might_be_taken_is_added_up(borrowed):
    """Of equals only those that have waited for less long: two of its own. `b` borrows 6 by four of 2, `c` all 2."""
    borrowed.submit(workload("w", "a", 12, priority=3, created=100.5))
    borrowed.engine.arrange(borrowed.now)
    (prospect,) = borrowed.engine.explain("w").prospects
    assert (prospect.own, prospect.own_workloads) == (2000, 2)
    assert (prospect.others, prospect.others_workloads) == (8000, 6)
    assert prospect.missing == 12_000


def test_who_does_not_borrow_is_not_counted(borrowed):
    for uid in ("b0", "b1", "b2"):
        borrowed.gone(uid)
    borrowed.submit(workload("w", "a", 13, priority=0, created=1.0))
    borrowed.engine.arrange(borrowed.now)
    (prospect,) = borrowed.engine.explain("w").prospects
    assert (prospect.own, prospect.others, prospect.others_workloads) == (0, 2000, 2)
