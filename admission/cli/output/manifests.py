"""Queue objects of the server as manifests: all of them for version control or migration; one beside that of a file."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Literal

from admission.cli.arguments.object_files import in_dependency_order
from admission.model.manifests import API_VERSION, to_manifest
from admission.model.names import NOTED_BY_OTHERS
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
    "ClusterQueue": (
        "overQuota",
        "backfill",
        "timeLimits",
        "preemptionProtection",
        "preemption.timeSlice",
        "aging",
        "calendar",
        "concurrentAdmissionPolicy.migration.constraints.minimumRuntime",
    ),
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


async def present(sluice: Sluice, item: QueueObject) -> Document | None:
    """Return the server's object of that name; None if there is none."""
    from admission.client import NotFound

    try:
        return await sluice.documents(item.plural).get(item.name, item.metadata.namespace or None)
    except NotFound:
        return None


def written(item: QueueObject, found: Document | None) -> Document:
    """Return what `sluice apply` writes in place of `found`: grants of a Budget stay if the manifest has none."""
    manifest = to_manifest(item)
    if item.kind == "Budget" and found is not None and (grants := found["spec"].get("grants")):
        manifest["spec"].setdefault("grants", grants)
    return manifest


def comparable(document: Document) -> Document:
    """Return the parts of an object that users write.

    Annotations in which kubectl keeps its own data are left out: `sluice apply` does not change them.
    """
    metadata = {key: document["metadata"][key] for key in _METADATA if document["metadata"].get(key)}
    annotations = {key: value for key, value in metadata.pop("annotations", {}).items() if key not in NOTED_BY_OTHERS}
    metadata |= {"annotations": annotations} if annotations else {}
    written_by_users = {key: value for key, value in document.items() if key != "status"}
    return without_current_quota(written_by_users) | {"metadata": metadata}


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
        *parents, last = field.split(".")
        inner = document.get("spec", {})
        for parent in parents:
            inner = inner.get(parent) or {}
        if inner.pop(last, None) is not None:
            name = document["metadata"]["name"]
            note(f"{document['kind']} {name}: spec.{field} is left out: Kueue has no such field")
    rules = [quota.pop("fromNodes", None) for quota in _quotas(document)]
    if any(rule is not None for rule in rules):
        note(f"{document['kind']} {document['metadata']['name']}: fromNodes is left out: Kueue's quota is a number")
