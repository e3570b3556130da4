"""All queue objects as manifests of Kueue's or Sluice's API group, for version control or migration."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Literal

from admission.cli.arguments.object_files import in_dependency_order
from admission.model.manifests import API_VERSION, to_manifest
from admission.model.queues import QUEUE_OBJECTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from admission.client import Sluice
    from admission.client.transport import Document
    from admission.model.queues import QueueObject

_VERSIONS = {"sluice": API_VERSION, "kueue": "kueue.x-k8s.io/v1beta2"}
_METADATA = ("name", "namespace", "labels", "annotations")
"""Metadata that users write; the rest is set by the server."""
_EXTENSIONS = {
    "ClusterQueue": ("overQuota", "timeLimits", "preemptionProtection", "aging", "calendar"),
    "Cohort": ("calendar",),
    "LocalQueue": ("timeLimits",),
}
"""Kind -> fields of the spec that Kueue does not have."""


async def manifests(sluice: Sluice, group: Literal["kueue", "sluice"], note: Callable[[str], None]) -> list[Document]:
    """Return the manifests of all queue objects, without status and server-set metadata, in the order to apply them.

    `note` receives a message about each field that is left out because Kueue does not have it.
    """
    found: list[QueueObject] = []
    for model in QUEUE_OBJECTS:
        found += [item async for item in sluice.collection(model).list()]
    documents = [_manifest(item, group) for item in in_dependency_order(found)]
    if group == "kueue":
        for document in documents:
            _drop_extensions(document, note)
    return documents


def _manifest(item: QueueObject, group: str) -> Document:
    document = to_manifest(item, _VERSIONS[group])
    metadata = {key: document["metadata"][key] for key in _METADATA if key in document["metadata"]}
    return without_current_quota(document) | {"metadata": metadata}


def without_current_quota(document: Document) -> Document:
    """Return a manifest without what a calendar has Sluice write to it."""
    if not any("currentQuota" in quota for quota in _quotas(document)):
        return document
    copied: Document = deepcopy(document)
    for quota in _quotas(copied):
        quota.pop("currentQuota", None)
    return copied


def _quotas(document: Document) -> Iterator[Document]:
    for group in (document.get("spec") or {}).get("resourceGroups", ()):
        for flavor in group["flavors"]:
            yield from flavor["resources"]


def _drop_extensions(document: Document, note: Callable[[str], None]) -> None:
    for field in _EXTENSIONS.get(document["kind"], ()):
        if document.get("spec", {}).pop(field, None) is not None:
            name = document["metadata"]["name"]
            note(f"{document['kind']} {name}: spec.{field} is left out: Kueue has no such field")
    rules = [quota.pop("fromNodes", None) for quota in _quotas(document)]
    if any(rule is not None for rule in rules):
        note(f"{document['kind']} {document['metadata']['name']}: fromNodes is left out: Kueue's quota is a number")
