"""Whether the nodes of a flavor would take a pod: taints, tolerations, node selector and required node affinity.

Only the keys among the flavor's own labels count: about all others the flavor says nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.model.queues import FlavorToleration, ResourceFlavor, Taint
    from admission.model.workload import PodSet, Requirement, Toleration


def mismatch(flavor: ResourceFlavor, pod_set: PodSet) -> str:
    """Why the pods cannot run on the flavor's nodes; "" if they can."""
    spec = flavor.spec
    for taint in spec.node_taints:
        if taint.effect == "PreferNoSchedule":
            continue
        tolerations: tuple[Toleration | FlavorToleration, ...] = (*pod_set.tolerations, *spec.tolerations)
        if not any(_tolerates(toleration, taint) for toleration in tolerations):
            return f"untolerated taint {{{taint.key} {taint.value} {taint.effect} <nil>}} in flavor {flavor.name}"
    if not _selected(spec.node_labels, pod_set):
        return f"flavor {flavor.name} doesn't match node affinity"
    return ""


def _tolerates(toleration: Toleration | FlavorToleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.operator in ("", "Equal") and toleration.value == taint.value


def _selected(labels: Mapping[str, str], pod_set: PodSet) -> bool:
    if any(labels.get(key, value) != value for key, value in pod_set.node_selector.items()):
        return False
    if pod_set.affinity is None:
        return True
    terms = [[requirement for requirement in term if requirement.key in labels] for term in pod_set.affinity]
    # A term of which nothing is left could match any node, and one term that matches is enough.
    if not all(terms):
        return True
    return any(all(_met(requirement, labels[requirement.key]) for requirement in term) for term in terms)


def _met(requirement: Requirement, value: str) -> bool:
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return True
        case "Gt" | "Lt":
            return _compared(requirement, value)
        case _:  # DoesNotExist: the label does
            return False


def _compared(requirement: Requirement, value: str) -> bool:
    try:
        have, bound = int(value), int(requirement.values[0])
    except (ValueError, IndexError):
        return False
    return have > bound if requirement.operator == "Gt" else have < bound
