"""Documents of queue objects and workloads as the API returns them, assembled from the store; and warnings."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from admission.api.documents.workload_names import workload_name
from admission.api.kinds.all_kinds import KINDS
from admission.api.registry import API_VERSION, WORKLOADS
from admission.engine.vocabulary import (
    BEING_DELETED,
    CLUSTER_QUEUE_STOPPED,
    LOCAL_QUEUE_STOPPED,
    MISCONFIGURED,
    ON_HOLD,
    PENDING_EVALUATION,
    PODS_UNSCHEDULED,
    PREEMPTED,
    SUSPENDED,
)
from admission.model import sentences
from admission.model.manifests import to_manifest
from admission.model.quantity import format_amount
from admission.model.workload import LOCAL
from admission.store.records import LastEviction, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from admission.api.http.responses import Document
    from admission.api.kinds.descriptor import WarningContext
    from admission.model.queues import QueueObject
    from admission.model.workload import Admission, PodSet, Workload
    from admission.store.records import CheckRecord, Order, WorkloadRecord
    from admission.store.store import Store


def workload_document(
    record: WorkloadRecord,
    *,
    pod_sets: list[Document],
    order: Order | None = None,
    checks: Iterable[CheckRecord] = (),
    last_cluster: str = "",
    now: float,
) -> Document:
    """Return the document of a workload.

    record: as last committed by the leader.
    pod_sets: its `pod_set_documents`, which workloads of one shape share.
    order: changes by users and admins (queue, priority, hold ...), which the leader may not have processed yet.
    checks: states of its admission checks.
    last_cluster: where a finished one was dispatched to; empty: to none.
    now: Unix time (s).
    """
    workload = record.workload
    return {
        "apiVersion": API_VERSION,
        "kind": WORKLOADS.kind,
        "metadata": {
            "name": workload_name(workload),
            "namespace": workload.namespace,
            "uid": workload.uid,
            "resourceVersion": str(record.revision),
            "creationTimestamp": timestamp(workload.created),
            "labels": workload_labels(workload),
            "annotations": {"sluice.dev/submitted-by": workload.user} if workload.user else {},
            **_owner(workload),
        },
        "spec": _spec(record, pod_sets, order),
        "status": _status(record, checks, last_cluster, now),
    }


def pod_set_documents(pod_sets: Iterable[PodSet]) -> list[Document]:
    """Return `spec.podSets` of a workload."""
    return [_pod_set(pod_set) for pod_set in pod_sets]


def workload_labels(workload: Workload) -> dict[str, str]:
    """Return the labels of a workload, by which it can be selected."""
    return {"kueue.x-k8s.io/job-uid": workload.uid, "kueue.x-k8s.io/queue-name": workload.queue}


def _owner(workload: Workload) -> Document:
    owner = {"kind": workload.kind, "name": workload.name, "uid": workload.uid, "controller": True}
    return {"ownerReferences": [{"apiVersion": workload.api_version, **owner}]}


def _spec(record: WorkloadRecord, pod_sets: list[Document], order: Order | None) -> Document:
    workload = record.workload
    spec: Document = {
        "object": {"apiVersion": workload.api_version, "kind": workload.kind, "name": workload.name},
        "queueName": workload.queue,
        "priority": workload.priority,
        "podSets": pod_sets,
        "active": record.active,
        "hold": False,
    }
    if workload.cluster != LOCAL:
        spec["cluster"] = workload.cluster
    if workload.priority_class:
        spec["priorityClassName"] = workload.priority_class
    if workload.max_seconds is not None:
        spec["maximumExecutionTimeSeconds"] = workload.max_seconds
    if workload.user:
        spec["user"] = workload.user
    if order is not None:
        ordered = {"queueName": order.local_queue, "priority": order.priority, "active": order.active}
        spec |= {name: value for name, value in ordered.items() if value is not None}
        spec["hold"] = order.held
        if order.rank_priority is not None and order.rank_at is not None:
            spec["order"] = {"priority": order.rank_priority, "since": timestamp(order.rank_at)}
    return spec


def _pod_set(pod_set: PodSet) -> Document:
    document: Document = {"name": pod_set.name, "count": pod_set.count, "requests": _quantities(pod_set.requests)}
    if pod_set.shared:
        document["sharedRequests"] = _quantities(pod_set.shared)
    if pod_set.min_count is not None:
        document["minCount"] = pod_set.min_count
    return document


def _status(record: WorkloadRecord, checks: Iterable[CheckRecord], last_cluster: str, now: float) -> Document:
    status: Document = {
        "state": record.state.value,
        "clusterQueue": record.status_cluster_queue,
        "queuedAt": timestamp(record.queued_at),
        "conditions": conditions(record, now=now),
    }
    if record.finished_at is not None and (admitted := record.cleared_at or record.admitted_at) is not None:
        status["admittedAt"] = timestamp(admitted)
    if record.admission is not None:
        status["admission"] = _admission(record.admission)
    cluster = last_cluster if record.admission is None else record.admission.cluster
    if cluster:  # Kueue's name for the cluster that MultiKueue has chosen
        status["clusterName"] = cluster
    if check_states := [_check(check, record.admitted_at) for check in checks]:
        status["admissionChecks"] = check_states
    if record.requeues or record.not_before is not None:
        at = {} if record.not_before is None else {"requeueAt": timestamp(record.not_before)}
        status["requeueState"] = {"count": record.requeues, **at}
    if record.past_seconds:
        status["accumulatedPastExecutionTimeSeconds"] = int(record.past_seconds)
    return status


def _check(check: CheckRecord, admitted_at: float | None) -> Document:
    document: Document = {
        "name": check.name,
        "state": check.state,
        "message": check.message,
        "lastTransitionTime": timestamp(check.at),
        "retryCount": check.retries,
    }
    if admitted_at is not None:
        since = datetime.fromtimestamp(admitted_at, UTC).isoformat(timespec="microseconds")
        document["quotaReservedAt"] = since.replace("+00:00", "Z")
    if check.requeue_after_seconds is not None:
        document["requeueAfterSeconds"] = check.requeue_after_seconds
    if check.pod_set_updates:
        document["podSetUpdates"] = [
            update.model_dump(mode="json", by_alias=True, exclude_defaults=True) for update in check.pod_set_updates
        ]
    return document


def _admission(admission: Admission) -> Document:
    assignments = [
        {
            "name": assigned.name,
            "flavors": dict(assigned.flavors),
            "resourceUsage": _quantities(assigned.usage),
            "count": assigned.count,
        }
        for assigned in admission.pod_sets
    ]
    return {"clusterQueue": admission.cluster_queue, "podSetAssignments": assignments}


def _quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    return {resource: format_amount(resource, amount) for resource, amount in amounts.items()}


_RESTARTED: Final = {CLUSTER_QUEUE_STOPPED: "ClusterQueueRestarted", LOCAL_QUEUE_STOPPED: "LocalQueueRestarted"}
"""Kueue's reasons of Requeued, by the reason of an eviction from a stopped queue that was started again."""
_KEPT_OUT: Final = frozenset({SUSPENDED, ON_HOLD, MISCONFIGURED, BEING_DELETED})
"""Reasons of pending workloads that are not in the queue."""


