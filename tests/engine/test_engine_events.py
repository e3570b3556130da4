"""Events: the effect of each event on the engine's state and decisions."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from admission.engine import (
    Accounting,
    Engine,
    NamespaceChanged,
    Policy,
    QueueObjectDeleted,
    Transformation,
    WorkloadAdmitted,
    WorkloadEvicted,
    WorkloadPending,
)
from admission.model.workload import Admission, PodSetAssignment
from tests.engine.scenes import World, cluster_queue, local_queue, manifest, workload


@pytest.fixture
def world():
    return World(cluster_queue("cq", 3), local_queue("cq"))


def test_fitting_workload_is_admitted_and_the_other_parked_with_a_message(world):
    world.submit(workload("a", "cq", 2, created=1), workload("b", "cq", 2, created=2))
    decisions = world.engine.settle(world.now)
    (admit,) = decisions.admitted
    assert admit.workload.uid == "a"
    assert admit.admission == Admission("cq", (PodSetAssignment("main", {"cpu": "default"}, {"cpu": 2000}, 1),))
    (park,) = decisions.parked
    assert (park.workload.uid, park.reason) == ("b", "WaitingForQuota")
    assert "1 more needed" in park.message


def test_repeated_event_of_an_admitted_workload_has_no_effect(world):
    world.submit(workload("a", "cq"))
    assert world.admitted() == ["a"]
    world.submit(workload("a", "cq"))
    assert not world.engine.settle(world.now)


def test_released_quota_is_given_to_a_pending_workload(world):
    world.submit(workload("a", "cq", 3, created=1), workload("b", "cq", 3, created=2))
    assert world.admitted() == ["a"]
    world.gone("a")
    assert world.admitted() == ["b"]


def test_eviction_frees_nothing_until_the_pods_are_gone(world):
    world.submit(workload("a", "cq", 3, created=1), workload("b", "cq", 3, created=2))
    assert world.admitted() == ["a"]
    world.engine.observe(WorkloadEvicted("a"), now=world.now)
    assert world.admitted() == []
    world.gone("a", requeue=workload("a", "cq", 3, created=3))
    assert world.admitted() == ["b"]


def test_preemption_takes_effect_when_the_victim_is_gone():
    world = World(cluster_queue("cq", 1, preemption={"withinClusterQueue": "LowerPriority"}), local_queue("cq"))
    low, high = workload("low", "cq"), workload("high", "cq", priority=5)
    world.submit(low)
    assert world.admitted() == ["low"]
    world.submit(high)
    decisions = world.engine.settle(world.now)
    assert not decisions.admitted
    (evict,) = decisions.evicted
    assert (evict.workload.uid, evict.reason, evict.preemption_reason, evict.preemptor) == (
        "low",
        "Preempted",
        "InClusterQueue",
        "high",
    )
    assert world.engine.settle(world.now).evicted == ()
    world.gone("low", requeue=low)
    assert world.admitted() == ["high"]


def test_forgotten_admission_is_pending_again_at_its_position(world):
    world.submit(workload("a", "cq", 3, created=1), workload("b", "cq", 3, created=2))
    (admit,) = world.engine.settle(world.now).admitted
    world.engine.forget(admit)
    assert world.engine.usage() == {}
    assert world.admitted() == ["a"]


def test_workload_on_hold_is_not_admitted(world):
    world.engine.observe(WorkloadPending(workload("a", "cq"), on_hold=True), now=world.now)
    decisions = world.engine.settle(world.now)
    assert [(park.workload.uid, park.reason) for park in decisions.parked] == [("a", "OnHold")]
    assert not decisions.admitted
    world.submit(workload("a", "cq"))
    assert world.admitted() == ["a"]


def test_loaded_admission_counts_as_usage_and_is_not_decided_again(world):
    admission = Admission("cq", (PodSetAssignment("main", {"cpu": "default"}, {"cpu": 2000}, 1),))
    world.engine.observe(WorkloadAdmitted(workload("old", "cq", 2), admission, at=1.0), now=world.now)
    world.submit(workload("new", "cq", 2))
    assert world.admitted() == []
    assert world.engine.usage() == {"cq": {"default": {"cpu": 2000}}}


def test_usage_of_an_unknown_flavor_is_kept_and_released(world):
    admission = Admission("cq", (PodSetAssignment("main", {"cpu": "bygone"}, {"cpu": 2000}, 1),))
    world.engine.settle(world.now)
    world.engine.observe(WorkloadAdmitted(workload("old", "cq", 2), admission, at=1.0), now=world.now)
    world.submit(workload("new", "cq", 3))
    assert world.admitted() == ["new"]
    assert world.engine.usage()["cq"]["bygone"] == {"cpu": 2000}
    world.gone("old")
    assert "bygone" not in world.engine.usage()["cq"]


@pytest.mark.parametrize("policy", ["Hold", "HoldAndDrain"])
def test_stopped_cluster_queue_admits_nothing_and_drains_with_hold_and_drain(world, policy):
    world.submit(workload("running", "cq"))
    assert world.admitted() == ["running"]
    world.tell(cluster_queue("cq", 3, stopPolicy=policy))
    world.submit(workload("a", "cq"))
    decisions = world.engine.settle(world.now)
    assert [(park.workload.uid, park.reason) for park in decisions.parked] == [("a", "Suspended")]
    evicted = [(evict.workload.uid, evict.reason) for evict in decisions.evicted]
    assert evicted == ([("running", "ClusterQueueStopped")] if policy == "HoldAndDrain" else [])
    world.tell(cluster_queue("cq", 3))
    assert world.admitted() == ["a"]


@pytest.mark.parametrize("policy", ["Hold", "HoldAndDrain"])
def test_stopped_local_queue_admits_nothing_and_drains_with_hold_and_drain(world, policy):
    world.submit(workload("running", "cq"), workload("waits", "cq", 3, created=5))
    assert world.admitted() == ["running"]
    world.tell(local_queue("cq", stopPolicy=policy))
    decisions = world.engine.settle(world.now)
    assert [(park.workload.uid, park.reason) for park in decisions.parked] == [("waits", "Suspended")]
    evicted = [(evict.workload.uid, evict.reason) for evict in decisions.evicted]
    assert evicted == ([("running", "LocalQueueStopped")] if policy == "HoldAndDrain" else [])
    world.gone("running")
    assert world.admitted() == []
    world.tell(local_queue("cq"))
    assert world.admitted() == ["waits"]


def test_queue_objects_may_be_created_after_their_workloads():
    world = World()
    world.submit(workload("a", "cq"))
    (park,) = world.engine.settle(world.now).parked
    assert (park.reason, park.message) == ("Misconfigured", "LocalQueue cq doesn't exist")
    world.tell(local_queue("cq"))
    (park,) = world.engine.settle(world.now).parked
    assert (park.reason, park.message) == ("Misconfigured", "ClusterQueue cq doesn't exist")
    world.tell(cluster_queue("cq", {"spot": 1}))
    (park,) = world.engine.settle(world.now).parked
    assert park.reason == "Suspended"
    assert "spot" in park.message
    world.tell(manifest("ResourceFlavor", "spot", {}))
    assert world.admitted() == ["a"]


def test_deletion_of_a_local_queue_removes_its_workloads_from_the_queue(world):
    world.submit(workload("a", "cq", 3), workload("b", "cq", 3, created=1))
    assert world.admitted() == ["a"]
    world.engine.observe(QueueObjectDeleted("LocalQueue", "ns", "cq"), now=world.now)
    world.gone("a")
    assert world.admitted() == []
    assert world.engine.pending("cq").active == ()


def test_pending_workload_may_move_to_another_queue(world):
    world.tell(cluster_queue("other", 9), local_queue("other"))
    world.submit(workload("a", "cq", 5))
    assert world.admitted() == []
    world.submit(workload("a", "other", 5))
    (admit,) = world.engine.settle(world.now).admitted
    assert admit.admission.cluster_queue == "other"
    assert world.engine.pending("cq").inadmissible == ()


def test_namespace_selector_restricts_admission_to_matching_namespaces(world):
    world.tell(cluster_queue("cq", 3, namespaceSelector={"matchLabels": {"team": "a"}}))
    world.submit(workload("a", "cq"))
    (park,) = world.engine.settle(world.now).parked
    assert park.reason == "Misconfigured"
    world.engine.observe(NamespaceChanged("ns", {"team": "a"}), now=world.now)
    assert world.admitted() == ["a"]


def test_quota_lowered_below_usage_evicts_nothing_and_admits_nothing(world):
    world.submit(workload("a", "cq", 3), workload("b", "cq", 1, created=1))
    assert world.admitted() == ["a"]
    world.tell(cluster_queue("cq", 1))
    assert not world.engine.settle(world.now).evicted
    world.gone("a")
    assert world.admitted() == ["b"]


def test_raised_quota_admits_a_pending_workload(world):
    world.submit(workload("a", "cq", 5))
    assert world.admitted() == []
    world.tell(cluster_queue("cq", 5))
    assert world.admitted() == ["a"]


def test_raised_quota_admits_all_pending_workloads_of_a_shape(world):
    world.submit(*(workload(name, "cq", 2, created=created) for created, name in enumerate("abc")))
    assert world.admitted() == ["a"]
    world.tell(cluster_queue("cq", 6))
    assert world.admitted() == ["b", "c"]


def test_cohort_lends_idle_quota_up_to_the_lending_limit():
    world = World(
        cluster_queue("lender", 4, cohort="all", limits={"lendingLimit": 3}),
        cluster_queue("borrower", 0, cohort="all"),
        local_queue("borrower"),
        local_queue("lender"),
    )
    world.submit(*(workload(f"w{number}", "borrower", created=number) for number in range(5)))
    assert world.admitted() == ["w0", "w1", "w2"]
    world.submit(workload("own", "lender"))
    assert world.admitted() == ["own"]


def test_cycle_of_cohorts_suspends_only_its_own_tree():
    world = World(
        manifest("Cohort", "a", {"parentName": "b"}),
        manifest("Cohort", "b", {"parentName": "a"}),
        cluster_queue("caught", 1, cohort="a"),
        cluster_queue("free", 1),
        local_queue("caught"),
        local_queue("free"),
    )
    world.submit(workload("a", "caught"), workload("b", "free"))
    decisions = world.engine.settle(world.now)
    assert [admit.workload.uid for admit in decisions.admitted] == ["b"]
    assert [(park.reason, park.message) for park in decisions.parked] == [
        ("Suspended", "ClusterQueue caught is in a cycle of Cohorts")
    ]
    world.tell(manifest("Cohort", "b", {}))
    assert world.admitted() == ["a"]


def test_settle_without_new_events_decides_nothing(world):
    world.submit(*(workload(f"w{number}", "cq", created=number) for number in range(9)))
    assert len(world.admitted()) == 3
    decisions = world.engine.settle(world.now)
    assert not decisions
    assert decisions.cycles == 1


def test_strict_fifo_blocks_behind_its_head_and_best_effort_does_not():
    for strategy, expected in (("StrictFIFO", []), ("BestEffortFIFO", ["small"])):
        world = World(cluster_queue("cq", 3, queueingStrategy=strategy), local_queue("cq"))
        world.submit(workload("large", "cq", 5, created=1), workload("small", "cq", created=2))
        assert world.admitted() == expected


def test_replacement_takes_over_the_quota_of_the_replaced_workload(world):
    world.submit(workload("slice-1", "cq", count=2))
    assert world.admitted() == ["slice-1"]
    world.submit(workload("slice-2", "cq", count=3, replaces="slice-1"))
    decisions = world.engine.settle(world.now)
    assert [admit.workload.uid for admit in decisions.admitted] == ["slice-2"]
    assert [(evict.workload.uid, evict.reason) for evict in decisions.evicted] == [("slice-1", "WorkloadSliceReplaced")]
    assert world.engine.usage() == {"cq": {"default": {"cpu": 3000}}}
    world.gone("slice-2")
    assert world.engine.usage() == {}
    world.submit(workload("next", "cq", 3))
    assert world.admitted() == ["next"]


def test_workload_in_backoff_is_not_admitted_before_the_backoff_ends(world):
    item = workload("a", "cq")
    world.engine.observe(WorkloadPending(item, not_before=world.now + 60), now=world.now)
    decisions = world.engine.settle(world.now)
    assert not decisions.admitted
    assert [park.reason for park in decisions.parked] == ["PendingEvaluation"]
    assert world.engine.wake_at() == world.now + 60
    world.tell(cluster_queue("cq", 4))
    world.submit(workload("b", "cq"))
    world.gone("b")
    assert world.admitted() == []
    world.now += 60
    assert world.admitted() == ["a"]
    assert world.engine.wake_at() is None


def test_undeclared_resources_are_rejected_or_ignored_as_configured():
    for ignore, expected in ((False, []), (True, ["a"])):
        engine = Engine(Policy(ignore_undeclared=ignore))
        world = World(cluster_queue("cq", 3), local_queue("cq"), engine=engine)
        item = workload("a", "cq")
        pods = replace(item.pod_sets[0], requests={"cpu": 1000, "example.com/gpu": 1})
        world.submit(replace(item, pod_sets=(pods,)))
        assert world.admitted() == expected


@pytest.mark.parametrize("name", [f"example.com/{letter}" for letter in "abcdef"])
def test_declared_resource_counts_beside_an_ignored_resource(name):
    """The names cover both orders in which the resources may be visited, which their hashes determine."""
    world = World(cluster_queue("cq", 3), local_queue("cq"), engine=Engine(Policy(ignore_undeclared=True)))
    item = workload("a", "cq")
    pods = replace(item.pod_sets[0], requests={"cpu": 2000, name: 1})
    world.submit(*(replace(item, uid=uid, name=uid, pod_sets=(pods,)) for uid in ("a", "b")))
    assert world.admitted() == ["a"]
    assert world.engine.usage() == {"cq": {"default": {"cpu": 2000}}}
    (lack,) = world.engine.explain("b").lacks
    assert (lack.resource, lack.missing) == ("cpu", 1000)


def test_usage_follows_excluded_prefixes_and_transformations():
    rules = Accounting(
        excluded_prefixes=("net/",),
        transformations=(Transformation("gpu/small", {"credits": Fraction(2), "cpu": Fraction(-1)}, replace=True),),
    )
    queue = cluster_queue("cq", {"default": {"cpu": 4, "credits": 5}})
    world = World(queue, local_queue("cq"), engine=Engine(Policy(accounting=rules)))
    item = workload("a", "cq")
    pods = replace(item.pod_sets[0], requests={"cpu": 1000, "gpu/small": 2, "net/card": 9})
    world.submit(replace(item, pod_sets=(pods,)))
    assert world.admitted() == ["a"]
    assert world.engine.usage() == {"cq": {"default": {"cpu": 1000, "credits": 4}}}
