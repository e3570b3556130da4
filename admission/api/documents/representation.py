"""Objects, lists and events in the form that a client asked for: as they are, as metadata alone, as a table."""

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
class Form:
    """What a client gets to see of the objects of a resource. Equal ones give equal bytes."""

    resource: Resource
    form: str = PLAIN
    include: str = "Metadata"
    """What comes along with each row of a table."""

    @classmethod
    def of(cls, request: web.Request, resource: Resource) -> Form:
        """By the header Accept and `includeObject`. Raises NotAcceptable and BadRequest."""
        wanted = negotiate(request.headers.get("Accept", ""), (JSON,)).form
        include = request.query.get("includeObject") or "Metadata"
        if include not in _INCLUDED:
            raise BadRequest(f'includeObject: "{include}" is not one of {", ".join(_INCLUDED)}')
        return cls(resource, wanted, include)

    def one(self, document: Document, *, now: float) -> Document:
        """A single object. Raises NotAcceptable for the form of a list."""
        match self.form:
            case "PartialObjectMetadata":
                return partial(document)
            case "Table":
                return self._table({"resourceVersion": document["metadata"]["resourceVersion"]}, [document], now)
            case "PartialObjectMetadataList":
                raise NotAcceptable(f"{PARTIAL_LIST} was asked for, but this is no list")
            case _:
                return document

    def list(self, metadata: Document, documents: Iterable[Document], *, now: float) -> Document:
        """A list. Raises NotAcceptable for the form of a single object."""
        match self.form:
            case "PartialObjectMetadataList":
                items = [partial(document) for document in documents]
                return {"kind": PARTIAL_LIST, "apiVersion": _META, "metadata": metadata, "items": items}
            case "Table":
                return self._table(metadata, documents, now)
            case "PartialObjectMetadata":
                raise NotAcceptable(f"{PARTIAL} was asked for, but this is a list")
            case _:
                kind = f"{self.resource.kind}List"
                return {"kind": kind, "apiVersion": API_VERSION, "metadata": metadata, "items": [*documents]}

    def event(self, document: Document, *, now: float) -> bytes:
        """The object of a watch event; a table without its columns, see `with_columns`."""
        if self.form in (PARTIAL, PARTIAL_LIST):
            return orjson.dumps(partial(document))
        if self.form != TABLE:
            return orjson.dumps(document)
        shown = self._table({"resourceVersion": document["metadata"]["resourceVersion"]}, [document], now)
        return orjson.dumps(shown | {"columnDefinitions": None})

    def with_columns(self, line: bytes) -> bytes:
        """The first event of a watch, which tells the columns of its table."""
        if self.form != TABLE:
            return line
        return line.replace(NO_COLUMNS, b'"columnDefinitions":' + orjson.dumps(definitions(self.resource.kind)), 1)

    def _table(self, metadata: Document, documents: Iterable[Document], now: float) -> Document:
        return table(self.resource.kind, metadata, documents, now=now, include=self.include)