def conditions(record: WorkloadRecord, *, now: float) -> list[Document]:
    """Return the conditions that follow from a workload's record. `now`: Unix time (s).

    Types: QuotaReserved, Admitted, PodsReady, Evicted, Preempted, Requeued, Finished.
    """
    found = _progress(record)
    if record.state is State.FINISHED:
        return found
    found += _readiness(record)
    eviction = _eviction(record)
    if eviction is None:
        return found
    evicted = record.state is not State.ADMITTED
    causes = [("Evicted", eviction.reason)]
    if eviction.reason == PREEMPTED:
        causes.append(("Preempted", eviction.preemption or PREEMPTED))
    for kind, reason in causes:
        if evicted:
            found.append(_condition(kind, True, reason, eviction.message, eviction.at))
        else:
            text = f"Previously: {eviction.message}"
            found.append(_condition(kind, False, "QuotaReserved", text, record.admitted_at))
    if record.state is State.PENDING:
        found.append(_requeued(record, eviction, now))
    return found


def _eviction(record: WorkloadRecord) -> LastEviction | None:
    """Return the last eviction, or None.

    Versions before evictions were recorded stored only the reason of one under way.
    """
    if record.eviction is not None or not record.evict_reason:
        return record.eviction
    return LastEviction(record.evict_reason, record.message, record.queued_at)


def _progress(record: WorkloadRecord) -> list[Document]:
    reserved = f"Quota reserved in ClusterQueue {record.cluster_queue}"
    since = record.admitted_at
    match record.state:
        case State.PENDING:
            reason = record.reason or PENDING_EVALUATION
            message = record.message or (sentences.NOT_TRIED if reason == PENDING_EVALUATION else "")
            found = [_condition("QuotaReserved", False, reason, message, record.queued_at)]
            if record.eviction is not None:
                text = "The workload has no reservation"
                found.append(_condition("Admitted", False, "NoReservation", text, record.queued_at))
            return found
        case State.ADMITTED if record.checks_pending:
            return [
                _condition("QuotaReserved", True, "QuotaReserved", reserved, since),
                _condition("Admitted", False, "UnsatisfiedAdmissionChecks", record.message, since),
            ]
        case State.ADMITTED:
            # A message about its pods belongs to PodsReady.
            message = record.message
            if (record.reason == PODS_UNSCHEDULED or not message) and record.admission is not None:
                message = sentences.admitted(record.workload, record.admission)
            return [
                _condition("QuotaReserved", True, "QuotaReserved", reserved, since),
                _condition("Admitted", True, "Admitted", message, record.cleared_at or since),
            ]
        case State.EVICTING:
            message = record.message if record.is_stop_hindered else sentences.BEING_STOPPED
            return [
                _condition("QuotaReserved", True, "QuotaReserved", reserved, since),
                _condition("Admitted", False, "Evicted", message, since),
            ]
        case State.FINISHED:
            return [_condition("Finished", True, record.outcome, record.message, record.finished_at)]


