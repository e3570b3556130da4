"""Format of scenarios and their results: plain JSON, with objects as kubectl prints them."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from admission.model.manifests import parse_manifest
from admission.model.quantity import format_amount, parse_quantity
from admission.model.topology_documents import topology_document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from admission.model.queues import QueueObject
    from admission.model.workload import Admission, PodSetAssignment

Case = dict[str, Any]
"""A scenario, or its result, as a JSON document."""

_QUEUE_OBJECTS = (
    "topologies",
    "resourceFlavors",
    "admissionChecks",
    "cohorts",
    "clusterQueues",
    "localQueues",
    "budgets",
    "reservations",
)


def queue_objects(
    document: Mapping[str, Any], parse: Callable[[Mapping[str, Any]], QueueObject] = parse_manifest
) -> Iterator[QueueObject]:
    """Yield the queue objects of a scenario, each kind before the kinds that name it; objects without name are skipped.

    `parse` converts one manifest to an object. Raises InvalidObject.
    """
    for field in _QUEUE_OBJECTS:
        for manifest in document.get(field) or ():
            if (manifest.get("metadata") or {}).get("name"):
                yield parse(manifest)


def key_of(manifest: Mapping[str, Any]) -> str:
    """Return `namespace/name` of an object."""
    metadata = manifest["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"


def admission_document(admission: Admission) -> Case:
    """Return an admission in the form of `status.admission` of a Kueue Workload."""
    return {
        "clusterQueue": admission.cluster_queue,
        "podSetAssignments": [_assignment_document(pod_set) for pod_set in admission.pod_sets],
    }


def _assignment_document(pod_set: PodSetAssignment) -> Case:
    document: Case = {
        "count": pod_set.count,
        "flavors": dict(pod_set.flavors),
        "name": pod_set.name,
        "resourceUsage": {resource: format_amount(resource, amount) for resource, amount in pod_set.usage.items()},
    }
    if pod_set.topology is not None:
        document["topologyAssignment"] = topology_document(pod_set.topology)
    if pod_set.delayed:
        document["delayedTopologyRequest"] = "Pending" if pod_set.topology is None else "Ready"
    return document


def seconds(timestamp: str | None) -> float:
    """Convert an RFC 3339 time to seconds since the epoch; 0 for none."""
    return 0.0 if not timestamp else datetime.fromisoformat(timestamp).timestamp()


def timestamp(at: float) -> str:
    """Convert seconds since the epoch to an RFC 3339 time, in whole seconds."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def decimal(value: float) -> str:
    """Format a double as the shortest decimal that represents it, without an exponent."""
    return "+Inf" if value == math.inf else format(Decimal(repr(value)).normalize(), "f")


def natural(amounts: Mapping[str, Any]) -> dict[str, float]:
    """Convert quantities to floats, in cores, bytes and devices."""
    return {resource: float(parse_quantity(value)) for resource, value in amounts.items()}


_DURATION = re.compile(r"([0-9.]+)(ns|us|ms|s|m|h)")
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float:
    """Convert a Go duration such as `1h30m` to seconds."""
    return sum(float(number) * _UNITS[unit] for number, unit in _DURATION.findall(text))
