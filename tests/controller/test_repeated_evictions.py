"""Evictions of workloads that are admitted and evicted again and again are counted, whatever their cause."""

from __future__ import annotations

from admission.controller.state.metrics import LeaderMetrics
from admission.model.workload import Workload
from admission.store.records import Changes, State, Transition, WorkloadRecord


def evict(metrics: LeaderMetrics, uid: str, at: float, reason: str = "Preempted") -> None:
    workload = Workload(uid=uid, namespace="team-a", name=uid, queue="batch", priority=0, created=0.0, pod_sets=())
    record = WorkloadRecord(workload=workload, state=State.EVICTING, queued_at=at, evict_reason=reason)
    transition = Transition(uid, at, State.EVICTING, reason, "")
    metrics.committed(Changes(workloads=(record,), transitions=(transition,)))


def test_third_eviction_within_an_hour_is_a_repetition():
    metrics = LeaderMetrics()
    for at in (0, 1, 2, 3):
        evict(metrics, "again", at, reason="Preempted" if at else "PodsReadyTimeout")
    evict(metrics, "other", 3)
    assert metrics.evicted_again == 2
    evict(metrics, "again", 3602)
    assert metrics.evicted_again == 2, "one other eviction is left in the hour before"