def _readiness(record: WorkloadRecord) -> list[Document]:
    if record.state is not State.ADMITTED:
        return []
    if record.reason == PODS_UNSCHEDULED:
        return [_condition("PodsReady", False, "WaitForStart", record.message, record.cleared_at)]
    if record.ready_at is None:
        return []
    if record.unready_at is None:
        return [_condition("PodsReady", True, "Started", sentences.PODS_READY, record.ready_at)]
    return [_condition("PodsReady", False, "WaitForRecovery", sentences.POD_LOST, record.unready_at)]


def _requeued(record: WorkloadRecord, eviction: LastEviction, now: float) -> Document:
    """Return the condition Requeued, as in Kueue: True once the workload is in the queue again."""
    if not record.active:
        return _condition("Requeued", False, "Deactivated", record.message, record.queued_at)
    if record.reason in _KEPT_OUT:
        is_stopped = record.reason == SUSPENDED and eviction.reason in _RESTARTED
        reason = eviction.reason if is_stopped else record.reason
        return _condition("Requeued", False, reason, record.message, record.queued_at)
    if record.not_before is not None and record.not_before > now:
        text = sentences.backing_off(record.not_before)
        return _condition("Requeued", False, eviction.reason, text, record.queued_at)
    reason = "BackoffFinished" if record.not_before is not None else _RESTARTED.get(eviction.reason, eviction.reason)
    if eviction.reason.startswith("Deactivated"):
        reason = "Reactivated"
    return _condition("Requeued", True, reason, sentences.REQUEUED, record.queued_at)


def _condition(kind: str, holds: bool, reason: str, message: str, at: float | None = None) -> Document:
    condition = {"type": kind, "status": "True" if holds else "False", "reason": reason, "message": message}
    return condition | ({} if at is None else {"lastTransitionTime": timestamp(at)})


def timestamp(seconds: float) -> str:
    """Format a Unix time as Kubernetes does: `2026-01-02T12:05:30Z`."""
    return _instant(int(seconds))


@lru_cache(maxsize=8192)
def _instant(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def documents(store: Store, objects: Sequence[QueueObject]) -> list[Document]:
    """Return queue objects of one kind as documents with status. The number of queries does not depend on theirs."""
    status = KINDS[objects[0].kind].status if objects else None
    if status is None:
        return [_manifest(item) for item in objects]
    inputs = await status.inputs(store, objects)
    return [_manifest(item) | {"status": status.render(item, each)} for item, each in zip(objects, inputs, strict=True)]


def _manifest(item: QueueObject) -> Document:
    document = to_manifest(item)
    if item.metadata.managed_fields:
        document["metadata"]["managedFields"] = [dict(entry) for entry in item.metadata.managed_fields]
    return document


async def workload_documents(store: Store, records: Iterable[WorkloadRecord], *, now: float) -> list[Document]:
    """Return workloads as documents, with the orders of admins and the states of admission checks.

    `now`: Unix time (s).
    """
    found = [*records]
    news = await store.orders.of(record.workload.uid for record in found if record.state is not State.FINISHED)
    orders = {order.uid: order for order in news.orders}
    checks: dict[str, list[CheckRecord]] = {}
    for check in news.checks:
        checks.setdefault(check.uid, []).append(check)
    ended = [record.workload.uid for record in found if record.state is State.FINISHED]
    clusters = await store.workloads.clusters_of(ended) if ended else {}
    # Workloads of one shape, as most of a page are, share one tuple of pod sets: each is rendered once.
    shapes = {id(record.workload.pod_sets): record.workload.pod_sets for record in found}
    rendered = {key: pod_set_documents(pod_sets) for key, pod_sets in shapes.items()}
    return [
        workload_document(
            record,
            pod_sets=rendered[id(record.workload.pod_sets)],
            order=orders.get(record.workload.uid),
            checks=checks.get(record.workload.uid, ()),
            last_cluster=next(iter(clusters.get(record.workload.uid, ())), ""),
            now=now,
        )
        for record in found
    ]


async def warnings(store: Store, written: QueueObject, context: WarningContext) -> list[str]:
    """Return warnings for the author of a valid object that does not work as written, or not before others exist."""
    warnings_of = KINDS[written.kind].warnings
    return [] if warnings_of is None else await warnings_of(store, written, context)


async def deletion_warnings(store: Store, deleted: Iterable[QueueObject]) -> list[str]:
    """Return warnings for the user who deletes these objects, also in a dry run."""
    by_kind: dict[str, list[QueueObject]] = {}
    for item in deleted:
        by_kind.setdefault(item.kind, []).append(item)
    texts: list[str] = []
    for kind, items in by_kind.items():
        warnings_of = KINDS[kind].deletion_warnings
        if warnings_of is not None:
            texts += await warnings_of(store, items)
    return texts
