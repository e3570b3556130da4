"""Choice of preemption targets, and preemption hints of explanations."""

from __future__ import annotations

import pytest

from admission.engine import AdmissionFairSharing, Engine, Policy, SharerUsed, WorkloadEvicted
from tests.engine.scenes import World, cluster_queue, cohort, local_queue, workload


def victims(world: World) -> set[str]:
    return {evict.workload.uid for evict in world.engine.settle(world.now).evicted}


@pytest.mark.parametrize(("borrow", "expected"), [("Never", {"of-b4", "own2"}), ("LowerPriority", {"own1", "own2"})])
def test_borrow_within_cohort_decides_between_own_and_borrowing_targets(borrow, expected):
    """With 3 more `a` would use 5 of its 4: without borrowing it needs one target of its own and one of `b`."""
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
def test_workloads_of_the_local_queue_with_more_usage_are_preempted_first(fair_sharing):
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
        engine=Engine(Policy(fair_sharing=fair_sharing, policies=(config,))),
    )
    world.engine.observe(SharerUsed(("ns", "a"), {"cpu": 9.0}, world.now), now=world.now)
    for name in "ab":
        world.now += 1
        world.submit(workload(f"of-{name}", name))
        assert world.admitted() == [f"of-{name}"]
    world.submit(workload("w", "b", priority=5))
    assert victims(world) == {"of-a"}, "although the other one came last"


@pytest.mark.parametrize("fair_sharing", [False, True])
def test_cohort_within_its_quota_has_no_targets(fair_sharing):
    """One of its ClusterQueues borrows from the other, which does not concern the rest of the tree."""
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
    """`a` has lent 8 to `b` and `c`, and uses 3 itself; only its own workloads have the same priority."""
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


def test_preemption_hint_sums_own_and_borrowing_candidates(borrowed):
    """Two later workloads of `a` have equal priority. `b` borrows 6, with four workloads of 2, and `c` borrows 2."""
    borrowed.submit(workload("w", "a", 12, priority=3, created=100.5))
    borrowed.engine.refresh(borrowed.now)
    (hint,) = borrowed.engine.explain("w").preemption_hints
    assert (hint.own, hint.own_workloads) == (2000, 2)
    assert (hint.others, hint.others_workloads) == (8000, 6)
    assert hint.missing == 12_000


def test_preemption_hint_excludes_cluster_queues_that_do_not_borrow(borrowed):
    for uid in ("b0", "b1", "b2"):
        borrowed.gone(uid)
    borrowed.submit(workload("w", "a", 13, priority=0, created=1.0))
    borrowed.engine.refresh(borrowed.now)
    (hint,) = borrowed.engine.explain("w").preemption_hints
    assert (hint.own, hint.others, hint.others_workloads) == (0, 2000, 2)


@pytest.mark.parametrize("fair_sharing", [False, True])
def test_no_workload_is_evicted_if_all_targets_are_not_enough(fair_sharing):
    """Half of the nominal quota of `a` is lent to a workload that it may not preempt."""
    world = World(
        cluster_queue("a", 4, cohort="all", preemption={"reclaimWithinCohort": "LowerPriority"}),
        cluster_queue("b", 0, cohort="all"),
        *map(local_queue, "ab"),
        engine=Engine(Policy(fair_sharing=fair_sharing)),
    )
    world.submit(workload("low", "b", 2), workload("high", "b", 2, priority=9))
    assert len(world.admitted()) == 2
    world.submit(workload("w", "a", 3, priority=5))
    decisions = world.engine.settle(world.now)
    assert not decisions.evicted
    assert [park.message.partition(" to ")[0] for park in decisions.parked] == ["couldn't assign flavors"]
    world.submit(workload("small", "a", 2, priority=5))
    assert victims(world) == {"low"}


@pytest.mark.parametrize("fair_sharing", [False, True])
def test_nominal_quota_is_reclaimed_from_queues_that_borrow_less_than_the_cohort(fair_sharing):
    world = World(
        cohort("all", 10),
        cohort("side", parent="all"),
        cluster_queue("a", 2, cohort="side", preemption={"reclaimWithinCohort": "LowerPriority"}),
        cluster_queue("b", 0, cohort="side"),
        cluster_queue("c", 0, cohort="all"),
        *map(local_queue, "abc"),
        engine=Engine(Policy(fair_sharing=fair_sharing)),
    )
    world.submit(workload("much", "b", 8, priority=9), workload("little", "c", 4))
    assert len(world.admitted()) == 2
    world.submit(workload("w", "a", 2, priority=5))
    assert victims(world) == {"little"}


