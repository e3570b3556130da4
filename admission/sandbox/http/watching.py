"""Watches over HTTP: lines of events, from a version or from what exists, until the client has enough."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import orjson
from aiohttp import ClientConnectionResetError

from admission.sandbox.apiserver.errors import ApiError
from admission.sandbox.apiserver.query import check_watch, start_version
from admission.sandbox.http.faults import reordered

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.query import Query
    from admission.sandbox.apiserver.resources import Resource
    from admission.sandbox.apiserver.selectors import Selector
    from admission.sandbox.apiserver.storage import Collection, Event, Version
    from admission.sandbox.http.faults import Disturbance

BOOKMARK_INTERVAL = 60.0
# A watch that names no timeout ends after this time, as the API server's do after 30 to 60 minutes.
DEFAULT_TIMEOUT = 1800.0
_INITIAL_END = "k8s.io/initial-events-end"
# What a bookmark's object has beside its metadata: the zero values of Go structs.
_ZERO: dict[tuple[str, str], Object] = {
    ("batch", "jobs"): {"spec": {"template": {"metadata": {}, "spec": {"containers": None}}}, "status": {}},
    ("", "pods"): {"spec": {"containers": None}, "status": {}},
    ("", "nodes"): {
        "spec": {},
        "status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 0}}},
    },
    ("", "namespaces"): {"spec": {}, "status": {}},
}


class Watch:
    """One watch request."""

    def __init__(
        self,
        resource: Resource,
        collection: Collection,
        namespace: str | None,
        selector: Selector,
        query: Query,
        render: Callable[[Version], bytes] | None,
    ) -> None:
        check_watch(query)
        self._resource = resource
        self._collection = collection
        self._namespace = namespace
        self._selector = selector
        self._render = render
        self._bookmarks = query.flag("allowWatchBookmarks")
        self._start = start_version(query)
        asked = query.get("sendInitialEvents")
        self._initial = asked.lower() not in ("false", "0") if asked else self._start in (None, 0)
        # A watch from version 0 marks the end of the initial events too, though nobody asked for it.
        self._marks_end = self._bookmarks and self._initial and (bool(asked) or self._start == 0)
        if asked and not self._initial and self._start is None:
            self._start = collection.store.revision
        self._timeout = query.integer("timeoutSeconds") or DEFAULT_TIMEOUT

    async def serve(self, response: web.StreamResponse, disturbance: Disturbance) -> None:
        """Write events until the time is over; the stream is prepared and ended by the caller.

        Raises ConnectionResetError when it is disturbed so.
        """
        wake = asyncio.Event()
        sources = (self._collection, disturbance.faults)
        for source in sources:
            source.subscribe(wake.set)
        try:
            async with asyncio.timeout(self._timeout):
                await self._stream(response, wake, disturbance)
        except TimeoutError:
            return
        except ClientConnectionResetError:
            return  # the watcher has gone away, which is the usual end of a watch
        finally:
            for source in sources:
                source.unsubscribe(wake.set)

    async def _stream(self, response: web.StreamResponse, wake: asyncio.Event, disturbance: Disturbance) -> None:
        collection = self._collection
        if self._initial:
            position = collection.end
            await self._send_existing(response)
        elif self._start is not None and (self._start < collection.horizon or disturbance.is_expired()):
            await response.write(self._too_old())
            return
        else:
            position = disturbance.rewound(collection.position(self._start or 0), collection.first)
        told = collection.store.revision
        while True:
            wake.clear()
            if disturbance.closes():
                return
            held = position < collection.end and await disturbance.holds_back()
            events = collection.since(position)
            if events is None:
                await response.write(self._too_old())
                return
            if events:
                position += len(events)
                told = events[-1].rv
                if lines := self._lines(reordered(events) if held else events):
                    await response.write(lines)
                continue
            told = await self._wait(response, wake, told)

    async def _wait(self, response: web.StreamResponse, wake: asyncio.Event, told: int) -> int:
        """Wait for an event; a bookmark now and then tells how far the store has moved on. The version told."""
        try:
            async with asyncio.timeout(BOOKMARK_INTERVAL):
                await wake.wait()
        except TimeoutError:
            revision = self._collection.store.revision
            if self._bookmarks and revision > told:
                await response.write(self._bookmark())
                return revision
        return told

    async def _send_existing(self, response: web.StreamResponse) -> None:
        chunks = [
            b'{"type":"ADDED","object":%s}\n' % self._rendered(version)
            for version in self._collection.versions(self._namespace)
            if self._selector.is_empty or self._selector.matches(version.obj)
        ]
        if self._marks_end:
            chunks.append(self._bookmark(end=True))
        if chunks:
            await response.write(b"".join(chunks))

    def _lines(self, events: list[Event]) -> bytes:
        namespace, plain = self._namespace, self._selector.is_empty and self._render is None
        if plain:
            return b"".join([event.line() for event in events if namespace is None or event.namespace == namespace])
        lines = [self._line(event) for event in events if namespace is None or event.namespace == namespace]
        return b"".join(lines)

    def _line(self, event: Event) -> bytes:
        """The event as this watch sees it: what leaves its selection is deleted, with its last matching state."""
        kind, version = event.type, event.version
        if not self._selector.is_empty:
            matched = event.before is not None and self._selector.matches(event.before.obj)
            matches = event.type != "DELETED" and self._selector.matches(version.obj)
            if not matched and not matches:
                return b""
            if matched and not matches and event.type != "DELETED":
                assert event.before is not None
                kind, version = "DELETED", event.before.under(event.rv)
            elif matches and not matched:
                kind = "ADDED"
        return b'{"type":"%s","object":%s}\n' % (kind.encode(), self._rendered(version))

    def _rendered(self, version: Version) -> bytes:
        return version.raw() if self._render is None else self._render(version)

    def _bookmark(self, *, end: bool = False) -> bytes:
        resource = self._resource
        metadata: Object = {"resourceVersion": str(self._collection.store.revision)}
        if end:
            metadata["annotations"] = {_INITIAL_END: "true"}
        obj = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        return orjson.dumps({"type": "BOOKMARK", "object": {**obj, **_ZERO.get(resource.key, {})}}) + b"\n"

    def _too_old(self) -> bytes:
        text = f"too old resource version: {self._start} ({self._collection.horizon + 1})"
        return orjson.dumps({"type": "ERROR", "object": ApiError(410, "Expired", text).status()}) + b"\n"
