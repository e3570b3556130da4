"""Registry of the engine: workloads on hold, backoffs, held quota, deletions and repeated events."""

from __future__ import annotations

from dataclasses import replace

import pytest

from admission.engine import (
    AdmissionFairSharing,
    Engine,
    NamespaceChanged,
    Policy,
    QueueObjectDeleted,
    SharerUsed,
    WorkloadAdmitted,
    WorkloadEvicted,
    WorkloadGone,
    WorkloadPending,
)
from admission.engine.over_quota import Overuse
from admission.model.workload import Admission, PodSetAssignment
from tests.engine.scenes import World, cluster_queue, cohort, consumption, local_queue, manifest, workload


@pytest.fixture
def world():
    return World(cluster_queue("cq", 3), cluster_queue("other", 3), local_queue("cq"))


def holding(cpu: int, flavor: str = "default", queue: str = "cq") -> Admission:
    return Admission(queue, (PodSetAssignment("main", {"cpu": flavor}, {"cpu": 1000 * cpu}, 1),))


def test_requeued_workload_has_the_given_backoff_or_hold(world):
    world.submit(workload("a", "cq"), workload("b", "cq"))
    assert len(world.admitted()) == 2
    world.engine.observe(WorkloadGone("a", requeue=workload("a", "cq"), not_before=world.now + 5), now=world.now)
    world.engine.observe(WorkloadGone("b", requeue=workload("b", "cq"), on_hold=True), now=world.now)
    assert world.admitted() == []
    assert world.engine.explain("b").reason == "OnHold"
    world.now += 5
    assert world.admitted() == ["a"]


def test_released_quota_does_not_shorten_a_backoff(world):
    world.submit(workload("runs", "cq", 3))
    assert world.admitted() == ["runs"]
    world.engine.observe(WorkloadPending(workload("late", "cq", 3), not_before=world.now + 5), now=world.now)
    assert world.admitted() == []
    world.gone("runs")
    assert world.admitted() == []
    world.now += 5
    assert world.admitted() == ["late"]


def test_repeated_pending_event_has_an_effect_only_if_different(world):
    one = workload("a", "cq", 4)
    world.submit(one)
    assert world.engine.settle(world.now).parked
    world.submit(one)
    assert not world.engine.settle(world.now)
    world.engine.observe(WorkloadPending(one, fault=("Misconfigured", "broken")), now=world.now)
    world.engine.settle(world.now)
    assert world.engine.explain("a").message == "broken"
    world.engine.observe(WorkloadPending(one, not_before=world.now + 5), now=world.now)
    (park,) = world.engine.settle(world.now).parked
    assert park.reason == "PendingEvaluation"
    world.submit(replace(one, pod_sets=workload("a", "cq", 3).pod_sets))
    assert world.admitted() == ["a"]


def test_workload_released_from_hold_moves_with_its_local_queue(world):
    one = workload("a", "cq", 9)
    world.engine.observe(WorkloadPending(one, on_hold=True), now=world.now)
    assert world.engine.settle(world.now).parked[0].reason == "OnHold"
    world.submit(one)
    world.engine.settle(world.now)
    world.tell(local_queue("cq", to="other"))
    world.engine.settle(world.now)
    assert world.engine.explain("a").cluster_queue == "other"
    world.engine.observe(QueueObjectDeleted("LocalQueue", "ns", "cq"), now=world.now)
    world.engine.settle(world.now)
    explanation = world.engine.explain("a")
    assert (explanation.cluster_queue, explanation.reason) == ("", "Misconfigured")


def test_workload_behind_a_deleted_strict_fifo_head_is_admitted():
    world = World(cluster_queue("cq", 3, queueingStrategy="StrictFIFO"), local_queue("cq"))
    world.submit(workload("large", "cq", 4), workload("small", "cq", 1, created=1))
    assert world.admitted() == []
    world.gone("large")
    assert world.admitted() == ["small"]


def test_admission_loaded_after_a_cycle_counts_at_once():
    world = World(cluster_queue("cq", 2, overQuota={"evictAfterSeconds": 7}), local_queue("cq"))
    assert world.admitted() == []
    world.engine.observe(WorkloadAdmitted(workload("a", "cq", 4), holding(4), at=0.0), now=world.now)
    world.submit(workload("b", "cq"))
    assert world.admitted() == []
    assert world.engine.wake_at() == world.now + 7
    gone = WorkloadAdmitted(workload("c", "cq", 4), holding(1), at=0.0, evicting=True)
    world.engine.observe(gone, now=world.now)
    assert world.engine.explain("c").state == "Evicting"
    assert world.engine.explain("a").state == "Admitted"


