"""Watches over HTTP: a stream of events from a resourceVersion on, or of existing objects and then events."""

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
    from admission.sandbox.apiserver.resources import ServedResource
    from admission.sandbox.apiserver.selectors import ObjectSelector
    from admission.sandbox.apiserver.storage import ObjectVersion, StorageEvent, StoredCollection
    from admission.sandbox.http.faults import WatchFaults

# Seconds of real time without an event after which a bookmark is sent.
BOOKMARK_INTERVAL = 60.0
# Seconds until a watch without timeoutSeconds ends; the API server's end after 30 to 60 minutes.
DEFAULT_TIMEOUT = 1800.0
_INITIAL_END = "k8s.io/initial-events-end"
# Fields of a bookmark's object beside its metadata: the zero values of Go structs.
_ZERO: dict[tuple[str, str], Object] = {
    ("batch", "jobs"): {"spec": {"template": {"metadata": {}, "spec": {"containers": None}}}, "status": {}},
    ("", "pods"): {"spec": {"containers": None}, "status": {}},
    ("", "nodes"): {
        "spec": {},
        "status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 0}}},
    },
    ("", "namespaces"): {"spec": {}, "status": {}},
}


class WatchStream:
    """One watch request. Raises ApiError (422, 500) for invalid parameters."""

    def __init__(
        self,
        resource: ServedResource,
        collection: StoredCollection,
        namespace: str | None,
        selector: ObjectSelector,
        query: Query,
        render: Callable[[ObjectVersion], bytes] | None,
    ) -> None:
        check_watch(query)
        self._resource = resource
        self._collection = collection
        self._namespace = namespace
        self._selector = selector
        self._render = render
        self._bookmarks = query.flag("allowWatchBookmarks")
        self._start = start_version(query)
        send_initial = query.get("sendInitialEvents")
        self._initial = send_initial.lower() not in ("false", "0") if send_initial else self._start in (None, 0)
        # A watch from resourceVersion 0 also marks the end of the initial events, without sendInitialEvents.
        self._marks_end = self._bookmarks and self._initial and (bool(send_initial) or self._start == 0)
        if send_initial and not self._initial and self._start is None:
            self._start = collection.store.revision
        self._timeout = query.integer("timeoutSeconds") or DEFAULT_TIMEOUT

    async def serve(self, response: web.StreamResponse, faults: WatchFaults) -> None:
        """Write events until the timeout; the caller prepares and ends the response.

        Raises ConnectionResetError if a fault ends the watch abruptly.
        """
        wake = asyncio.Event()
        sources = (self._collection, faults.rules)
        for source in sources:
            source.subscribe(wake.set)
        try:
            async with asyncio.timeout(self._timeout):
                await self._stream(response, wake, faults)
        except TimeoutError:
            return
        except ClientConnectionResetError:
            return  # the client disconnected, which is the usual end of a watch
        finally:
            for source in sources:
                source.unsubscribe(wake.set)

    async def _stream(self, response: web.StreamResponse, wake: asyncio.Event, faults: WatchFaults) -> None:
        collection = self._collection
        if self._initial:
            position = collection.end
            await self._send_existing(response)
        elif self._start is not None and (self._start < collection.compacted_revision or faults.is_expired()):
            await response.write(self._too_old())
            return
        else:
            position = faults.rewind(collection.position(self._start or 0), collection.first)
        sent = collection.store.revision
        while True:
            wake.clear()
            if faults.should_close():
                return
            reorder = position < collection.end and await faults.wait_to_reorder()
            events = collection.since(position)
            if events is None:
                await response.write(self._too_old())
                return
            if events:
                position += len(events)
                sent = events[-1].rv
                if lines := self._lines(reordered(events) if reorder else events):
                    await response.write(lines)
                continue
            sent = await self._wait(response, wake, sent)

    async def _wait(self, response: web.StreamResponse, wake: asyncio.Event, sent: int) -> int:
        """Wait for an event, at most BOOKMARK_INTERVAL; then send a bookmark if the store has moved on.

        `sent` is the resourceVersion that the client knows. Returns it after the call.
        """
        try:
            async with asyncio.timeout(BOOKMARK_INTERVAL):
                await wake.wait()
        except TimeoutError:
            revision = self._collection.store.revision
            if self._bookmarks and revision > sent:
                await response.write(self._bookmark())
                return revision
        return sent

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

    def _lines(self, events: list[StorageEvent]) -> bytes:
        namespace, plain = self._namespace, self._selector.is_empty and self._render is None
        if plain:
            return b"".join([event.line() for event in events if namespace is None or event.namespace == namespace])
        lines = [self._line(event) for event in events if namespace is None or event.namespace == namespace]
        return b"".join(lines)

    def _line(self, event: StorageEvent) -> bytes:
        """Serialise an event for this watch: an object that leaves the selection is DELETED, in its state before.

        Empty for an object that was not selected before either.
        """
        kind, version = event.type, event.version
        if not self._selector.is_empty:
            matched = event.before is not None and self._selector.matches(event.before.obj)
            matches = event.type != "DELETED" and self._selector.matches(version.obj)
            if not matched and not matches:
                return b""
            if matched and not matches and event.type != "DELETED":
                assert event.before is not None
                kind, version = "DELETED", event.before.at_revision(event.rv)
            elif matches and not matched:
                kind = "ADDED"
        return b'{"type":"%s","object":%s}\n' % (kind.encode(), self._rendered(version))

    def _rendered(self, version: ObjectVersion) -> bytes:
        return version.raw() if self._render is None else self._render(version)

    def _bookmark(self, *, end: bool = False) -> bytes:
        resource = self._resource
        metadata: Object = {"resourceVersion": str(self._collection.store.revision)}
        if end:
            metadata["annotations"] = {_INITIAL_END: "true"}
        obj = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        return orjson.dumps({"type": "BOOKMARK", "object": {**obj, **_ZERO.get(resource.key, {})}}) + b"\n"

    def _too_old(self) -> bytes:
        text = f"too old resource version: {self._start} ({self._collection.compacted_revision + 1})"
        return orjson.dumps({"type": "ERROR", "object": ApiError(410, "Expired", text).status()}) + b"\n"
