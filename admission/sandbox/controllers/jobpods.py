"""Pods of a Job: construction from the template, failure counts, backoff, and choice of pods to delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from admission.sandbox.clock import parse_rfc3339
from admission.sandbox.controllers.base import condition, is_ready, owner_reference

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.sandbox.apiserver.objects import Object

TRACKING = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURES = "batch.kubernetes.io/job-index-ignored-failure-count"

# Seconds before a failed pod is replaced: 10 after the first failure, doubled with each further one, at most 600.
_BACKOFF = 10.0
_MAX_BACKOFF = 600.0


def make_pod(job: Object, index: int | None, failures: tuple[int, int] | None) -> Object:
    """Return a pod from the Job's template, with a completion index if the Job is Indexed.

    `failures` are the counted and the ignored failures of the index so far, recorded only with backoffLimitPerIndex.
    """
    template: Object = orjson.loads(orjson.dumps(job["spec"]["template"]))
    source, spec = template.get("metadata", {}), template["spec"]
    labels, annotations = source.get("labels", {}), source.get("annotations", {})
    name = base = job["metadata"]["name"]
    if index is not None:
        base = f"{name}-{index}"
        labels[INDEX] = annotations[INDEX] = str(index)
        spec["hostname"] = base
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            _add_index_variable(container)
    if failures is not None:
        annotations[FAILURES] = str(failures[0])
        if failures[1]:
            annotations[IGNORED_FAILURES] = str(failures[1])
    metadata: Object = {"generateName": f"{base}-", "labels": labels, "finalizers": [TRACKING]}
    if annotations:
        metadata["annotations"] = annotations
    metadata["ownerReferences"] = [owner_reference(job)]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _add_index_variable(container: Object) -> None:
    env = container.setdefault("env", [])
    if all(variable["name"] != "JOB_COMPLETION_INDEX" for variable in env):
        source = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}
        env.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": source})


def is_tracked(pod: Object) -> bool:
    """Return whether the pod has the tracking finalizer: it is not counted in the Job's status yet."""
    return TRACKING in (pod["metadata"].get("finalizers") or ())


def index_of(pod: Object) -> int | None:
    """Return the completion index of the pod, None if it has none."""
    return _parse_number((pod["metadata"].get("annotations") or {}).get(INDEX, ""))


def failures_of(pod: Object) -> tuple[int, int]:
    """Return the counted and the ignored failures of the pod's index before this pod."""
    annotations = pod["metadata"].get("annotations") or {}
    return _parse_number(annotations.get(FAILURES, "")) or 0, _parse_number(annotations.get(IGNORED_FAILURES, "")) or 0


def _parse_number(text: str) -> int | None:
    """Parse an annotation, which users may have changed; None if it is no number of at most ten digits."""
    return int(text) if text.isdecimal() and len(text) <= 10 else None


def ended_at(pod: Object) -> float:
    """Return when a pod ended: its last container's end, else when it became unready or was deleted."""
    metadata, statuses = pod["metadata"], pod.get("status", {}).get("containerStatuses") or ()
    ends = [status.get("state", {}).get("terminated", {}).get("finishedAt") for status in statuses]
    if ends and all(ends):
        return max(map(parse_rfc3339, ends))
    ready = condition(pod, "Ready")
    if ready is not None and ready["status"] == "False" and ready.get("lastTransitionTime"):
        return parse_rfc3339(ready["lastTransitionTime"])
    if "deletionTimestamp" in metadata:
        grace: int = metadata.get("deletionGracePeriodSeconds", 0)
        return parse_rfc3339(metadata["deletionTimestamp"]) - grace
    return parse_rfc3339(metadata["creationTimestamp"])


def backoff(failures: int) -> float:
    """Return the seconds to wait after this number of consecutive failures."""
    return min(_BACKOFF * 2.0 ** min(failures - 1, 10), _MAX_BACKOFF) if failures else 0.0


def surplus(job: Object, active: list[Object], count: int) -> list[Object]:
    """Return the active pods to delete: `count`, or more if more have excess or duplicate indexes."""
    if job["spec"].get("completionMode") != "Indexed":
        return sorted(active, key=retention_rank)[:count]
    seen: set[int] = set()
    kept, removed = [], []
    for pod in sorted(active, key=retention_rank, reverse=True):
        index = index_of(pod)
        if index is None or index >= job["spec"]["completions"] or index in seen:
            removed.append(pod)
        else:
            seen.add(index)
            kept.append(pod)
    kept.reverse()
    return [*removed, *kept[: max(0, count - len(removed))]]


def retention_rank(pod: Object) -> tuple[bool, bool, bool, float]:
    """Return a sort key: unbound, pending, unready and young pods are deleted first (upstream's ActivePods)."""
    running = pod.get("status", {}).get("phase") == "Running"
    created = parse_rfc3339(pod["metadata"]["creationTimestamp"])
    return "nodeName" in pod["spec"], running, is_ready(pod), -created


def missing_indexes(job: Object, taken: Iterable[int], count: int) -> list[int]:
    """Return the first `count` completion indexes that are not in `taken`."""
    occupied = set(taken)
    found: list[int] = []
    for index in range(job["spec"]["completions"]):
        if len(found) == count:
            break
        if index not in occupied:
            found.append(index)
    return found