def test_targets_outside_the_cohort_come_before_own_within_its_quota():
    """`a` would use 3 of its 2, but nothing else in its Cohort is in use."""
    policies = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
    world = World(
        cohort("all"),
        cohort("side", 4, parent="all"),
        cluster_queue("a", 2, cohort="side", preemption=policies),
        cluster_queue("far", 0, cohort="all"),
        *map(local_queue, ("a", "far")),
    )
    world.submit(workload("own", "a", 1), workload("borrows", "far", 5))
    assert len(world.admitted()) == 2
    world.submit(workload("w", "a", 2, priority=5))
    assert victims(world) == {"borrows"}


def crowded(*, own: list[tuple[float, int]], lent: int, borrowed: int, borrow: str = "Never") -> World:
    """Return ClusterQueues of 4 cores: `a` with `own` workloads (cores, priority); `b`, of 1 core each, borrows."""
    policies = {
        "withinClusterQueue": "LowerPriority",
        "reclaimWithinCohort": "Any",
        "borrowWithinCohort": {"policy": borrow},
    }
    world = World(
        cluster_queue("a", 4, cohort="all", preemption=policies),
        cluster_queue("b", 4, cohort="all"),
        cluster_queue("idle", lent, cohort="all"),
        *map(local_queue, "ab"),
    )
    world.submit(*(workload(f"own{number}", "a", cpu, priority=at) for number, (cpu, at) in enumerate(own)))
    world.submit(*(workload(f"b{number}", "b", priority=9) for number in range(4 + borrowed)))
    assert len(world.admitted()) == len(own) + 4 + borrowed
    return world


def test_free_quota_is_borrowed_rather_than_preempting_more_own_workloads():
    """One core is free, so that a single target in `a` is enough for 2 cores, if `a` borrows."""
    world = crowded(own=[(1, 0)] * 4, lent=2, borrowed=1)
    world.submit(workload("w", "a", 2, priority=5))
    assert len(victims(world)) == 1


def test_free_quota_is_borrowed_if_own_targets_are_not_enough():
    """Two cores are free and one may be preempted; the other workload of `a` has the same priority."""
    world = crowded(own=[(1, 0), (2, 5)], lent=2, borrowed=1)
    world.submit(workload("w", "a", 3, priority=5))
    assert victims(world) == {"own0"}


def test_nominal_quota_is_reclaimed_from_borrowers_of_higher_priority():
    world = crowded(own=[(2, 0)], lent=0, borrowed=2, borrow="LowerPriority")
    world.submit(workload("w", "a", 4, priority=5))
    found = victims(world)
    assert len(found) == 3
    assert "own0" in found


def test_targets_in_a_cohort_release_no_more_than_the_cohort_borrows():
    """`left` borrows 2, although its queue `b` borrows 5 from `c` and from outside."""
    world = World(
        cohort("all"),
        cohort("left", parent="all"),
        cluster_queue("a", 3, cohort="all", preemption={"reclaimWithinCohort": "Any"}),
        cluster_queue("b", 0, cohort="left"),
        cluster_queue("c", 3, cohort="left"),
        cluster_queue("d", 0, cohort="all"),
        *map(local_queue, "abcd"),
    )
    world.submit(*(workload(f"b{number}", "b") for number in range(5)), workload("of-d", "d", priority=9))
    assert len(world.admitted()) == 6
    world.submit(workload("w", "a", 3, priority=1))
    found = victims(world)
    assert len(found) == 3
    assert "of-d" in found


@pytest.mark.parametrize(("of_queue", "of_cohort", "expected"), [(5, 3, "queue"), (4, 4, "cohort"), (3, 5, "cohort")])
def test_target_has_the_highest_share_and_is_in_a_cohort_if_shares_are_equal(of_queue, of_cohort, expected):
    world = World(
        cohort("all", 6),
        cohort("side", parent="all"),
        cluster_queue("a", 2, cohort="all", preemption={"reclaimWithinCohort": "Any"}),
        cluster_queue("queue", 0, cohort="all"),
        cluster_queue("cohort", 0, cohort="side"),
        *map(local_queue, ("a", "queue", "cohort")),
        engine=Engine(Policy(fair_sharing=True)),
    )
    world.submit(*(workload(f"queue{number}", "queue") for number in range(of_queue)))
    world.submit(*(workload(f"cohort{number}", "cohort") for number in range(of_cohort)))
    assert len(world.admitted()) == 8
    world.submit(workload("w", "a"))
    (victim,) = victims(world)
    assert victim.startswith(expected)


@pytest.mark.parametrize("fair_sharing", [False, True])
def test_workloads_of_a_stopped_queue_are_not_targets(fair_sharing):
    world = World(
        cluster_queue("a", 2, cohort="all", preemption={"reclaimWithinCohort": "Any"}),
        *(cluster_queue(name, 0, cohort="all") for name in "bc"),
        *map(local_queue, "abc"),
        engine=Engine(Policy(fair_sharing=fair_sharing)),
    )
    world.submit(*(workload(f"of-{name}", name) for name in "bc"))
    assert len(world.admitted()) == 2
    world.tell(cluster_queue("b", 0, cohort="all", stopPolicy="Hold"))
    world.submit(workload("w", "a"))
    assert victims(world) == {"of-c"}


