"""Flavors and queues of all games, and simple Jobs that can run in them."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

QUEUE_LABELS = ("sluice.dev/queue-name", "kueue.x-k8s.io/queue-name")
FLOOR = "floor"
"""Name of the flavor, Topology and queues whose pods are placed by topology (see topology_documents)."""
BY_RACK = "by-rack"
"""The same on nodes of their own, by a Topology without hostnames."""
QUOTAS = {"a": 4, "b": 4, "calm": 2, FLOOR: 14, BY_RACK: 7}
"""Nominal quota of each ClusterQueue in the flavor main, or of those two in the one of that name, in CPUs."""
SPARE = {"a": 0, "b": 2, "calm": 0, FLOOR: 0, BY_RACK: 0}
"""Nominal quota of each ClusterQueue in the flavor spare, in CPUs."""
LOCAL_QUEUES = {
    ("team-a", "main"): "a",
    ("team-a", "side"): "b",
    ("team-b", "main"): "b",
    ("calm", "main"): "calm",
    ("team-a", FLOOR): FLOOR,
    ("team-b", FLOOR): FLOOR,
    ("team-a", BY_RACK): BY_RACK,
    ("team-b", BY_RACK): BY_RACK,
}
"""LocalQueue (namespace, name) to its ClusterQueue."""
_MIN_ONE = {"sluice.dev/job-min-parallelism": "1"}
PARTIAL = {"partial": _MIN_ONE, "partial indexed": {**_MIN_ONE, "sluice.dev/job-completions-equal-parallelism": "true"}}
"""Annotations of Jobs that may start with fewer pods, by mode; of an indexed one `completions` is lowered as well."""


def simple_job(
    name: str, queue: str, *, pods: int = 1, cpu: str = "1", seconds: float = 1, label: str = QUEUE_LABELS[0]
) -> Object:
    """Return a Job that can run: `pods` pods of `cpu` each, for `seconds` of the sandbox's clock."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {label: queue} if queue else {}},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "template": {
                "metadata": {"annotations": {"sandbox.sluice.dev/run-seconds": str(seconds)}},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu}}}],
                },
            },
        },
    }


def resource_flavor(name: str, spec: Object) -> Object:
    return {"apiVersion": "sluice.dev/v1", "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec}


def local_queue(namespace: str, name: str, queue: str) -> Object:
    metadata = {"namespace": namespace, "name": name}
    spec = {"clusterQueue": queue, "stopPolicy": "None"}
    return {"apiVersion": "sluice.dev/v1", "kind": "LocalQueue", "metadata": metadata, "spec": spec}


PRIORITIES = {"high": 9, "middle": 5}
"""Value of each WorkloadPriorityClass."""


def priority_class(name: str) -> Object:
    metadata = {"name": name}
    return {
        "apiVersion": "sluice.dev/v1",
        "kind": "WorkloadPriorityClass",
        "metadata": metadata,
        "value": PRIORITIES[name],
    }


def cluster_queue(name: str, cpu: int, cohort: str, policy: str, *, preempts: bool = False) -> Object:
    flavors = [_quotas(flavor_of(name), cpu, memory=2**63 - 1)]
    if spare := SPARE.get(name):
        flavors.append(_quotas("spare", spare, memory=0))
    spec = {
        "namespaceSelector": {},
        "stopPolicy": policy,
        "resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": flavors}],
        **({"cohortName": cohort} if cohort else {}),
        **({"preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}} if preempts else {}),
    }
    return {"apiVersion": "sluice.dev/v1", "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}


def flavor_of(queue: str) -> str:
    """Return the flavor of a ClusterQueue's quota, which is also the node pool."""
    return queue if queue in (FLOOR, BY_RACK) else "main"


def _quotas(flavor: str, cpu: int, *, memory: int) -> Object:
    amounts = [{"name": "cpu", "nominalQuota": cpu}, {"name": "memory", "nominalQuota": memory}]
    return {"name": flavor, "resources": amounts}
