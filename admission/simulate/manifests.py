"""A list of manifests as a scenario: queue objects, and Workloads or Jobs that all arrive in the first cycle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from admission.kinds.base import Conventions
from admission.kinds.job import JobKind
from admission.model.errors import InvalidObject
from admission.simulate.scenario import Case, timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from admission.model.manifests import Document

_FIELDS = {
    "ResourceFlavor": "resourceFlavors",
    "Cohort": "cohorts",
    "ClusterQueue": "clusterQueues",
    "LocalQueue": "localQueues",
}
_JOBS = JobKind(Conventions())


def from_manifests(documents: Iterable[Document]) -> Case:
    """The scenario. Raises InvalidObject for a kind that has no part in one.

    What has no creation time is taken to be created in the order of the file. Namespaces that are not in the file exist
    and have no labels.
    """
    scenario: Case = {field: [] for field in (*_FIELDS.values(), "namespaces", "workloads")}
    priorities: dict[str, int] = {}
    items: list[Mapping[str, Any]] = []
    for document in documents:
        kind, body = document.body.get("kind"), document.body
        if kind in _FIELDS:
            scenario[_FIELDS[kind]].append(_placed(body) if kind == "LocalQueue" else body)
        elif kind == "WorkloadPriorityClass":
            priorities[body["metadata"]["name"]] = body["value"]
        elif kind == "Namespace":
            labels = body["metadata"].get("labels") or {}
            scenario["namespaces"].append({"name": body["metadata"]["name"], "labels": labels})
        elif kind in {"Workload", "Job"}:
            items.append(_placed(body))
        else:
            hint = ", ".join((*_FIELDS, "WorkloadPriorityClass", "Namespace", "Workload", "Job"))
            raise InvalidObject(
                [("kind", f'"{kind}" has no part in a simulation; use {hint}')], subject=document.source
            )
    scenario["workloads"] = [_workload(item, number, priorities) for number, item in enumerate(items)]
    known = {namespace["name"] for namespace in scenario["namespaces"]}
    used = {item["metadata"]["namespace"] for item in scenario["workloads"]}
    scenario["namespaces"] += [{"name": name, "labels": {}} for name in sorted(used - known)]
    return scenario


def _placed(body: Mapping[str, Any]) -> Case:
    metadata = dict(body.get("metadata") or {})
    metadata.setdefault("namespace", "default")
    return {**body, "metadata": metadata}


def _workload(body: Mapping[str, Any], number: int, priorities: Mapping[str, int]) -> Case:
    metadata = {"creationTimestamp": timestamp(number), **body["metadata"]}
    if body["kind"] == "Workload":
        return {**body, "metadata": metadata}
    spec = body["spec"]
    parallelism = spec.get("parallelism", 1)
    labels = metadata.get("labels") or {}
    priority_class = next((labels[label] for label in _JOBS.conventions.priority_labels if label in labels), "")
    pod_set = {
        "name": "main",
        "count": min(parallelism, spec.get("completions") or parallelism),
        "template": spec["template"],
    }
    return {
        "kind": "Workload",
        "metadata": metadata,
        "spec": {
            "queueName": _JOBS.queue_name({**body, "metadata": metadata}),
            "priority": priorities.get(priority_class, 0),
            "podSets": [pod_set],
        },
    }
