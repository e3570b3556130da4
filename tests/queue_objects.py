"""Queue objects that a test puts into the database before Sluice runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from admission.model.manifests import parse_documents, parse_manifest
from admission.store.audit_log import Author
from admission.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Mapping


def document(kind: str, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "sluice.dev/v1", "kind": kind, "metadata": metadata, "spec": spec}


async def create_objects(place: Store | str, *objects: str | Mapping[str, Any]) -> None:
    """Create queue objects, given as documents or as YAML. `place`: a store, or the URL of a migrated database."""
    if isinstance(place, str):
        async with Store.open(place) as store:
            await create_objects(store, *objects)
            return
    for each in objects:
        documents = [found.body for found in parse_documents(each, source="test")] if isinstance(each, str) else [each]
        for one in documents:
            await place.queues.create(parse_manifest(one), author=Author("test"))
