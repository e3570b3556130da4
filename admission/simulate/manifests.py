"""Conversion of manifests to a scenario: queue objects, and Workloads or Jobs that all arrive in the first cycle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from admission.kinds.base import Conventions
from admission.kinds.job import MIN_PARALLELISM, JobKind
from admission.model.errors import InvalidObject
from admission.simulate.scenario import Case, timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from admission.model.manifests import Document

_FIELDS = {
    "Topology": "topologies",
    "ResourceFlavor": "resourceFlavors",
    "Cohort": "cohorts",
    "ClusterQueue": "clusterQueues",
    "LocalQueue": "localQueues",
    "Budget": "budgets",
    "Reservation": "reservations",
}
_KINDS = (*_FIELDS, "WorkloadPriorityClass", "Namespace", "Workload", "Job")
_GENERATED = ("Workload", "Job")
"""Kinds of which the name may be generated."""
_JOBS = JobKind(Conventions())


def from_manifests(documents: Iterable[Document]) -> Case:
    """Return the scenario of these manifests. Raises InvalidObject for a kind that scenarios do not support.

    Objects without creationTimestamp are created in the order of the manifests. With
    `generateName`, a number replaces the random suffix of the API server. Namespaces that are used but not among the
    manifests exist, without labels.
    """
    scenario: Case = {field: [] for field in (*_FIELDS.values(), "namespaces", "workloads")}
    priorities: dict[str, int] = {}
    items: list[Mapping[str, Any]] = []
    for document in documents:
        kind, body = document.body.get("kind"), _named(document.body, len(items) + 1)
        if kind not in _KINDS:
            hint = ", ".join(_KINDS)
            raise InvalidObject(
                [("kind", f'"{kind}" has no part in a simulation; use {hint}')], subject=document.source
            )
        _check(body, document.source)
        if kind in _FIELDS:
            scenario[_FIELDS[kind]].append(_placed(body) if kind == "LocalQueue" else body)
        elif kind == "WorkloadPriorityClass":
            priorities[body["metadata"]["name"]] = body["value"]
        elif kind == "Namespace":
            labels = body["metadata"].get("labels") or {}
            scenario["namespaces"].append({"name": body["metadata"]["name"], "labels": labels})
        else:
            items.append(_placed(body))
    scenario["workloads"] = [_workload(item, number, priorities) for number, item in enumerate(items)]
    known = {namespace["name"] for namespace in scenario["namespaces"]}
    used = {item["metadata"]["namespace"] for item in scenario["workloads"]}
    scenario["namespaces"] += [{"name": name, "labels": {}} for name in sorted(used - known)]
    return scenario


def _named(body: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    """Return a Job or Workload with its name, where that is generated: the number is the suffix."""
    metadata = body.get("metadata")
    if body.get("kind") not in _GENERATED or not isinstance(metadata, dict) or metadata.get("name"):
        return body
    prefix = metadata.get("generateName")
    return {**body, "metadata": {**metadata, "name": f"{prefix}{number}"}} if isinstance(prefix, str) else body


def _placed(body: Mapping[str, Any]) -> Case:
    metadata = dict(body.get("metadata") or {})
    metadata.setdefault("namespace", "default")
    return {**body, "metadata": metadata}


def _check(body: Mapping[str, Any], source: str) -> None:
    """Raise InvalidObject for faults that would break the conversion. Queue objects are validated when parsed."""
    faults = []
    name = (body.get("metadata") or {}).get("name")
    if not isinstance(name, str) or not name:
        faults.append(("metadata.name", "is missing"))
    kind = body["kind"]
    if kind == "WorkloadPriorityClass" and not isinstance(body.get("value"), int):
        faults.append(("value", "must be a number"))
    if kind in {"Workload", "Job"}:
        faults += _spec_faults(kind, body.get("spec"))
    if faults:
        raise InvalidObject(faults, subject=f"{source}: {kind} {name}" if name else source)


def _spec_faults(kind: str, spec: Any) -> list[tuple[str, str]]:
    if not isinstance(spec, dict):
        return [("spec", "is missing")]
    if kind == "Job":
        return [] if isinstance(spec.get("template"), dict) else [("spec.template", "is missing")]
    return [
        (f"spec.podSets[{number}].count", "must be a number")
        for number, pod_set in enumerate(spec.get("podSets") or ())
        if not isinstance(pod_set, dict) or not isinstance(pod_set.get("count", 1), int)
    ]


def _workload(body: Mapping[str, Any], number: int, priorities: Mapping[str, int]) -> Case:
    metadata = {"creationTimestamp": timestamp(number), **body["metadata"]}
    if body["kind"] == "Workload":
        spec = body["spec"]
        # Kueue also writes the priority value into the spec; a handwritten Workload may only name the class.
        priority_class = (spec.get("priorityClassRef") or {}).get("name") or spec.get("priorityClassName") or ""
        return {
            **body,
            "metadata": metadata,
            "spec": {"priority": priorities.get(priority_class, 0), **spec},
        }
    spec = body["spec"]
    parallelism = spec.get("parallelism", 1)
    labels = metadata.get("labels") or {}
    priority_class = next((labels[label] for label in _JOBS.conventions.priority_labels if label in labels), "")
    fewest = next(filter(None, map((metadata.get("annotations") or {}).get, MIN_PARALLELISM)), None)
    limit = next((labels[label] for label in _JOBS.conventions.time_labels if label in labels), "")
    pod_set = {
        "name": "main",
        "count": min(parallelism, spec.get("completions") or parallelism),
        "minCount": int(fewest) if fewest is not None and fewest.isdecimal() else None,
        "template": spec["template"],
    }
    return {
        "kind": "Workload",
        "metadata": metadata,
        "spec": {
            "queueName": _JOBS.queue_name({**body, "metadata": metadata}),
            "priority": priorities.get(priority_class, 0),
            "podSets": [pod_set],
            "maximumExecutionTimeSeconds": int(limit) if limit.isdecimal() else None,
        },
    }
