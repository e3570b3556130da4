"""A workload as Kueue's `Workload` object shows it, under a name that is unique in its namespace."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from admission.api.registry import API_VERSION, WORKLOADS
from admission.model.quantity import format_amount
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.api.replies import Document
    from admission.model.workload import Admission, PodSet, Workload
    from admission.store.records import WorkloadRecord

_HASH_LENGTH = 5


def workload_name(workload: Workload) -> str:
    """`job-NAME-HASH`, as Kueue builds it: two Jobs of one name that follow each other have two workloads."""
    digest = hashlib.blake2b(workload.uid.encode(), digest_size=8).hexdigest()
    return f"{workload.kind.lower()}-{workload.name}-{digest[:_HASH_LENGTH]}"


def object_name(name: str) -> str:
    """The name of the Kubernetes object in the middle of a `workload_name`; empty if it is none."""
    _, _, rest = name.partition("-")
    return rest[: -_HASH_LENGTH - 1]


def workload_document(record: WorkloadRecord) -> Document:
    """The whole object."""
    workload = record.workload
    priority_class = {"priorityClassName": workload.priority_class} if workload.priority_class else {}
    return {
        "apiVersion": API_VERSION,
        "kind": WORKLOADS.kind,
        "metadata": {
            "name": workload_name(workload),
            "namespace": workload.namespace,
            "uid": workload.uid,
            "resourceVersion": str(record.revision),
            "creationTimestamp": _time(workload.created),
            "annotations": {"sluice.dev/submitted-by": workload.user} if workload.user else {},
        },
        "spec": {
            "object": {"kind": workload.kind, "name": workload.name},
            "queueName": workload.queue,
            "priority": workload.priority,
            **priority_class,
            "podSets": [_pod_set(pod_set) for pod_set in workload.pod_sets],
        },
        "status": _status(record),
    }


def _pod_set(pod_set: PodSet) -> Document:
    document: Document = {"name": pod_set.name, "count": pod_set.count, "requests": _quantities(pod_set.requests)}
    if pod_set.min_count is not None:
        document["minCount"] = pod_set.min_count
    return document


def _status(record: WorkloadRecord) -> Document:
    status: Document = {
        "state": record.state.value,
        "clusterQueue": record.cluster_queue,
        "queuedAt": _time(record.queued_at),
        "conditions": _conditions(record),
    }
    if record.admission is not None:
        status["admission"] = _admission(record.admission)
    return status


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


def _conditions(record: WorkloadRecord) -> list[Document]:
    """Kueue's conditions, as far as the record tells them: of changes, only the last admission's time is kept."""
    conditions = _progress(record)
    if record.evict_reason and record.state in (State.PENDING, State.EVICTING):
        conditions.append(_condition("Evicted", True, record.evict_reason, record.message))
    return conditions


def _progress(record: WorkloadRecord) -> list[Document]:
    reserved = f"Quota reserved in ClusterQueue {record.cluster_queue}"
    since = record.admitted_at
    match record.state:
        case State.PENDING:
            return [_condition("QuotaReserved", False, record.reason or "PendingEvaluation", record.message)]
        case State.ADMITTED:
            return [
                _condition("QuotaReserved", True, "QuotaReserved", reserved, since),
                _condition("Admitted", True, "Admitted", "The workload is admitted", since),
            ]
        case State.EVICTING:
            return [
                _condition("QuotaReserved", True, "QuotaReserved", reserved, since),
                _condition("Admitted", False, "Evicted", "Its pods are being stopped"),
            ]
        case State.FINISHED:
            return [_condition("Finished", True, record.outcome, record.message, record.finished_at)]


def _condition(kind: str, holds: bool, reason: str, message: str, at: float | None = None) -> Document:
    condition = {"type": kind, "status": "True" if holds else "False", "reason": reason, "message": message}
    return condition | ({} if at is None else {"lastTransitionTime": _time(at)})


def _quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    return {resource: format_amount(resource, amount) for resource, amount in amounts.items()}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
