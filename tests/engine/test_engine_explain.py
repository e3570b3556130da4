"""`Engine.explain`: missing quota, the limiting node of the tree, and the workloads ahead."""

from __future__ import annotations

from dataclasses import replace

import pytest

from admission.engine import Holder, NamespaceChanged, WorkloadAdmitted, WorkloadPending, needed_now
from admission.model.workload import Admission, PodSet, PodSetAssignment
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
    assert lack.hint == "2 CPU (default) must become free"


def test_lack_names_the_cohort_whose_quota_is_in_use(world):
    world.submit(workload("big", "b", 9))
    world.admitted()
    world.submit(workload("w", "a", 3))
    world.admitted()
    (lack,) = world.engine.explain("w").lacks
    assert (lack.free, lack.refused_by) == (1000, "the ClusterQueues in Cohort all: nominalQuota")
    world.tell(cohort("all", 0))
    world.admitted()
    (lack,) = world.engine.explain("w").lacks
    assert lack.refused_by == "Cohort all: nominalQuota"


def test_hint_for_a_cohort_without_quota_names_the_cluster_queues_in_the_cohort(world):
    """A Cohort without object, which ClusterQueues only name, cannot get quota of its own."""
    world.tell(cluster_queue("a", 4, cohort="all"))
    world.submit(workload("w", "a", 12))
    world.admitted()
    said = "have an admin raise the nominalQuota of the ClusterQueues in Cohort all by 2 CPU (default)"
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
    assert "more CPU than can be counted (default)" in message
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
    assert lack.hint == "raise the borrowingLimit of ClusterQueue a by 1 CPU (default), or ask for less"


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


def test_explanation_names_workloads_of_the_own_namespace_and_counts_others(world):
    """Those ahead of it, whether they are retried or not, and those that use what it lacks."""
    world.engine.observe(NamespaceChanged("elsewhere", {}), now=world.now)
    for name in ("a", "b"):
        world.tell(manifest("LocalQueue", name, {"clusterQueue": name}, namespace="elsewhere"))
    foreign = [replace(workload(name, queue), namespace="elsewhere") for name, queue in (("f", "b"), ("g", "a"))]
    world.submit(workload("small", "a", 1), workload("large", "b", 5), foreign[0])
    assert len(world.admitted()) == 3
    world.submit(workload("first", "a", 6), replace(foreign[1], pod_sets=workload("g", "a", 6).pod_sets))
    world.submit(workload("w", "a", 5, created=1))
    world.admitted()
    explanation = world.engine.explain("w")
    assert (explanation.position_in_cluster_queue, explanation.waiting_in_cluster_queue) == (3, 3)
    assert (explanation.position_in_local_queue, explanation.waiting_in_local_queue) == (2, 2)
    assert (explanation.ahead, explanation.ahead_first) == (2, ("ns/first",))
    assert explanation.holders == (Holder("ns/large", (5000,)), Holder("ns/small", (1000,)))
    assert explanation.other_holders == 1
    (lack,) = explanation.lacks
    assert (lack.used, lack.used_by_others) == (1000, 6000)


def test_quota_that_others_borrow_is_named_with_them(world):
    world.submit(workload("borrower", "a", 6))
    world.admitted()
    world.submit(workload("own", "b", 6), workload("wide", "a", 5))
    assert world.admitted() == []
    (lent,) = world.engine.explain("own").lent
    assert str(lent) == "2 CPU (default) of the quota of ClusterQueue b are lent: a borrows 2 CPU."
    assert world.engine.explain("wide").lent == ()  # it lacks nothing of its own


def test_what_is_missing_is_said_of_each_cluster_that_it_may_be_dispatched_to(world):
    for name in ("b", "c"):
        world.tell(manifest("ResourceFlavor", f"in-{name}", {"clusters": [name]}))
    world.tell(cluster_queue("d", {"in-b": 2, "in-c": 2}), local_queue("d"))
    for name, cpu in (("first", 2), ("second", 2), ("w", 1)):
        world.submit(replace(workload(name, "d", cpu), clusters=(("b",), ("c",))))
        world.admitted()
    explanation = world.engine.explain("w")
    assert [lack.flavor for lack in explanation.lacks] == ["in-b"]
    assert explanation.elsewhere == ("In cluster c it needs 1 CPU (in-c): 0 of 2 free.",)


