"""Documents of workloads, in the form of Kueue's `Workload`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.api.documents.conditions import conditions, timestamp
from admission.api.documents.workload_names import workload_name
from admission.api.registry import API_VERSION, WORKLOADS
from admission.model.quantity import format_amount
from admission.model.workload import LOCAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from admission.api.http.responses import Document
    from admission.model.workload import Admission, PodSet, Workload
    from admission.store.records import CheckRecord, Order, WorkloadRecord


def workload_document(
    record: WorkloadRecord,
    *,
    pod_sets: list[Document],
    order: Order | None = None,
    checks: Iterable[CheckRecord] = (),
    now: float,
) -> Document:
    """Return the document of a workload.

    record: as last committed by the leader.
    pod_sets: its `pod_set_documents`, which workloads of one shape share.
    order: changes by users and admins (queue, priority, hold ...), which the leader may not have processed yet.
    checks: states of its admission checks.
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
        "status": _status(record, checks, now),
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


def _status(record: WorkloadRecord, checks: Iterable[CheckRecord], now: float) -> Document:
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
    if check_states := [_check(check) for check in checks]:
        status["admissionChecks"] = check_states
    if record.requeues or record.not_before is not None:
        at = {} if record.not_before is None else {"requeueAt": timestamp(record.not_before)}
        status["requeueState"] = {"count": record.requeues, **at}
    if record.past_seconds:
        status["accumulatedPastExecutionTimeSeconds"] = int(record.past_seconds)
    return status


def _check(check: CheckRecord) -> Document:
    document: Document = {
        "name": check.name,
        "state": check.state,
        "message": check.message,
        "lastTransitionTime": timestamp(check.at),
        "retryCount": check.retries,
    }
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