def test_quota_that_a_queue_never_lends_is_not_requested_from_its_cohort():
    """The queue requests 4: 2 from its quota that is never lent, the other 2 from its Cohort, which has lent them."""
    world = World(
        cohort("all"),
        cohort("side", 2, parent="all"),
        cluster_queue("a", 2, cohort="side", limits={"lendingLimit": 0}, preemption={"reclaimWithinCohort": "Any"}),
        cluster_queue("far", 0, cohort="all"),
        *map(local_queue, ("a", "far")),
    )
    world.submit(workload("borrows", "far", 2, priority=9))
    assert world.admitted() == ["borrows"]
    world.submit(workload("w", "a", 4))
    assert victims(world) == {"borrows"}


@pytest.mark.parametrize(("threshold", "expected"), [(2, set()), (3, {"borrows"})])
def test_borrowing_preemptor_has_no_targets_above_the_priority_threshold(threshold, expected):
    policies = {
        "reclaimWithinCohort": "Any",
        "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": threshold},
    }
    world = World(
        cohort("all", 2),
        cluster_queue("a", 0, cohort="all", preemption=policies),
        cluster_queue("b", 0, cohort="all"),
        *map(local_queue, "ab"),
    )
    world.submit(workload("borrows", "b", 2, priority=3))
    assert world.admitted() == ["borrows"]
    world.submit(workload("w", "a", 2, priority=5))
    assert victims(world) == expected


@pytest.mark.parametrize(("created", "expected"), [(9, {"runs"}), (10, set()), (11, set())])
def test_only_newer_workloads_of_equal_priority_are_targets(created, expected):
    world = World(
        cluster_queue("cq", 1, preemption={"withinClusterQueue": "LowerOrNewerEqualPriority"}), local_queue("cq")
    )
    world.submit(workload("runs", "cq", created=10))
    assert world.admitted() == ["runs"]
    world.submit(workload("w", "cq", created=created))
    assert victims(world) == expected


@pytest.mark.parametrize("fair_sharing", [False, True])
@pytest.mark.parametrize("usage", [None, AdmissionFairSharing(half_life=60.0)], ids=["", "by usage"])
@pytest.mark.parametrize("leaving", ["first", "last"])
def test_no_further_target_is_evicted_while_an_evicted_workload_stops(fair_sharing, usage, leaving):
    policy = Policy(fair_sharing=fair_sharing, policies=(usage,) if usage else ())
    world = World(
        cluster_queue(
            "cq",
            2,
            cohort="all",
            preemption={"withinClusterQueue": "LowerPriority"},
            admissionScope={"admissionMode": "UsageBasedAdmissionFairSharing"} if usage else None,
        ),
        local_queue("cq"),
        engine=Engine(policy),
    )
    for uid in ("first", "last"):
        world.now += 1
        world.submit(workload(uid, "cq"))
        assert world.admitted() == [uid]
    world.engine.observe(WorkloadEvicted(leaving), now=world.now)
    world.submit(workload("w", "cq", priority=5))
    assert victims(world) == set()
    world.gone(leaving)
    assert world.admitted() == ["w"]


@pytest.mark.parametrize("order", ["bc", "cb"])
def test_usage_of_local_queues_is_not_compared_between_cluster_queues(order):
    """The workload admitted last is preempted, although the LocalQueue of the other one used more."""
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    world = World(
        cluster_queue("a", 2, cohort="all", preemption={"reclaimWithinCohort": "Any"}, admissionScope=scope),
        *(cluster_queue(name, 0, cohort="all", admissionScope=scope) for name in "bc"),
        *map(local_queue, "abc"),
        engine=Engine(Policy(policies=(AdmissionFairSharing(half_life=60.0),))),
    )
    world.engine.observe(SharerUsed(("ns", order[0]), {"cpu": 9.0}, world.now), now=world.now)
    for name in order:
        world.now += 1
        world.submit(workload(f"of-{name}", name))
        assert world.admitted() == [f"of-{name}"]
    world.submit(workload("w", "a"))
    assert victims(world) == {f"of-{order[1]}"}


def test_target_is_in_the_last_cohort_by_name_if_shares_are_equal():
    world = World(
        cohort("all"),
        cohort("x", parent="all"),
        cohort("y", parent="all"),
        cluster_queue("a", 4, cohort="all", preemption={"reclaimWithinCohort": "Any"}),
        *(cluster_queue(f"of-{name}", 0, cohort=name) for name in "xy"),
        *map(local_queue, ("a", "of-x", "of-y")),
        engine=Engine(Policy(fair_sharing=True)),
    )
    world.submit(*(workload(f"{name}{number}", f"of-{name}") for number in range(2) for name in "xy"))
    assert len(world.admitted()) == 4
    world.submit(workload("w", "a"))
    (victim,) = victims(world)
    assert victim.startswith("y")
