"""Conversion of pod sets to and from the JSON document that is stored with them in the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from admission.model.topology import SliceLayer, TopologyRequest
from admission.model.workload import ClaimReference, NodeRequirement, PodSet, Toleration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def pod_set_document(pod_set: PodSet) -> dict[str, Any]:
    """Return the fields of a pod set that have no database column of their own; empty ones are omitted."""
    document: dict[str, Any] = {"requests": dict(pod_set.requests)}
    if pod_set.node_selector:
        document["nodeSelector"] = dict(pod_set.node_selector)
    if pod_set.tolerations:
        document["tolerations"] = list(map(_toleration_document, pod_set.tolerations))
    if pod_set.affinity is not None:
        document["affinity"] = list(map(_term_document, pod_set.affinity))
    if pod_set.preferences:
        document["preferences"] = [[weight, _term_document(term)] for weight, term in pod_set.preferences]
    if (wanted := pod_set.topology) is not None:
        document["topology"] = [wanted.required, wanted.preferred, wanted.unconstrained, list(map(list, wanted.layers))]
    if pod_set.group:
        document["group"] = pod_set.group
    if pod_set.optional:
        document["optional"] = pod_set.optional
    if pod_set.learned:
        document["learned"] = dict(pod_set.learned)
    if pod_set.claims:
        document["claims"] = list(map(list, pod_set.claims))
    if pod_set.devices:
        document["devices"] = dict(pod_set.devices)
    if pod_set.shared:
        document["shared"] = dict(pod_set.shared)
    return document


def pod_set(row: Mapping[str, Any]) -> PodSet:
    """Return the pod set of a database row with `name`, `count`, `min_count`, and the document as `spec`."""
    spec = row["spec"]
    affinity = spec.get("affinity")
    return PodSet(
        name=row["name"],
        count=row["count"],
        min_count=row["min_count"],
        requests=spec["requests"],
        node_selector=spec.get("nodeSelector", {}),
        tolerations=tuple(Toleration(*fields) for fields in spec.get("tolerations", ())),
        affinity=None if affinity is None else tuple(map(_term, affinity)),
        preferences=tuple((weight, _term(term)) for weight, term in spec.get("preferences", ())),
        group=spec.get("group", ""),
        topology=_topology(spec["topology"]) if "topology" in spec else None,
        optional=tuple(spec.get("optional", ())),
        learned=spec.get("learned", {}),
        claims=tuple(ClaimReference(*fields) for fields in spec.get("claims", ())),
        devices=spec.get("devices", {}),
        shared=spec.get("shared", {}),
    )


def _toleration_document(toleration: Toleration) -> list[Any]:
    limit = [] if toleration.toleration_seconds is None else [toleration.toleration_seconds]
    return [toleration.key, toleration.operator, toleration.value, toleration.effect, *limit]


def _term_document(term: Sequence[NodeRequirement]) -> list[list[Any]]:
    return [[each.key, each.operator, each.values] for each in term]


def _term(document: Sequence[Sequence[Any]]) -> tuple[NodeRequirement, ...]:
    return tuple(NodeRequirement(key, operator, tuple(values)) for key, operator, values in document)


def _topology(fields: Sequence[Any]) -> TopologyRequest:
    required, preferred, unconstrained, layers = fields
    return TopologyRequest(required, preferred, unconstrained, tuple(SliceLayer(*layer) for layer in layers))
