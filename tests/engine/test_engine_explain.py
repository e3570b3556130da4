"""`Engine.explain`: missing quota, the limiting node of the tree, and the workloads ahead."""

from __future__ import annotations

from dataclasses import replace

import pytest

from admission.engine import WorkloadAdmitted, WorkloadPending
from admission.model.workload import Admission, PodSetAssignment
from tests.engine.scenes import World, cluster_queue, cohort, local_queue, manifest, workload


@pytest.fixture
def world():
    return World(
        cluster_queue("a", 4, cohort="all", limits={"borrowingLimit": 2}),
        cluster_queue("b", 6, cohort="all"),
        local_queue("a"),
        local_queue("b"),
    )


def test_unknown_workloads_have_no_explanation(world):
    assert world.engine.explain("nobody") is None


def test_explanation_of_a_running_workload_has_state_admitted(world):
    world.submit(workload("w", "a"))
    world.admitted()
    explanation = world.engine.explain("w")
    assert (explanation.state, explanation.cluster_queue) == ("Admitted", "a")


def test_lack_names_the_borrowing_limit_of_the_cluster_queue(world):
    world.submit(workload("first", "a", 5), workload("w", "a", 3, created=1))
    world.admitted()
    explanation = world.engine.explain("w")
    (lack,) = explanation.lacks
    assert explanation.reason == "WaitingForQuota"
    assert (lack.requested, lack.free, lack.borrowable, lack.maximum) == (3000, 1000, 1000, 6000)
    assert lack.refused_by == "ClusterQueue a: borrowingLimit"
    limit = "the borrowingLimit of ClusterQueue a"
    assert lack.hint == f"2 of cpu in flavor default must become free, or {limit} be raised by as much"


def test_lack_names_the_cohort_whose_quota_is_in_use(world):
    world.submit(workload("big", "b", 9))
    world.admitted()
    world.submit(workload("w", "a", 3))
    world.admitted()
    (lack,) = world.engine.explain("w").lacks
    assert (lack.free, lack.refused_by) == (1000, "the ClusterQueues in Cohort all: nominalQuota")
    assert lack.hint.endswith("or the nominalQuota of the ClusterQueues in Cohort all be raised by as much")
    world.tell(cohort("all", 0))
    world.admitted()
    (lack,) = world.engine.explain("w").lacks
    assert lack.refused_by == "Cohort all: nominalQuota"


def test_hint_for_a_cohort_without_quota_names_the_cluster_queues_in_the_cohort(world):
    """A Cohort without object, which ClusterQueues only name, cannot get quota of its own."""
    world.tell(cluster_queue("a", 4, cohort="all"))
    world.submit(workload("w", "a", 12))
    world.admitted()
    said = "have an admin raise the nominalQuota of the ClusterQueues in Cohort all by 2 cpu"
    assert said in world.engine.explain("w").message
    world.tell(manifest("Cohort", "all", {}))  # an object without quota, created for its weight for example
    world.admitted()
    assert said in world.engine.explain("w").message
    world.tell(cluster_queue("a", 6, cohort="all"))
    assert world.admitted() == ["w"]


def test_exceeds_max_quota_is_judged_by_the_minimum_pod_count():
    world = World(cluster_queue("cq", 4), local_queue("cq"))
    world.submit(workload("full", "cq", 4))
    assert world.admitted() == ["full"]
    world.submit(workload("elastic", "cq", 1, count=10, created=1, pods={"min_count": 2}))
    assert world.admitted() == []
    explanation = world.engine.explain("elastic")
    assert (explanation.reason, explanation.position_in_cluster_queue) == ("WaitingForQuota", 1)
    assert explanation.message.endswith("It starts as soon as enough becomes free, with at least 2 of its 10 pods.")
    world.gone("full")
    assert world.admitted() == ["elastic"]
    world.submit(workload("greedy", "cq", 1, count=10, created=2, pods={"min_count": 5}))
    assert world.admitted() == []
    explanation = world.engine.explain("greedy")
    assert (explanation.reason, explanation.position_in_cluster_queue) == ("ExceedsMaxQuota", 0)


