"""Workloads, admissions and queue objects for the tests of the store."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from admission.model.queues import ClusterQueue, Cohort, LocalQueue, ResourceFlavor, WorkloadPriorityClass
from admission.model.workload import Admission, NodeRequirement, PodSet, PodSetAssignment, Toleration, Workload
from admission.store.records import Changes, Closed, Opened, State, WorkloadRecord

POD_SETS = (PodSet("main", 3, {"cpu": 1500, "memory": 2**30}),)
ELABORATE_POD_SETS = (
    PodSet(
        "driver",
        1,
        {"cpu": 500, "nvidia.com/gpu": 8},
        node_selector={"zone": "a"},
        tolerations=(Toleration("gpu", "Exists", "", "NoSchedule"), Toleration(operator="Exists")),
        affinity=((NodeRequirement("arch", "In", ("amd64", "arm64")), NodeRequirement("old", "DoesNotExist")), ()),
        group="together",
    ),
    PodSet("workers", 100, {}, min_count=10, affinity=()),
)


def workload(uid: str, **fields: Any) -> Workload:
    given: dict[str, Any] = {
        "namespace": "team-a", "name": f"job-{uid}", "queue": "main", "priority": 0, "created": 1_750_000_000.0,
        "pod_sets": POD_SETS,
    }  # fmt: skip
    return Workload(uid=uid, **(given | fields))


def pending(of: Workload, **fields: Any) -> WorkloadRecord:
    return WorkloadRecord(of, State.PENDING, queued_at=of.created, **fields)


def admission(amount: int = 4500, *, cluster_queue: str = "cq", flavor: str = "default") -> Admission:
    return Admission(cluster_queue, (PodSetAssignment("main", {"cpu": flavor}, {"cpu": amount}, 3),))


def admitted(of: Workload, holds: Admission, *, at: float) -> Changes:
    """Return the changes that a commit writes when a workload is admitted."""
    record = replace(pending(of), state=State.ADMITTED, cluster_queue=holds.cluster_queue, admitted_at=at)
    return Changes(workloads=(record,), opened=(Opened(of, holds, at),))


def requeued(of: Workload, *, at: float, reason: str = "Preempted") -> Changes:
    """Return the changes that a commit writes when an evicted workload has stopped."""
    return Changes(workloads=(pending(of),), closed=(Closed(of.uid, at, reason),))


def finished(of: Workload, *, at: float) -> Changes:
    record = replace(pending(of), state=State.FINISHED, finished_at=at, outcome="Succeeded")
    return Changes(workloads=(record,), closed=(Closed(of.uid, at, "Finished"),))


def flavor(name: str = "default") -> ResourceFlavor:
    return ResourceFlavor.model_validate({"metadata": {"name": name}})


def cohort(name: str, parent: str = "") -> Cohort:
    return Cohort.model_validate({"metadata": {"name": name}, "spec": {"parentName": parent}})


def cluster_queue(name: str = "cq", *, cpu: str = "10", flavor: str = "default", **metadata: Any) -> ClusterQueue:
    quota = {"name": flavor, "resources": [{"name": "cpu", "nominalQuota": cpu}]}
    spec = {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}], "namespaceSelector": {}}
    return ClusterQueue.model_validate({"metadata": {"name": name, **metadata}, "spec": spec})


def local_queue(name: str = "main", namespace: str = "team-a", *, leads_to: str = "cq") -> LocalQueue:
    return LocalQueue.model_validate(
        {"metadata": {"name": name, "namespace": namespace}, "spec": {"clusterQueue": leads_to}}
    )


def priority_class(name: str, value: int) -> WorkloadPriorityClass:
    return WorkloadPriorityClass.model_validate({"metadata": {"name": name}, "value": value})
