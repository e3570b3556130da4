"""Pending workloads that leave the queue and come back, and the reasons reported meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from admission.engine import Engine, NamespaceChanged, Policy, WorkloadPending
from admission.engine.accounting import Accounting
from admission.engine.pending import PendingQueue
from admission.engine.pending_item import Item, Shapes
from admission.model.workload import PodSet
from tests.engine.scenes import World, cluster_queue, local_queue, manifest, workload

LOWER = {"withinClusterQueue": "LowerPriority"}
FAULT = ("Misconfigured", "the workload is at fault")
ALIEN = ("Misconfigured", "workload namespace doesn't match ClusterQueue selector")


def choosy(quota: int) -> World:
    """Return a ClusterQueue that accepts workloads of the namespace `ns`, and not of `alien`."""
    world = World(cluster_queue("cq", quota, namespaceSelector={"matchLabels": {"team": "x"}}), local_queue("cq"))
    world.tell(manifest("LocalQueue", "cq", {"clusterQueue": "cq"}, namespace="alien"))
    world.engine.observe(NamespaceChanged("ns", {"team": "x"}), now=world.now)
    world.engine.observe(NamespaceChanged("alien", {"team": "y"}), now=world.now)
    return world


def names(workloads: object) -> list[str]:
    return [item.name for item in workloads]


@pytest.fixture
def preempted():
    """A world in which `claims` has preempted `low`, which still holds its quota, when `urgent` arrives."""
    world = World(cluster_queue("cq", 1, preemption=LOWER), local_queue("cq"))
    world.submit(workload("low", "cq"))
    assert world.admitted() == ["low"]
    world.submit(workload("claims", "cq", priority=1))
    assert names(evict.workload for evict in world.engine.settle(world.now).evicted) == ["low"]
    world.submit(workload("urgent", "cq", priority=5), workload("other", "cq", created=9))
    return world


def test_preemptor_stays_at_the_head_when_another_workload_is_deleted(preempted):
    preempted.gone("other")
    assert names(preempted.engine.pending("cq").active) == ["claims", "urgent"]
    preempted.gone("low")
    assert [admit.workload.uid for admit in preempted.engine.cycle(preempted.now).admitted] == ["claims"]


def test_preemptor_that_is_deleted_and_resubmitted_is_not_at_the_head(preempted):
    preempted.gone("claims")
    preempted.submit(workload("claims", "cq", priority=1))
    assert names(preempted.engine.pending("cq").active) == ["urgent", "claims", "other"]
    preempted.gone("low")
    assert preempted.admitted() == ["urgent"]


def test_workload_deleted_while_inadmissible_does_not_return():
    world = World(cluster_queue("cq", 1, preemption=LOWER), local_queue("cq"))
    world.submit(workload("low", "cq"))
    assert world.admitted() == ["low"]
    world.submit(workload("high", "cq", priority=1, may_preempt=False))
    assert world.admitted() == []
    assert names(world.engine.pending("cq").inadmissible) == ["high"]
    world.gone("high")
    assert world.engine.pending("cq").inadmissible == ()
    world.gone("low")
    assert world.admitted() == []


def test_ranked_workload_of_an_inadmissible_shape_does_not_become_the_head():
    """The ranked workload is the first of its shape with that rank."""
    world = World(cluster_queue("cq", 1), local_queue("cq"))
    world.submit(workload("big", "cq", 2))
    assert world.admitted() == []
    world.submit(workload("ranked", "cq", 2, rank_priority=5), workload("small", "cq"))
    assert names(admit.workload for admit in world.engine.cycle(world.now).admitted) == ["small"]


def test_workload_of_a_rejected_namespace_does_not_become_the_head():
    world = choosy(1)
    world.submit(workload("runs", "cq"), workload("waits", "cq", created=5))
    assert world.admitted() == ["runs"]
    world.submit(replace(workload("alien", "cq", created=1), namespace="alien"))
    world.gone("runs")
    assert names(admit.workload for admit in world.engine.cycle(world.now).admitted) == ["waits"]


def test_fault_is_reported_for_a_workload_that_does_not_fit_either():
    world = choosy(4)
    world.submit(workload("runs", "cq", 3), workload("waits", "cq", 3, created=1))
    assert world.admitted() == ["runs"]
    world.engine.observe(WorkloadPending(workload("faulty", "cq", 3, created=2), fault=FAULT), now=world.now)
    world.gone("runs")
    decisions = world.engine.settle(world.now)
    assert names(admit.workload for admit in decisions.admitted) == ["waits"]
    assert [(park.workload.name, park.reason, park.message) for park in decisions.parked] == [("faulty", *FAULT)]
    world.submit(replace(workload("alien", "cq", 3, created=3), namespace="alien"))
    decisions = world.engine.settle(world.now)
    assert [(park.workload.name, park.reason, park.message) for park in decisions.parked] == [("alien", *ALIEN)]


def test_workload_whose_backoff_ends_as_quota_is_raised_is_admitted():
    """The backoff ends in the exact second of the change, and the shape of the workload is inadmissible."""
    world = World(cluster_queue("cq", 1), local_queue("cq"))
    world.submit(workload("waits", "cq", 2))
    assert world.admitted() == []
    late = workload("late", "cq", 2, created=1)
    world.engine.observe(WorkloadPending(late, not_before=world.now + 5), now=world.now)
    assert world.admitted() == []
    world.now += 5
    world.tell(cluster_queue("cq", 4))
    assert world.admitted() == ["waits", "late"]


def test_last_workload_keeps_its_position_when_may_preempt_changes():
    world = World(cluster_queue("cq", 2), local_queue("cq"))
    last = workload("last", "cq", 2, created=1)
    world.submit(workload("full", "cq", 2, priority=1))
    assert world.admitted() == ["full"]
    world.submit(workload("first", "cq", 2), last)
    assert world.admitted() == []
    world.submit(replace(last, may_preempt=False))
    assert world.admitted() == []
    places = world.engine.listing("cq", limit=9)
    assert [(at.workload.name, at.position_in_cluster_queue) for at in places] == [("first", 1), ("last", 2)]


def test_listing_has_the_fault_of_each_workload_of_a_shape_before_a_cycle():
    world = choosy(1)
    world.submit(workload("a", "cq", 2), workload("b", "cq", 2, created=9))
    faults = {"faulty": FAULT, "worse": ("Misconfigured", "the workload is at fault, and in another way")}
    for name, fault in faults.items():
        world.engine.observe(WorkloadPending(workload(name, "cq", 2, created=1), fault=fault), now=world.now)
    world.submit(replace(workload("alien", "cq", 2, created=2), namespace="alien"))
    world.engine.refresh(world.now)
    places = {at.workload.name: (at.reason, at.message) for at in world.engine.listing("cq", limit=9)}
    assert list(places) == ["a", "faulty", "worse", "alien", "b"]
    assert places.pop("a") == places["b"]
    assert places.pop("b")[0] == "ExceedsMaxQuota"
    reason, message = places.pop("alien")
    assert (reason, message[:51]) == ("Misconfigured", "ClusterQueue cq accepts only namespaces with team=x")
    assert places == faults


@pytest.mark.parametrize(("ignore", "reason"), [(True, "PendingEvaluation"), (False, "NoMatchingFlavor")])
def test_reason_for_an_undeclared_resource_depends_on_ignore_undeclared(ignore, reason):
    world = World(cluster_queue("cq", 1), local_queue("cq"), engine=Engine(Policy(ignore_undeclared=ignore)))
    pods = PodSet("main", 1, {"cpu": 1000, "example.com/licence": 1})
    world.submit(replace(workload("w", "cq"), pod_sets=(pods,)))
    world.engine.refresh(world.now)
    assert [at.reason for at in world.engine.listing("cq", limit=9)] == [reason]
    assert world.engine.explain("w").reason == reason


def test_workload_of_a_local_queue_just_created_is_pending_evaluation():
    world = World(cluster_queue("cq", 1))
    world.submit(workload("w", "cq"))
    assert world.admitted() == []
    world.tell(local_queue("cq"))
    explanation = world.engine.explain("w")
    assert (explanation.state, explanation.reason) == ("Pending", "PendingEvaluation")
    assert world.admitted() == ["w"]


@pytest.mark.parametrize(("limit", "found"), [(0, 0), (1, 1), (3, 3), (5, 5), (9, 7)])
def test_workloads_ahead_are_limited_to_the_requested_number(limit, found):
    """Workloads of two shapes alternate."""
    pending, shapes = PendingQueue(), Shapes(Accounting())
    line = [workload(f"w{number}", "cq", 1 + number % 2, created=float(number)) for number in range(8)]
    items = [Item(each, shapes.of(each)) for each in line]
    for item in items:
        pending.add(item)
    ahead = pending.ahead_of(items[-1], limit)
    assert len(ahead) == found
    assert set(ahead) <= set(items[:-1])