GROUPS = [
    {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": 10}]}]},
    {
        "coveredResources": ["nvidia.com/gpu"],
        "flavors": [
            {"name": name, "resources": [{"name": "nvidia.com/gpu", "nominalQuota": quota}]}
            for name, quota in (("a100", 4), ("h100", 2))
        ],
    },
]


@pytest.mark.parametrize(
    ("cpu", "gpu", "reason", "needs", "message"),
    [
        (
            8, 3, "WaitingForQuota", "3 GPU (a100): 2 of 4 free; 8 CPU (default): 6 of 10 free",
            "Needs 3 GPU (a100), 8 CPU (default): less is free. It starts as soon as enough becomes free.",
        ),
        (
            1, 2, "WaitingForQuota", "2 GPU (a100): 1 of 4 free or 2 GPU (h100): 1 of 2 free",
            "Needs 2 GPU (a100 or h100): less is free. It starts as soon as enough becomes free.",
        ),
        (
            12, 5, "ExceedsMaxQuota",
            "5 GPU (a100): at most 4 or 5 GPU (h100): at most 2; 12 CPU (default): at most 10",
            (
                "Needs 5 GPU (a100), of which at most 4 can be used; 5 GPU (h100), of which at most 2 can be used; 12 "
                "CPU (default), of which at most 10 can be used. It can never start like this: ask for less, or have "
                "an admin raise the nominalQuota of ClusterQueue q by 1 GPU (a100), 2 CPU (default)."
            ),
        ),
    ],
)  # fmt: skip
def test_all_that_is_missing_is_named_with_its_alternatives(cpu, gpu, reason, needs, message):
    flavors = [manifest("ResourceFlavor", name, {}) for name in ("a100", "h100")]
    world = World(*flavors, cluster_queue("q", 1, resourceGroups=GROUPS), local_queue("q"))
    used = {2: (1, 3), 3: (4, 2), 5: (4, 2)}[gpu]
    world.submit(workload("runs", "q", used[0], others={"nvidia.com/gpu": used[1]}))
    if gpu == 2:
        one = {"nvidia.com/gpu": 1}
        world.submit(workload("more", "q", created=1, others=one), workload("next", "q", created=2, others=one))
        world.admitted()
        world.gone("more")
    world.admitted()
    world.submit(workload("w", "q", cpu, others={"nvidia.com/gpu": gpu}, created=3))
    world.admitted()
    explanation = world.engine.explain("w")
    assert (explanation.reason, needed_now(explanation.lacks), explanation.message) == (reason, needs, message)


def test_requests_of_all_pod_sets_for_the_same_flavor_are_one_need():
    world = World(cluster_queue("q", 8), local_queue("q"))
    world.submit(workload("runs", "q", 4))
    world.admitted()
    pods = replace(
        workload("w", "q", created=1), pod_sets=(PodSet("one", 1, {"cpu": 1000}), PodSet("two", 5, {"cpu": 1000}))
    )
    world.submit(pods)
    world.admitted()
    explanation = world.engine.explain("w")
    assert needed_now(explanation.lacks) == "6 CPU (default): 4 of 8 free"
    assert "Needs 6 CPU (default): less is free." in explanation.message


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
        "CPU (default): at most 1 from 1 workload in its ClusterQueue and 3 from 1 workload in others that borrow, "
        "which is not enough for the 8 that are missing (withinClusterQueue is LowerPriority, reclaimWithinCohort is "
        "LowerPriority)"
    )


def test_preemption_hint_reports_that_no_workload_has_a_lower_priority(preempting):
    preempting.submit(workload("w", "a", 2, created=2))
    assert preempting.engine.settle(preempting.now).evicted == ()
    (hint,) = preempting.engine.explain("w").preemption_hints
    assert hint.hint.startswith("no admitted workload may be preempted for CPU (default)")


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
