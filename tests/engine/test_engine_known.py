"""State of the engine under repeated events, deletions, backoffs, drains and evictions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from admission.engine import (
    AdmissionFairSharing,
    Engine,
    Policy,
    SharerUsed,
    WorkloadAdmitted,
    WorkloadEvicted,
    WorkloadPending,
)
from admission.model.workload import Admission, PodSetAssignment
from tests.engine.scenes import World, cluster_queue, local_queue, manifest, workload

BY_USAGE = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}
BY_PRIORITY = {"preemption": {"withinClusterQueue": "LowerPriority"}}


@pytest.fixture
def world():
    return World(cluster_queue("cq", 3), cluster_queue("other", 3), local_queue("cq"), local_queue("other"))


def holding(cpu: int, flavor: str = "default", queue: str = "cq") -> Admission:
    return Admission(queue, (PodSetAssignment("main", {"cpu": flavor}, {"cpu": 1000 * cpu}, 1),))


def pend_with_backoff(world: World, name: str, seconds: float) -> None:
    """Make a workload pending with a requeue backoff of so many seconds."""
    world.engine.observe(WorkloadPending(workload(name, "cq"), not_before=world.now + seconds), now=world.now)


def new_reasons(world: World) -> list[tuple[str, str]]:
    """Return (uid, message) of newly reported pending reasons, when nothing is admitted or evicted."""
    decisions = world.engine.settle(world.now)
    assert not decisions.admitted
    assert not decisions.evicted
    return [(park.workload.uid, park.message) for park in decisions.parked]


def victims(world: World) -> list[str]:
    return [evict.workload.uid for evict in world.engine.settle(world.now).evicted]


def test_repeated_event_of_a_preemptor_keeps_its_position():
    world = World(cluster_queue("cq", 1, **BY_PRIORITY), local_queue("cq"))
    preemptor = workload("preemptor", "cq", priority=5)
    world.submit(workload("victim", "cq"))
    assert world.admitted() == ["victim"]
    world.submit(preemptor)
    assert victims(world) == ["victim"]
    world.submit(preemptor, workload("urgent", "cq", priority=9))
    world.gone("victim")
    assert [admit.workload.uid for admit in world.engine.cycle(world.now).admitted] == ["preemptor"]


def test_pending_workload_preempts_after_its_priority_was_raised():
    """Nothing but the priority has changed: the pod sets are the same object."""
    world = World(cluster_queue("cq", 2, **BY_PRIORITY), local_queue("cq"))
    world.submit(workload("runs", "cq", 2))
    assert world.admitted() == ["runs"]
    waits = workload("waits", "cq", 1)
    world.submit(waits)
    assert victims(world) == []
    world.submit(replace(waits, priority=5))
    assert victims(world) == ["runs"]


def test_forgotten_admission_is_pending_again_at_time_zero(world):
    """Simulations start at time 0."""
    world.now = 0.0
    world.submit(workload("w", "cq"))
    (admit,) = world.engine.settle(world.now).admitted
    world.engine.forget(admit)
    assert world.admitted() == ["w"]


def test_deleted_workload_has_no_reported_reason(world):
    world.submit(workload("lost", "nowhere"), workload("w", "nowhere"))
    world.gone("lost")
    assert new_reasons(world) == [("w", "LocalQueue nowhere doesn't exist")]


def test_unchanged_reason_is_reported_once(world):
    world.submit(workload("w", "cq"))
    stopped = local_queue("cq", stopPolicy="Hold")
    world.tell(stopped)
    assert new_reasons(world) == [("w", "LocalQueue cq is stopped")]
    for _ in range(2):
        world.tell(stopped)
        assert new_reasons(world) == []


def test_missing_amount_is_reported_again_when_usage_grows():
    world = World(cluster_queue("cq", 3, queueingStrategy="StrictFIFO"), local_queue("cq"))
    world.submit(workload("runs", "cq", 2))
    assert world.admitted() == ["runs"]
    world.submit(workload("w", "cq", 2))
    ((_, before),) = new_reasons(world)
    assert before.endswith("1 more needed")
    world.engine.observe(WorkloadAdmitted(workload("late", "cq"), holding(1), at=0.0), now=world.now)
    ((_, after),) = new_reasons(world)
    assert after.endswith("2 more needed")


def test_wake_at_is_the_earliest_end_of_a_backoff(world):
    assert world.engine.wake_at() is None
    for name, seconds in (("late", 9.0), ("soon", 5.0)):
        pend_with_backoff(world, name, seconds)
        assert world.engine.wake_at() == world.now + seconds
    world.now += 5
    assert world.admitted() == ["soon"]
    assert world.engine.wake_at() == world.now + 4


def test_former_backoff_end_has_no_effect_after_deletion_hold_or_longer_backoff(world):
    for name in ("gone", "longer", "stopped"):
        pend_with_backoff(world, name, 5)
    world.gone("gone")
    pend_with_backoff(world, "longer", 9)
    world.engine.observe(WorkloadPending(workload("stopped", "cq"), on_hold=True), now=world.now)
    world.now += 5
    assert world.admitted() == []
    world.now += 4
    assert world.admitted() == ["longer"]


@pytest.mark.parametrize(
    ("stopped", "name", "place"),
    [
        (cluster_queue("cq", 3, stopPolicy="HoldAndDrain"), "ClusterQueue", "clusterqueue/cq"),
        (local_queue("cq", stopPolicy="HoldAndDrain"), "LocalQueue", "localqueue/cq -n ns"),
    ],
)
def test_drained_workload_is_evicted_once_and_other_workloads_stay(world, stopped, name, place):
    for uid, queue in (("stays", "other"), ("goes", "cq")):
        world.submit(workload(uid, queue))
        assert world.admitted() == [uid]
    world.tell(stopped)
    (evict,) = world.engine.settle(world.now).evicted
    assert evict.workload.uid == "goes"
    assert evict.message == (
        f"{name} cq is stopped (stopPolicy HoldAndDrain). The workload queues again when an admin opens the queue with "
        f"`sluice resume {place}`, or sets stopPolicy to None."
    )
    assert [world.engine.explain(uid).state for uid in ("stays", "goes")] == ["Admitted", "Evicting"]
    world.tell(local_queue("new", to="cq"))
    assert victims(world) == []


def test_over_quota_delay_ends_when_enough_workloads_are_evicted():
    rule = {"overQuota": {"evictAfterSeconds": 7}}
    world = World(cluster_queue("cq", 6, **rule), local_queue("cq"))
    world.submit(workload("leaves", "cq", 4), workload("stays", "cq", 2))
    assert len(world.admitted()) == 2
    world.tell(cluster_queue("cq", 3, **rule))
    world.admitted()
    assert world.engine.wake_at() == world.now + 7
    world.engine.observe(WorkloadEvicted("leaves"), now=world.now)
    world.admitted()
    assert world.engine.wake_at() is None


@pytest.mark.parametrize(("evicted", "flavor"), [(False, "spot"), (True, "default")])
def test_interrupted_flavor_search_starts_over_after_an_eviction(evicted, flavor):
    """`default` was taken by another workload, and more urgent workloads were tried before its search continued."""
    world = World(
        manifest("ResourceFlavor", "spot", {}),
        cluster_queue("cq", {"default": 2, "spot": 5}, cohort="all"),
        cluster_queue("other", 2, cohort="all"),
        *map(local_queue, ("cq", "other")),
    )
    world.engine.observe(WorkloadAdmitted(workload("leaves", "cq"), holding(1, "spot"), at=0.0), now=world.now)
    world.submit(workload("w", "cq", 3), workload("first", "other", 2))
    assert [admit.workload.uid for admit in world.engine.cycle(world.now).admitted] == ["first"]
    world.gone("first")
    world.submit(*(workload(f"urgent{cpu}", "cq", cpu, priority=9) for cpu in (98, 99)))
    if evicted:
        world.engine.observe(WorkloadEvicted("leaves"), now=world.now)
    (admit,) = world.engine.settle(world.now).admitted
    assert (admit.workload.uid, admit.admission.pod_sets[0].flavors) == ("w", {"cpu": flavor})


@pytest.mark.parametrize(
    ("policy", "scope"),
    [(Policy(), BY_USAGE), (Policy(policies=(AdmissionFairSharing(half_life=60.0),)), {})],
)
def test_usage_selects_targets_only_if_enabled_in_policy_and_cluster_queue(policy, scope):
    """Otherwise the workload admitted last is preempted first, although the other LocalQueue used more."""
    world = World(
        cluster_queue("cq", 2, **BY_PRIORITY, **scope),
        *(local_queue(name, to="cq") for name in "ab"),
        engine=Engine(policy),
    )
    world.engine.observe(SharerUsed(("ns", "a"), {"cpu": 9.0}, world.now), now=world.now)
    for name in "ab":
        world.now += 1
        world.submit(workload(f"of-{name}", name))
        assert world.admitted() == [f"of-{name}"]
    world.submit(workload("w", "b", priority=5))
    assert victims(world) == ["of-b"]


@pytest.mark.parametrize(("used", "first"), [(1.5, "plain"), (2.5, "weighed")])
def test_local_queue_without_a_weight_has_weight_one(used, first):
    world = World(
        cluster_queue("cq", 1, **BY_USAGE),
        local_queue("plain", to="cq"),
        local_queue("weighed", to="cq", fairSharing={"weight": "1"}),
        engine=Engine(Policy(policies=(AdmissionFairSharing(half_life=60.0),))),
    )
    for name, cpu in (("plain", used), ("weighed", 2.0)):
        world.engine.observe(SharerUsed(("ns", name), {"cpu": cpu}, world.now), now=world.now)
        world.submit(workload(f"of-{name}", name))
    assert world.admitted() == [f"of-{first}"]
