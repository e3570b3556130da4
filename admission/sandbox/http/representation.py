"""Representation of objects in responses: complete, metadata only or as a Table; in JSON or YAML."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import orjson
import yaml

from admission.apimachinery import accept as accepting
from admission.apimachinery.accept import JSON, PARTIAL, PARTIAL_LIST, TABLE, YAML, Format
from admission.apimachinery.errors import NotAcceptable
from admission.apimachinery.tables import partial
from admission.sandbox.apiserver.errors import ApiError
from admission.sandbox.http.tables import table

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.resources import ServedResource
    from admission.sandbox.apiserver.storage import ObjectVersion
    from admission.sandbox.http.listing import ListPage

__all__ = ["JSON", "Renderer", "dump", "negotiate"]


def negotiate(accept: str) -> Format:
    """Return the first supported format of an Accept header. Raises ApiError (406)."""
    try:
        return accepting.negotiate(accept)
    except NotAcceptable as error:
        raise ApiError(406, "NotAcceptable", str(error)) from error


class Renderer:
    """Serialises objects of one resource in one format.

    `now` returns the time in seconds since the epoch, for ages; `include` is the option includeObject of tables.
    """

    def __init__(self, resource: ServedResource, wanted: Format, now: Callable[[], float], include: str) -> None:
        self._resource = resource
        self._format = wanted
        self._now = now
        self._include = include or "Metadata"
        self._columns_sent = False

    def _converted(self, version: ObjectVersion) -> ObjectVersion:
        """Convert the version to the resource's API version, if that is a view."""
        view = self._resource.view
        return version if view is None else version.with_object(view.from_storage(version.obj))

    def one(self, version: ObjectVersion) -> bytes:
        """Serialise a single object."""
        version = self._converted(version)
        form = self._format.form
        if form == PARTIAL:
            return self._dump(partial(version.obj))
        if form == TABLE:
            metadata = {"resourceVersion": version.obj["metadata"].get("resourceVersion", "")}
            return self._dump(self._table(metadata, [version.obj]))
        if form == PARTIAL_LIST:
            text = f"you requested {PARTIAL_LIST}, but the requested object is not a list ({self._resource.kind})"
            raise ApiError(406, "NotAcceptable", text)
        return version.raw() if self._format.media == JSON else self._dump(version.obj)

    def page(self, page: ListPage) -> bytes:
        """Serialise a list."""
        resource, metadata = self._resource, page.metadata()
        if resource.custom:
            metadata.setdefault("continue", "")
        if resource.view is not None:
            page = replace(page, versions=[self._converted(version) for version in page.versions])
        form = self._format.form
        if form == PARTIAL:
            text = f"you requested {PARTIAL}, but the requested object is a list ({resource.listing})"
            raise ApiError(406, "NotAcceptable", text)
        if form == PARTIAL_LIST:
            items = [partial(version.obj) for version in page.versions]
            return self._dump(
                {"kind": PARTIAL_LIST, "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items}
            )
        if form == TABLE:
            return self._dump(self._table(metadata, [version.obj for version in page.versions]))
        head = {"kind": resource.listing, "apiVersion": resource.api_version, "metadata": metadata}
        if self._format.media == YAML:
            return self._dump({**head, "items": [_without_type(version.obj) for version in page.versions]})
        start = orjson.dumps(head)[:-1]
        return b"%s,%s]}" % (start, b'"items":[' + b",".join([self._item(version) for version in page.versions]))

    def _item(self, version: ObjectVersion) -> bytes:
        """Serialise an object of a list; those of built-in kinds lack kind and apiVersion, their first two fields."""
        raw = version.raw()
        return raw if self._resource.custom else b"{" + raw[self._resource.type_length :]

    def event(self, version: ObjectVersion) -> bytes:
        """Serialise the object of a watch event. Of a watch's Tables only the first has column definitions."""
        version = self._converted(version)
        form = self._format.form
        if form == TABLE:
            metadata = {"resourceVersion": version.obj["metadata"]["resourceVersion"]}
            sent, self._columns_sent = self._columns_sent, True
            return orjson.dumps(self._table(metadata, [version.obj], with_columns=not sent))
        return orjson.dumps(partial(version.obj)) if form in (PARTIAL, PARTIAL_LIST) else version.raw()

    def _table(self, metadata: Object, objects: list[Object], *, with_columns: bool = True) -> Object:
        return table(self._resource, metadata, objects, self._now(), include=self._include, with_columns=with_columns)

    def _dump(self, value: Object) -> bytes:
        return dump(value, self._format.media)


def dump(value: Object, media: str = JSON) -> bytes:
    """Serialise a value in a media type."""
    return orjson.dumps(value) if media == JSON else yaml.safe_dump(value, sort_keys=False).encode()


def _without_type(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}