def test_request_beyond_the_largest_quantity_is_reported_without_a_number(world):
    world.submit(workload("w", "a", 2**62, count=4))
    world.admitted()
    message = world.engine.explain("w").message
    assert "more than can be counted of cpu in flavor " in message
    assert message.endswith("It can never start like this: ask for less.")
    assert "9223372" not in message


@pytest.mark.parametrize("in_use", [0, 9])
def test_request_beyond_the_maximum_has_reason_exceeds_max_quota(world, in_use):
    """The reason does not depend on current usage."""
    world.submit(*(workload(f"b{number}", "b") for number in range(in_use)))
    world.submit(workload("w", "a", 7))
    world.admitted()
    explanation = world.engine.explain("w")
    (lack,) = explanation.lacks
    assert explanation.reason == "ExceedsMaxQuota"
    assert lack.hint.startswith("raise the borrowingLimit of ClusterQueue a by 1 of cpu")


def test_explanation_lists_the_workloads_ahead_in_queue_order(world):
    world.tell(cluster_queue("a", 4, queueingStrategy="StrictFIFO"))
    world.submit(
        workload("blocked", "a", 9, created=3),
        workload("urgent", "a", 9, priority=1, created=9),
        workload("earlier", "a", created=1),
        workload("w", "a", created=4),
        workload("later", "a", created=5),
    )
    world.engine.settle(world.now)
    explanation = world.engine.explain("w")
    assert explanation.ahead == 3
    assert explanation.ahead_first == ("ns/urgent", "ns/earlier", "ns/blocked")


def test_workload_whose_local_queue_does_not_exist_is_misconfigured(world):
    world.submit(workload("w", "nowhere"))
    explanation = world.engine.explain("w")
    assert explanation.reason == "Misconfigured"
    assert explanation.message.startswith("LocalQueue ns/nowhere does not exist. Correct the queue label")


def test_workload_whose_pods_match_no_flavor_is_explained_with_attempts(world):
    world.tell(manifest("ResourceFlavor", "default", {"nodeTaints": [{"key": "gpu", "effect": "NoSchedule"}]}))
    world.submit(workload("w", "a"))
    assert world.admitted() == []
    explanation = world.engine.explain("w")
    assert explanation.reason == "NoMatchingFlavor"
    ((pod_set, attempt),) = explanation.attempts
    assert (pod_set, attempt.flavor) == ("main", "default")


def test_preemption_hint_names_policies_that_forbid_preemption(world):
    world.submit(workload("runs", "a", 6), workload("w", "a", created=1))
    world.admitted()
    (hint,) = world.engine.explain("w").preemption_hints
    assert hint.hint == (
        "its ClusterQueue preempts no workloads (withinClusterQueue is Never, reclaimWithinCohort is Never)"
    )


@pytest.fixture
def preempting():
    """A world in which `b` borrows quota lent by `a`, and `a` runs a workload of its own."""
    policies = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "LowerPriority"}
    world = World(
        cluster_queue("a", 4, cohort="all", preemption=policies),
        cluster_queue("b", 6, cohort="all"),
        local_queue("a"),
        local_queue("b"),
    )
    world.submit(workload("low", "a", 1), workload("borrows", "b", 9, priority=1, created=1))
    assert world.admitted() == ["low", "borrows"]
    return world


def test_preemption_hint_has_amounts_and_numbers_of_candidates(preempting):
    preempting.submit(workload("w", "a", 8, priority=2, created=2))
    assert preempting.engine.settle(preempting.now).evicted == ()
    (hint,) = preempting.engine.explain("w").preemption_hints
    assert (hint.missing, hint.own, hint.others) == (8000, 1000, 3000)
    assert hint.hint == (
        "of cpu in flavor default it might take 1 from 1 workload(s) of its ClusterQueue and 3 from 1 of others that "
        "borrow (withinClusterQueue is LowerPriority, reclaimWithinCohort is LowerPriority), "
        "which is not enough for the 8 that are missing"
    )


def test_preemption_hint_reports_that_no_workload_has_a_lower_priority(preempting):
    preempting.submit(workload("w", "a", 2, created=2))
    assert preempting.engine.settle(preempting.now).evicted == ()
    (hint,) = preempting.engine.explain("w").preemption_hints
    assert hint.hint.startswith("no admitted workload may be preempted for cpu in flavor default")


