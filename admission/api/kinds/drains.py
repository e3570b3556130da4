"""API descriptor of Drains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.api.kinds.columns import Column, at
from admission.api.kinds.descriptor import ObjectKind
from admission.model.queues import Drain, ResourceFlavor

if TYPE_CHECKING:
    from admission.api.http.responses import Document
    from admission.api.kinds.descriptor import WarningContext
    from admission.store.store import Store


def _what(document: Document, now: float) -> object:
    del now
    spec = document["spec"]
    return ",".join([*spec.get("nodes", ()), *(f"flavor/{name}" for name in spec.get("flavors", ()))])


async def _warnings(store: Store, written: Drain, context: WarningContext) -> list[str]:
    del context
    known = (await store.queues.names(ResourceFlavor.kind))[ResourceFlavor.kind]
    return [f"there is no ResourceFlavor {name}" for name in written.spec.flavors if name not in known]


DRAIN: Final = ObjectKind(
    Drain,
    columns=(
        Column("Drained", _what, "Nodes and flavors on which nothing starts any more"),
        Column("Start", at("spec", "startTime"), "When the maintenance begins; empty: at once"),
        Column("Deadline", at("spec", "deadline"), "When workloads are evicted that still run there"),
        Column("Reason", at("spec", "reason"), "Why"),
    ),
    warnings=_warnings,
)
