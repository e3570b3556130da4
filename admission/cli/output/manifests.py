"""All queue objects as manifests, of Kueue's group or of Sluice's, for version control or for moving."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from admission.cli.arguments.files import in_order
from admission.model.manifests import API_VERSION, to_manifest
from admission.model.queues import QUEUE_OBJECTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.client import Sluice
    from admission.client.transport import Document
    from admission.model.queues import QueueObject

_VERSIONS = {"sluice": API_VERSION, "kueue": "kueue.x-k8s.io/v1beta2"}
_METADATA = ("name", "namespace", "labels", "annotations")
_EXTENSIONS = {"ClusterQueue": ("overQuota",)}
"""By kind: fields of a spec that Kueue has not."""


async def manifests(sluice: Sluice, group: Literal["kueue", "sluice"], note: Callable[[str], None]) -> list[Document]:
    """Each object behind those that it names, without what is the server's; `note` is told what Kueue cannot have."""
    found: list[QueueObject] = []
    for model in QUEUE_OBJECTS:
        found += [item async for item in sluice.collection(model).list()]
    documents = [_manifest(item, group) for item in in_order(found)]
    if group == "kueue":
        for document in documents:
            _drop_extensions(document, note)
    return documents


def _manifest(item: QueueObject, group: str) -> Document:
    document = to_manifest(item, _VERSIONS[group])
    metadata = {key: document["metadata"][key] for key in _METADATA if key in document["metadata"]}
    return document | {"metadata": metadata}


def _drop_extensions(document: Document, note: Callable[[str], None]) -> None:
    for field in _EXTENSIONS.get(document["kind"], ()):
        if document.get("spec", {}).pop(field, None) is not None:
            name = document["metadata"]["name"]
            note(f"{document['kind']} {name}: spec.{field} is left out; Kueue does not know it")