def test_preemption_hint_during_a_preemption_says_might_be_enough(preempting):
    preempting.submit(workload("w", "a", 4, priority=2, created=2))
    assert preempting.engine.settle(preempting.now).evicted
    explanation = preempting.engine.explain("w")
    assert explanation.reason == "WaitingForPreemptedWorkloads"
    assert "which might be enough for the 4 that are missing" in explanation.preemption_hints[0].hint


def test_preemption_hint_excludes_quota_that_the_queue_itself_borrows():
    world = World(
        cluster_queue("a", 4, cohort="all", preemption={"reclaimWithinCohort": "Any"}),
        cluster_queue("b", 6, cohort="all"),
        local_queue("a"),
    )
    world.submit(workload("runs", "a", 5), workload("w", "a", 6, created=1))
    assert world.admitted() == ["runs"]
    (hint,) = world.engine.explain("w").preemption_hints
    assert (hint.own_workloads, hint.others, hint.others_workloads) == (0, 0, 0)


def test_preemption_hint_counts_at_most_1000_candidates():
    policies = {"withinClusterQueue": "LowerPriority"}
    world = World(cluster_queue("a", 1001, preemption=policies), local_queue("a"))
    admission = Admission("a", (PodSetAssignment("main", {"cpu": "default"}, {"cpu": 1000}, 1),))
    one = workload("low", "a")
    for number in range(1001):
        world.engine.observe(WorkloadAdmitted(replace(one, uid=f"{number}"), admission, at=0.0), now=world.now)
    world.submit(workload("w", "a", 1001, priority=1))
    world.engine.refresh(world.now)
    (hint,) = world.engine.explain("w").preemption_hints
    assert (hint.own, hint.own_workloads) == (1_000_000, 1000)


def test_workload_that_can_never_fit_has_no_preemption_hint(world):
    world.submit(workload("w", "a", 7))
    world.admitted()
    assert world.engine.explain("w").preemption_hints == ()


def test_lack_names_the_borrowing_limit_of_an_intermediate_cohort():
    """Quota that a node keeps from its parent by a lending limit is not subject to the limits above."""
    world = World(
        cohort("root", 10),
        cohort("middle", 0, parent="root", limit=3),
        cluster_queue("a", 4, cohort="middle", limits={"lendingLimit": 0}),
        local_queue("a"),
    )
    world.submit(workload("w", "a", 8))
    world.admitted()
    (lack,) = world.engine.explain("w").lacks
    assert (lack.maximum, lack.refused_by) == (7000, "Cohort middle: borrowingLimit")


def test_workload_that_was_not_tried_yet_is_explained_with_its_reason():
    """The same holds for a workload that might preempt; attempts have the borrowing level that it would have."""
    world = World(
        cohort("root", 1),
        cohort("middle", 0, parent="root"),
        cluster_queue("a", 2, cohort="middle", preemption={"reclaimWithinCohort": "Any"}),
        cluster_queue("b", 0, cohort="middle"),
        local_queue("a"),
        local_queue("b"),
    )
    world.submit(workload("borrows", "b", 3))
    assert world.admitted() == ["borrows"]
    world.submit(workload("reclaims", "a", 2), workload("hopes", "a", 3))
    world.engine.refresh(world.now)
    for uid, height in (("reclaims", 0), ("hopes", 2)):
        explanation = world.engine.explain(uid)
        assert explanation.reason == "WaitingForQuota"
        assert [attempt.borrow for _, attempt in explanation.attempts] == [height]


def test_explanation_has_no_backoff_after_the_backoff_has_ended(world):
    world.submit(workload("big", "b", 10))
    assert world.admitted() == ["big"]
    world.engine.observe(WorkloadPending(workload("w", "a"), not_before=world.now + 60), now=world.now)
    world.now += 59
    world.engine.settle(world.now)
    assert world.engine.explain("w").not_before == 1060.0
    world.now += 1
    world.engine.settle(world.now)
    explanation = world.engine.explain("w")
    assert (explanation.not_before, explanation.reason) == (None, "WaitingForQuota")
