"""The verbs on one resource, on JSON documents as the server has them, status included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import quote

from admission.client.errors import AlreadyExists, NotFound
from admission.client.forms import Form, Table
from admission.client.transport import APPLY_PATCH, MERGE_PATCH, PREFIX
from admission.client.watching import Watch, pages
from admission.model.names import LAST_APPLIED, NOTED_BY_OTHERS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from admission.client.transport import Document, Transport

Outcome: TypeAlias = Literal["created", "configured", "unchanged"]

_ATTEMPTS = 5
_METADATA = ("name", "namespace", "labels", "annotations")


@dataclass(frozen=True, slots=True)
class Options:
    """How a write is to be done: `reason` is kept with it, `dry_run` does all but write and shows the impact."""

    reason: str = ""
    dry_run: bool = False

    @property
    def params(self) -> dict[str, str]:
        """As the query of a request."""
        return ({"reason": self.reason} if self.reason else {}) | ({"dryRun": "All"} if self.dry_run else {})


PLAIN = Options()


@dataclass(frozen=True, slots=True)
class Documents:
    """One resource by its plural name. `namespace` None: all namespaces, or that there are none."""

    transport: Transport
    plural: str

    def path(self, namespace: str | None = None, *names: str) -> str:
        """The path of the list, of an object, or of a subresource."""
        parts = ["namespaces", namespace, self.plural, *names] if namespace else [self.plural, *names]
        return "/".join([PREFIX, *(quote(part, safe="") for part in parts)])

    async def list(
        self, *, namespace: str | None = None, label_selector: str = "", field_selector: str = ""
    ) -> AsyncGenerator[Document]:
        """All objects, read page by page as they are wanted."""
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
        """The same, or one object by its name, as the server prints it; with `objects` each row has its own whole."""
        params = _selectors(label_selector, field_selector) | {"includeObject": "Object" if objects else "Metadata"}
        if name:
            path = self.path(namespace, name)
            return Table.of(await self.transport.request("GET", path, params=params, accept=Form.ROWS))
        table = Table()
        async for page in pages(self.transport, self.path(namespace), params, form=Form.ROWS):
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
        """All objects, or with `rows` those of their table, then every change, for ever."""
        params = _selectors(label_selector, field_selector)
        return Watch(self.transport, self.path(namespace), params, form=Form.ROWS if rows else Form.OBJECTS)

    async def get(self, name: str, namespace: str | None = None, subresource: str = "", **params: str) -> Document:
        """One object, or what a subresource of it says."""
        path = self.path(namespace, name, *([subresource] if subresource else []))
        return await self.transport.request("GET", path, params=params)

    async def create(self, document: Document, *, options: Options = PLAIN) -> Document:
        """A new object, as it was written."""
        namespace = document["metadata"].get("namespace")
        return await self.transport.request("POST", self.path(namespace), params=options.params, body=document)

    async def replace(self, document: Document, *, options: Options = PLAIN) -> Document:
        """An object in place of that of its name; Conflict if a resourceVersion in it is not the current one."""
        metadata = document["metadata"]
        path = self.path(metadata.get("namespace"), metadata["name"])
        return await self.transport.request("PUT", path, params=options.params, body=document)

    async def put(self, document: Document, *, options: Options = PLAIN) -> tuple[Outcome, Document]:
        """Create the object, or replace what is there, whatever others write at the same time.

        What kubectl notes of its last `apply` in an annotation is its own: that of the object that is there stays.
        """
        metadata = document["metadata"]
        # The rest of the metadata belongs to the server that the document may have been read from.
        kept = {key: value for key, value in metadata.items() if key in _METADATA}
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                found = await self._found(metadata["name"], metadata.get("namespace"))
                wanted = document | {"metadata": kept | _annotations(kept, found)}
                if found is None:
                    return "created", await self.create(wanted, options=options)
                written = await self.replace(wanted, options=options)
            except (AlreadyExists, NotFound):
                # Somebody else created or deleted it in between: look again.
                if attempt == _ATTEMPTS:
                    raise
            else:
                same = written["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]
                return "unchanged" if same else "configured", written
        raise AssertionError("the last attempt returns or raises")

    async def apply(
        self, document: Document, *, manager: str, force: bool = False, options: Options = PLAIN
    ) -> Document:
        """Server-side apply: `manager` owns the fields of `document`; Conflict for another's, unless `force`."""
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
        """The object with `changes`, a merge patch or what `content_type` says."""
        path = self.path(namespace, name, *([subresource] if subresource else []))
        return await self.transport.request(
            "PATCH", path, params=options.params, body=changes, content_type=content_type
        )

    async def delete(self, name: str, namespace: str | None = None, *, options: Options = PLAIN) -> Document:
        """Delete the object; returns the Status of the deletion."""
        return await self.transport.request("DELETE", self.path(namespace, name), params=options.params)

    async def rollback(
        self, name: str, revision: str, namespace: str | None = None, *, options: Options = PLAIN
    ) -> Document:
        """The object as it was at `revision` of its history, as a new version."""
        body = {"kind": "Rollback", "revision": revision}
        path = self.path(namespace, name, "rollback")
        return await self.transport.request("POST", path, params=options.params, body=body)

    async def _found(self, name: str, namespace: str | None) -> Document | None:
        try:
            return await self.get(name, namespace)
        except NotFound:
            return None


def _annotations(metadata: Document, found: Document | None) -> Document:
    """The annotations to write over those of `found`; empty without any."""
    there = {} if found is None else found["metadata"].get("annotations") or {}
    written = {key: value for key, value in (metadata.get("annotations") or {}).items() if key not in NOTED_BY_OTHERS}
    written |= {key: there[key] for key in (LAST_APPLIED,) if key in there}
    return {"annotations": written} if written or "annotations" in metadata else {}


def _selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    params = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {key: value for key, value in params.items() if value}
