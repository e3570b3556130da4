"""Pod sets as JSON documents, and back; equal ones become one object."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import orjson

from admission.model.workload import PodSet, Requirement, Toleration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from admission.store.records import Document


def pod_set_document(pod_set: PodSet) -> Document:
    """What of a pod set has no column of its own; what is empty is left out."""
    document: Document = {"requests": dict(pod_set.requests)}
    if pod_set.node_selector:
        document["nodeSelector"] = dict(pod_set.node_selector)
    if pod_set.tolerations:
        document["tolerations"] = [[t.key, t.operator, t.value, t.effect] for t in pod_set.tolerations]
    if pod_set.affinity is not None:
        document["affinity"] = [[[r.key, r.operator, r.values] for r in term] for term in pod_set.affinity]
    if pod_set.group:
        document["group"] = pod_set.group
    return document


def pod_set(row: Mapping[str, Any]) -> PodSet:
    """The pod set of a row of the table `pod_sets`."""
    spec = row["spec"]
    affinity = spec.get("affinity")
    return PodSet(
        name=row["name"],
        count=row["count"],
        min_count=row["min_count"],
        requests=spec["requests"],
        node_selector=spec.get("nodeSelector", {}),
        tolerations=tuple(Toleration(*fields) for fields in spec.get("tolerations", ())),
        affinity=None
        if affinity is None
        else tuple(tuple(Requirement(key, op, tuple(values)) for key, op, values in term) for term in affinity),
        group=spec.get("group", ""),
    )


def shape_rows(pod_sets: Iterable[PodSet]) -> tuple[str, list[Document]]:
    """The name under which these pod sets are kept, the same for equal ones, and their rows."""
    rows: list[Document] = [
        {
            "position": position,
            "name": one.name,
            "count": one.count,
            "min_count": one.min_count,
            "spec": pod_set_document(one),
        }
        for position, one in enumerate(pod_sets)
    ]
    shape = hashlib.blake2b(orjson.dumps(rows, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()
    return shape, [{"shape": shape, **row} for row in rows]
