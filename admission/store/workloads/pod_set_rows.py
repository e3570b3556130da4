"""Pod sets as rows; equal ones become one object."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import orjson

from admission.model.pod_set_documents import pod_set_document

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.model.workload import PodSet
    from admission.store.records import Document


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
