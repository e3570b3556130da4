"""Fit of pods on nodes: requests, node selector, required node affinity and taints, as in upstream's scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from admission.model.quantity import amount

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.sandbox.apiserver.objects import Object

_BLOCKING = ("NoSchedule", "NoExecute")
_UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


@dataclass(frozen=True, slots=True)
class PodShape:
    """Scheduling requirements of a pod. Amounts are in the model's units (milli-CPU, bytes ...), with 1 of `pods`."""

    requests: tuple[tuple[str, int], ...]
    priority: int
    selector: Mapping[str, str]
    tolerations: tuple[Object, ...]
    terms: tuple[Object, ...] | None
    """Node selector terms, one of which must match; None: any node."""


def shape_key(spec: Object) -> bytes:
    """Return a key that is equal for pods with equal requirements."""
    resources = [container.get("resources") for container in spec["containers"]]
    starting = [(each.get("resources"), each.get("restartPolicy")) for each in spec.get("initContainers", ())]
    rest = [
        spec.get(name) for name in ("overhead", "priority", "nodeSelector", "tolerations", "affinity", "resourceClaims")
    ]
    return orjson.dumps((resources, starting, rest))


def shape_of(spec: Object) -> PodShape:
    """Return the requirements of a pod with this spec, which the API server has validated."""
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return PodShape(
        requests=tuple(_requests(spec).items()),
        priority=spec.get("priority", 0),
        selector=spec.get("nodeSelector", {}),
        tolerations=tuple(spec.get("tolerations", ())),
        terms=None if required is None else tuple(required["nodeSelectorTerms"]),
    )


def _requests(spec: Object) -> dict[str, int]:
    """Return a pod's requests: the sum of containers and sidecars, or the peak of init containers if that is higher."""
    peak: dict[str, int] = {}
    beside: dict[str, int] = {}
    for container in spec.get("initContainers", ()):
        own = _sum([container])
        if container.get("restartPolicy") == "Always":
            beside = _added(beside, own)
            own = {}
        peak = _highest(peak, _added(beside, own))
    needed = _highest(_added(_sum(spec["containers"]), beside), peak)
    overhead = {name: amount(name, value) for name, value in spec.get("overhead", {}).items()}
    return {**_added(needed, overhead), "pods": 1}


def _sum(containers: list[Object]) -> dict[str, int]:
    total: dict[str, int] = {}
    for container in containers:
        requests = container.get("resources", {}).get("requests", {})
        total = _added(total, {name: amount(name, value) for name, value in requests.items()})
    return total


def _added(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in (*one, *other)}


def _highest(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in (*one, *other)}


def allocatable_of(node: Object) -> dict[str, int]:
    """Return the allocatable amounts of a node by resource."""
    status = node.get("status", {})
    return {
        name: amount(name, value) for name, value in (status.get("allocatable") or status.get("capacity", {})).items()
    }


def fits(free: Mapping[str, int], shape: PodShape) -> bool:
    """Return whether the free amounts suffice for the requests."""
    return all(free.get(name, 0) >= needed for name, needed in shape.requests if needed)


def matches_node(shape: PodShape, node: Object) -> bool:
    """Return whether the pod could run on a node, apart from free amounts."""
    labels = node["metadata"].get("labels", {})
    if any(labels.get(key) != value for key, value in shape.selector.items()):
        return False
    if shape.terms is not None and not any(_matches_term(term, node) for term in shape.terms):
        return False
    taints = node["spec"].get("taints", ())
    if node["spec"].get("unschedulable"):
        taints = (*taints, _UNSCHEDULABLE)
    return all(_tolerated(taint, shape) for taint in taints if taint["effect"] in _BLOCKING)


def _tolerated(taint: Object, shape: PodShape) -> bool:
    return any(
        toleration.get("effect", taint["effect"]) == taint["effect"]
        and toleration.get("key", taint["key"]) == taint["key"]
        and (toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", ""))
        for toleration in shape.tolerations
    )


def _matches_term(term: Object, node: Object) -> bool:
    """Return whether a node selector term matches; one without requirements does not."""
    labels = node["metadata"].get("labels", {})
    fields = {"metadata.name": node["metadata"]["name"]}
    checks = [(rule, labels) for rule in term.get("matchExpressions", ())]
    checks += [(rule, fields) for rule in term.get("matchFields", ())]
    return bool(checks) and all(_matches_rule(rule, values) for rule, values in checks)


def _matches_rule(rule: Object, values: Mapping[str, str]) -> bool:
    found, wanted, operator = values.get(rule["key"]), rule.get("values", ()), rule["operator"]
    match operator:
        case "In":
            return found in wanted
        case "NotIn":
            return found not in wanted
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case _:  # Gt, Lt
            if found is None or not found.lstrip("-").isdecimal():
                return False
            return int(found) > int(wanted[0]) if operator == "Gt" else int(found) < int(wanted[0])
