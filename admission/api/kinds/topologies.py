"""API descriptor of Topologies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.api.kinds.columns import Column
from admission.api.kinds.descriptor import ObjectKind
from admission.model.queues import Topology

if TYPE_CHECKING:
    from admission.api.http.responses import Document


def _levels(document: Document, now: float) -> object:
    del now
    return ",".join(level["nodeLabel"] for level in document["spec"]["levels"])


TOPOLOGY: Final = ObjectKind(
    Topology,
    columns=(Column("Levels", _levels, "Node labels of the levels, from the widest to the narrowest"),),
)
