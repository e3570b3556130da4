"""Access to one resource as JSON documents, status included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import quote

from admission.client.errors import AlreadyExists, Conflict, NotFound
from admission.client.representations import Representation, Table
from admission.client.transport import APPLY_PATCH, MERGE_PATCH, PREFIX
from admission.client.watching import Watch, pages
from admission.model.names import LAST_APPLIED, NOTED_BY_OTHERS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from admission.client.transport import Document, Transport

Outcome: TypeAlias = Literal["created", "configured", "unchanged"]
"""Outcome of a `put`, in kubectl's words."""

_ATTEMPTS = 5
"""Attempts of a `put` while others create or delete the object at the same time."""
_METADATA = ("name", "namespace", "labels", "annotations")
"""Metadata that users write."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a write: `reason` is stored with it; `dry_run` writes nothing and returns the impact."""

    reason: str = ""
    dry_run: bool = False

    @property
    def params(self) -> dict[str, str]:
        """The query parameters."""
        return ({"reason": self.reason} if self.reason else {}) | ({"dryRun": "All"} if self.dry_run else {})


PLAIN = Options()


@dataclass(frozen=True, slots=True)
class Documents:
    """One resource by its plural name. `namespace` None: all namespaces, or a cluster-scoped resource."""

    transport: Transport
    plural: str

    def path(self, namespace: str | None = None, *names: str) -> str:
        """Return the path of the list, of an object, or of a subresource."""
        parts = ["namespaces", namespace, self.plural, *names] if namespace else [self.plural, *names]
        return "/".join([PREFIX, *(quote(part, safe="") for part in parts)])

    async def list(
        self, *, namespace: str | None = None, label_selector: str = "", field_selector: str = ""
    ) -> AsyncGenerator[Document]:
        """Yield all objects; pages are read as needed."""
        params = _selectors(label_selector, field_selector)
        async for page in pages(self.transport, self.path(namespace), params):
            for item in page["items"]:
                yield item

    async def table(
        self,
        *,
        namespace: str | None = None,
        name: str = "",
        label_selector: str = "",
        field_selector: str = "",
        objects: bool = False,
    ) -> Table:
        """Return the objects, or one by its name, as a table of the server; with `objects` each row has its object."""
        params = _selectors(label_selector, field_selector) | {"includeObject": "Object" if objects else "Metadata"}
        if name:
            path = self.path(namespace, name)
            return Table.of(await self.transport.request("GET", path, params=params, accept=Representation.ROWS))
        table = Table()
        async for page in pages(self.transport, self.path(namespace), params, representation=Representation.ROWS):
            table += Table.of(page)
        return table

    def watch(
        self,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        rows: bool = False,
    ) -> Watch:
        """Return a watch of the objects, or with `rows` of the rows of their table."""
        params = _selectors(label_selector, field_selector)
        return Watch(
            self.transport,
            self.path(namespace),
            params,
            representation=Representation.ROWS if rows else Representation.OBJECTS,
        )

    async def get(self, name: str, namespace: str | None = None, subresource: str = "", **params: str) -> Document:
        """Return one object, or a subresource of it."""
        path = self.path(namespace, name, *([subresource] if subresource else []))
        return await self.transport.request("GET", path, params=params)

    async def create(self, document: Document, *, options: Options = PLAIN) -> Document:
        """Create an object, and return it as written."""
        namespace = document["metadata"].get("namespace")
        return await self.transport.request("POST", self.path(namespace), params=options.params, body=document)

    async def replace(self, document: Document, *, options: Options = PLAIN) -> Document:
        """Replace the object with that name. Raises Conflict if a resourceVersion in it is not the current one."""
        metadata = document["metadata"]
        path = self.path(metadata.get("namespace"), metadata["name"])
        return await self.transport.request("PUT", path, params=options.params, body=document)

    async def put(self, document: Document, *, options: Options = PLAIN) -> tuple[Outcome, Document]:
        """Create the object, or replace the existing one, also if others write it at the same time.

        kubectl's annotation `last-applied-configuration` of the existing object is kept, and so are the grants of a
        Budget if the document has none.
        """
        metadata = document["metadata"]
        # Other metadata (uid, resourceVersion ...) belongs to the server that the document may have been read from.
        kept = {key: value for key, value in metadata.items() if key in _METADATA}
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                found = await self._found(metadata["name"], metadata.get("namespace"))
                wanted = document | {"metadata": kept | _annotations(kept, found)}
                if found is None:
                    return "created", await self.create(wanted, options=options)
                written = await self.replace(_with_grants(wanted, found), options=options)
            except (AlreadyExists, Conflict, NotFound):
                # Another client created, changed or deleted it since it was read: read it again.
                if attempt == _ATTEMPTS:
                    raise
            else:
                same = written["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]
                return "unchanged" if same else "configured", written
        raise AssertionError("the last attempt returns or raises")

    async def apply(
        self, document: Document, *, manager: str, force: bool = False, options: Options = PLAIN
    ) -> Document:
        """Server-side apply: `manager` becomes the owner of the fields in `document`.

        Raises Conflict if another manager owns one of them, unless `force`.
        """
        metadata = document["metadata"]
        params = options.params | {"fieldManager": manager, "force": str(force).lower()}
        path = self.path(metadata.get("namespace"), metadata["name"])
        return await self.transport.request("PATCH", path, params=params, body=document, content_type=APPLY_PATCH)

    async def patch(
        self,
        name: str,
        changes: object,
        namespace: str | None = None,
        *,
        subresource: str = "",
        content_type: str = MERGE_PATCH,
        options: Options = PLAIN,
    ) -> Document:
        """Patch an object by `changes`, a merge patch or one of the type `content_type`."""
        path = self.path(namespace, name, *([subresource] if subresource else []))
        return await self.transport.request(
            "PATCH", path, params=options.params, body=changes, content_type=content_type
        )

    async def delete(self, name: str, namespace: str | None = None, *, options: Options = PLAIN) -> Document:
        """Delete an object, and return the Status."""
        return await self.transport.request("DELETE", self.path(namespace, name), params=options.params)

    async def rollback(
        self, name: str, revision: str, namespace: str | None = None, *, options: Options = PLAIN
    ) -> Document:
        """Restore an object as it was at `revision` of its history, as a new version."""
        body = {"kind": "Rollback", "revision": revision}
        path = self.path(namespace, name, "rollback")
        return await self.transport.request("POST", path, params=options.params, body=body)

    async def _found(self, name: str, namespace: str | None) -> Document | None:
        try:
            return await self.get(name, namespace)
        except NotFound:
            return None


def _annotations(metadata: Document, found: Document | None) -> Document:
    """Return the annotations to write in place of those of `found`, as part of the metadata; empty: none."""
    existing = {} if found is None else found["metadata"].get("annotations") or {}
    written = {key: value for key, value in (metadata.get("annotations") or {}).items() if key not in NOTED_BY_OTHERS}
    written |= {key: existing[key] for key in (LAST_APPLIED,) if key in existing}
    return {"annotations": written} if written or "annotations" in metadata else {}


def _with_grants(wanted: Document, found: Document) -> Document:
    """Return what to write with the grants of an existing Budget, of which a manifest in a repository knows nothing."""
    spec, grants = wanted.get("spec") or {}, (found.get("spec") or {}).get("grants")
    if found.get("kind") != "Budget" or "grants" in spec or not grants:
        return wanted
    metadata = wanted["metadata"] | {"resourceVersion": found["metadata"]["resourceVersion"]}
    return wanted | {"metadata": metadata, "spec": spec | {"grants": grants}}


def _selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    params = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {key: value for key, value in params.items() if value}