def test_usage_of_a_flavor_without_quota_is_overuse(world):
    assert world.admitted() == []
    world.engine.observe(WorkloadAdmitted(workload("a", "cq", 2), holding(2, "gone"), at=0.0), now=world.now)
    world.engine.settle(world.now)
    assert world.engine.overuse() == (Overuse("ClusterQueue", "cq", "gone", "cpu", 2000),)


def test_drain_does_not_evict_an_evicted_workload_again():
    drained = cluster_queue("cq", 3, stopPolicy="HoldAndDrain")
    world = World(cluster_queue("cq", 3), local_queue("cq"))
    world.submit(workload("a", "cq"), workload("b", "cq"))
    assert len(world.admitted()) == 2
    world.engine.observe(WorkloadEvicted("a"), now=world.now)
    world.engine.observe(WorkloadEvicted("nobody"), now=world.now)
    world.tell(drained)
    assert [evict.workload.uid for evict in world.engine.settle(world.now).evicted] == ["b"]
    assert not world.engine.settle(world.now).evicted


def test_usage_is_recorded_also_if_disabled_in_the_cluster_queue():
    world = World(
        cluster_queue("cq", 3),
        local_queue("cq"),
        engine=Engine(Policy(policies=(AdmissionFairSharing(half_life=10.0),))),
    )
    penalties = {"before": {"cpu": 0.5}}
    world.engine.observe(SharerUsed(("ns", "cq"), {"cpu": 1.0}, world.now, penalties), now=world.now)
    world.submit(workload("a", "cq", 2))
    assert world.admitted() == ["a"]
    used = consumption(world.engine)["ns", "cq"]
    assert (used.current, used.penalties) == ({"cpu": 2000}, penalties)
    world.now += 10
    world.gone("a")
    used = consumption(world.engine)["ns", "cq"]
    assert (used.current, used.penalties) == ({"cpu": 0}, {})
    assert used.consumed == {"cpu": pytest.approx(0.5 + 1.0 + 0.5)}


@pytest.mark.parametrize(
    ("kind", "name", "reason", "message"),
    [
        (
            "ResourceFlavor",
            "default",
            "Suspended",
            "ClusterQueue cq names ResourceFlavor default, which does not exist",
        ),
        ("AdmissionCheck", "budget", "Suspended", "ClusterQueue cq names AdmissionCheck budget, which does not exist"),
        ("ClusterQueue", "cq", "Misconfigured", "LocalQueue cq points to ClusterQueue cq, which does not exist"),
        ("LocalQueue", "cq", "Misconfigured", "LocalQueue ns/cq does not exist"),
        (
            "Cohort",
            "all",
            "ExceedsMaxQuota",
            "Needs 2 CPU (default), of which at most 1 can be used.",
        ),
    ],
)
def test_deletion_of_a_queue_object_changes_the_pending_reason(kind, name, reason, message):
    rule = {"admissionChecks": [{"name": "budget"}]}
    world = World(
        manifest("AdmissionCheck", "budget", {"controllerName": "example.com/budget"}),
        cohort("all", 4),
        cluster_queue("cq", 1, cohort="all", admissionChecksStrategy=rule),
        local_queue("cq"),
    )
    world.submit(workload("runs", "cq", 5))
    assert world.admitted() == ["runs"]
    world.submit(workload("w", "cq", 2))
    world.engine.settle(world.now)
    assert world.engine.explain("w").reason == "WaitingForQuota"
    namespace = "ns" if kind == "LocalQueue" else ""
    for other in ("never-was", name, name):
        world.engine.observe(QueueObjectDeleted(kind, namespace, other), now=world.now)
    world.engine.observe(QueueObjectDeleted("WorkloadPriorityClass", "", name), now=world.now)
    world.engine.settle(world.now)
    world.gone("runs")
    assert world.admitted() == []
    explanation = world.engine.explain("w")
    assert explanation.reason == reason
    assert explanation.message.startswith(message)


def test_workload_of_a_deleted_namespace_is_not_admitted(world):
    for name in ("ns", "ns", "never-was"):
        world.engine.observe(NamespaceChanged(name, None), now=world.now)
    world.submit(workload("a", "cq"))
    (park,) = world.engine.settle(world.now).parked
    assert park.message == "workload namespace doesn't match ClusterQueue selector"
