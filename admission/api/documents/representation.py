"""Representations by content negotiation: whole objects, PartialObjectMetadata or Table, for objects, lists, events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from admission.api.documents.printer_columns import NO_COLUMNS, definitions, table
from admission.api.errors import BadRequest
from admission.api.registry import API_VERSION
from admission.apimachinery.accept import JSON, PARTIAL, PARTIAL_LIST, PLAIN, TABLE, negotiate
from admission.apimachinery.errors import NotAcceptable
from admission.apimachinery.tables import partial

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiohttp import web

    from admission.api.http.responses import Document
    from admission.api.registry import Resource

_META = "meta.k8s.io/v1"
_INCLUDED = ("None", "Metadata", "Object")


@dataclass(frozen=True, slots=True)
class Representation:
    """The representation that a client has negotiated for a resource.

    Watches with equal representations share their events: the same event has the same bytes.
    """

    resource: Resource
    form: str = PLAIN
    """Kind of `meta.k8s.io/v1` that objects are converted to; PLAIN: none."""
    include: str = "Metadata"
    """Part of the object in each row of a table: `None`, `Metadata` or `Object`."""

    @classmethod
    def of(cls, request: web.Request, resource: Resource) -> Representation:
        """Negotiate by the header Accept and the parameter `includeObject`. Raises NotAcceptable and BadRequest."""
        form = negotiate(request.headers.get("Accept", ""), (JSON,)).form
        include = request.query.get("includeObject") or "Metadata"
        if include not in _INCLUDED:
            raise BadRequest(f'includeObject: "{include}" is not one of {", ".join(_INCLUDED)}')
        return cls(resource, form, include)

    def one(self, document: Document, *, now: float) -> Document:
        """Represent a single object. Raises NotAcceptable if the client accepts lists only."""
        match self.form:
            case "PartialObjectMetadata":
                return partial(document)
            case "Table":
                return self._table({"resourceVersion": document["metadata"]["resourceVersion"]}, [document], now)
            case "PartialObjectMetadataList":
                raise NotAcceptable(f"{PARTIAL_LIST} was requested, but this is not a list")
            case _:
                return document

    def list(self, metadata: Document, documents: Iterable[Document], *, now: float) -> Document:
        """Represent a list. Raises NotAcceptable if the client accepts single objects only."""
        match self.form:
            case "PartialObjectMetadataList":
                items = [partial(document) for document in documents]
                return {"kind": PARTIAL_LIST, "apiVersion": _META, "metadata": metadata, "items": items}
            case "Table":
                return self._table(metadata, documents, now)
            case "PartialObjectMetadata":
                raise NotAcceptable(f"{PARTIAL} was requested, but this is a list")
            case _:
                kind = f"{self.resource.kind}List"
                return {"kind": kind, "apiVersion": API_VERSION, "metadata": metadata, "items": [*documents]}

    def event(self, document: Document, *, now: float) -> bytes:
        """Serialise the object of a watch event; a table without column definitions, see `with_columns`."""
        if self.form in (PARTIAL, PARTIAL_LIST):
            return orjson.dumps(partial(document))
        if self.form != TABLE:
            return orjson.dumps(document)
        one_row = self._table({"resourceVersion": document["metadata"]["resourceVersion"]}, [document], now)
        return orjson.dumps(one_row | {"columnDefinitions": None})

    def with_columns(self, line: bytes) -> bytes:
        """Add the column definitions to an event: clients expect them in the first event of a watch only."""
        if self.form != TABLE:
            return line
        return line.replace(NO_COLUMNS, b'"columnDefinitions":' + orjson.dumps(definitions(self.resource.kind)), 1)

    def _table(self, metadata: Document, documents: Iterable[Document], now: float) -> Document:
        return table(self.resource.kind, metadata, documents, now=now, include=self.include)
