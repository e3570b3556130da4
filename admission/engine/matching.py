"""Match of pods with the nodes of a flavor: taints and tolerations, node selector, required node affinity.

Of node selector and affinity only keys among the flavor's own nodeLabels count, as in Kueue's `flavorSelector`: about
other labels of the nodes the flavor says nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.model import sentences

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.model.queues import FlavorToleration, ResourceFlavor, Taint
    from admission.model.topology import NodeTaint
    from admission.model.workload import NodeRequirement, PodSet, Toleration


def elsewhere(flavor: ResourceFlavor, cluster: str, clusters: Mapping[str, Mapping[str, str]]) -> str:
    """Return why workloads of a cluster do not get the flavor: it is in other clusters; "" if it is in that one.

    `clusters`: the labels of the clusters that have joined, by name.
    """
    spec = flavor.spec
    if spec.topology_name is not None and cluster != spec.cluster:
        return sentences.in_other_clusters(flavor.name, [spec.cluster], cluster)
    if spec.clusters and cluster not in spec.clusters:
        return sentences.in_other_clusters(flavor.name, spec.clusters, cluster)
    selector = spec.cluster_selector
    if selector is not None and not selector.matches(clusters.get(cluster, {})):
        named = sorted(name for name, labels in clusters.items() if selector.matches(labels))
        return sentences.in_other_clusters(flavor.name, named, cluster)
    return ""


def mismatch(flavor: ResourceFlavor, pod_set: PodSet) -> str:
    """Return why the pods cannot run on the flavor's nodes, as Kueue's message; "" if they can."""
    taint = _untolerated(flavor, pod_set)
    if taint is not None:
        return f"untolerated taint {{{taint.key} {taint.value} {taint.effect} <nil>}} in flavor {flavor.name}"
    if not _selected(flavor.spec.node_labels, pod_set):
        return f"flavor {flavor.name} doesn't match node affinity"
    return ""


def obstacle(flavor: ResourceFlavor, pod_set: PodSet) -> str:
    """Return why the pods cannot run on the flavor's nodes, as Sluice's message with the taint or label.

    "" if they can.
    """
    taint = _untolerated(flavor, pod_set)
    if taint is not None:
        value = f"={taint.value}" if taint.value else ""
        return sentences.untolerated(flavor.name, f"{taint.key}{value}:{taint.effect}")
    labels = flavor.spec.node_labels
    for key, wanted in pod_set.node_selector.items():
        if labels.get(key, wanted) != wanted:
            return sentences.other_label(flavor.name, key, labels[key], wanted)
    if not _selected(labels, pod_set):
        named = {requirement.key for term in pod_set.affinity or () for requirement in term}
        return sentences.no_affinity(flavor.name, [f"{key}={labels[key]}" for key in labels if key in named])
    return ""


def _untolerated(flavor: ResourceFlavor, pod_set: PodSet) -> Taint | None:
    """Return the flavor's first taint that neither the pods nor the flavor's own tolerations tolerate."""
    tolerations: tuple[Toleration | FlavorToleration, ...] = (*pod_set.tolerations, *flavor.spec.tolerations)
    return next(
        (
            taint
            for taint in flavor.spec.node_taints
            if taint.effect != "PreferNoSchedule" and not any(tolerates(each, taint) for each in tolerations)
        ),
        None,
    )


def tolerates(toleration: Toleration | FlavorToleration, taint: Taint | NodeTaint) -> bool:
    """Whether a toleration tolerates a taint of a flavor or of a node."""
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
    # Terms are alternatives, and a term without remaining requirements matches any node.
    if not all(terms):
        return True
    return any(all(met(requirement, labels[requirement.key]) for requirement in term) for term in terms)


def met(requirement: NodeRequirement, value: str) -> bool:
    """Whether a label that exists meets a requirement of node affinity."""
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return True
        case "Gt" | "Lt":
            return _compared(requirement, value)
        case _:  # DoesNotExist: the label exists
            return False


def _compared(requirement: NodeRequirement, value: str) -> bool:
    try:
        have, bound = int(value), int(requirement.values[0])
    except (ValueError, IndexError):
        return False
    return have > bound if requirement.operator == "Gt" else have < bound
