"""API descriptor of ResourceFlavors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.api.kinds.columns import Column
from admission.api.kinds.descriptor import ObjectKind
from admission.model.queues import ResourceFlavor, Topology

if TYPE_CHECKING:
    from admission.api.http.responses import Document
    from admission.api.kinds.descriptor import WarningContext
    from admission.store.store import Store


def _labels(document: Document, now: float) -> object:
    del now
    return ",".join(f"{key}={value}" for key, value in document.get("spec", {}).get("nodeLabels", {}).items()) or None


async def _warnings(store: Store, written: ResourceFlavor, context: WarningContext) -> list[str]:
    del context
    name = written.spec.topology_name
    if name is None or name in (await store.queues.names(Topology.kind))[Topology.kind]:
        return []
    return [f"there is no Topology {name}; nothing is admitted before it is created"]


RESOURCE_FLAVOR: Final = ObjectKind(
    ResourceFlavor,
    columns=(Column("Node Labels", _labels, "Labels of the nodes of the flavor", wide=True),),
    warnings=_warnings,
)
