"""One watch request: its options, its queue of events, and its streamed response."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import orjson
from aiohttp import web

from admission.api.auth.authorization import recheck
from admission.api.auth.cluster_rights import recheck_hidden
from admission.api.errors import BadRequest, Expired, Forbidden, TooManyRequests, Unauthorized
from admission.api.http.request_options import flag, number, resource_version
from admission.api.registry import API_VERSION
from admission.apimachinery.accept import PARTIAL, TABLE
from admission.apimachinery.errors import failure
from admission.model.errors import InvalidObject, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.api.http.responses import Document
    from admission.api.watch.shared_watch import SharedWatch

log = logging.getLogger(__name__)

MAX_QUEUED_BYTES = 8 * 2**20
"""Queued events of one client above which it is disconnected: it is too slow, or not there any more."""
BOOKMARK_SECONDS = 30.0
"""Interval of bookmarks, if the client has requested them. Many proxies cut a response that is silent for 60 s."""
_TIMEOUT_SECONDS = 1800
"""Least timeout of watches without `timeoutSeconds`; it is chosen at random up to twice this, as in kube-apiserver."""
MAX_SECONDS = 3600
"""Longest timeout. Watches with a longer `timeoutSeconds` end earlier, which clients have to expect at any time."""
RECHECK_SECONDS = 30.0
"""Interval at which the user is authenticated and authorized again. Reviews are cached for 5 to 10 s beside that."""
_INITIAL_END = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """Options of a watch beside its selection."""

    start: int | None
    """Send events after this revision; None: from now on."""
    initial: bool
    """Send the existing objects first, as ADDED events."""
    bookmarks: bool
    """Send BOOKMARK events periodically."""
    marks_end: bool
    """Send a BOOKMARK with the annotation `k8s.io/initial-events-end` after the existing objects."""
    timeout: float
    """Seconds."""

    @classmethod
    def of(cls, request: web.Request) -> WatchOptions:
        """Parse the query. Raises BadRequest and InvalidObject."""
        if request.query.get("continue"):
            raise BadRequest("continue is for lists only")
        start = resource_version(request)
        initial_events = request.query.get("sendInitialEvents", "")
        match = request.query.get("resourceVersionMatch", "")
        if bool(initial_events) != (match == "NotOlderThan") or (match and not initial_events):
            text = "must be NotOlderThan if sendInitialEvents is set, and may not be set otherwise"
            raise InvalidObject([("resourceVersionMatch", text)], subject="ListOptions")
        initial = flag(request, "sendInitialEvents") if initial_events else not start
        bookmarks = flag(request, "allowWatchBookmarks")
        seconds = number(request, "timeoutSeconds")
        timeout = min(seconds or _TIMEOUT_SECONDS * (1 + random.random()), MAX_SECONDS)
        marks_end = bookmarks and initial and (bool(initial_events) or start == 0)
        return cls(start or None, initial, bookmarks, marks_end, timeout)


class Watcher:
    """One client of a shared watch, with the queue of events to send."""

    def __init__(self, shared: SharedWatch, options: WatchOptions) -> None:
        self._shared = shared
        self._options = options
        self._after: int | None = None
        """Revision up to which the client has all events; None until the initial events are complete."""
        self._early: list[tuple[int, bytes]] = []
        """Events that arrive while `_after` is None."""
        self._queue: list[bytes] = []
        self._bytes = 0
        self._wakeup = asyncio.Event()
        self._ended = False
        self._sent_columns = False
        self._transport: asyncio.Transport | None = None

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Stream events until the timeout, or until the client disconnects."""
        response = web.StreamResponse(
            headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"}
        )
        await response.prepare(request)
        self._transport = request.transport
        self._shared.watchers.add(self)
        try:
            await self._send(request, response)
            await response.write_eof()
        except ConnectionError:
            pass  # the client has disconnected
        except Exception:  # the headers have been sent: the only possible answer is to end the response
            log.exception("a watch of %s failed", request.path)
        finally:
            self._shared.watchers.discard(self)
        return response

    def enqueue(self, lines: Iterable[tuple[int, bytes]], joined: bytes) -> None:
        """Queue new events: `lines` with their revisions, and `joined`, the same as one string.

        A client with more than MAX_QUEUED_BYTES is disconnected.
        """
        if self._after is None:
            self._early.extend(lines)
        elif all(revision > self._after for revision, _ in lines):
            self._queue.append(joined)
        else:
            self._queue.extend(line for revision, line in lines if revision > self._after)
        self._bytes += len(joined)
        if self._bytes > MAX_QUEUED_BYTES:
            self.end()
            if self._transport is not None:
                self._transport.abort()
        self._wakeup.set()

    def check_connection(self) -> None:
        """Wake the response if the client has disconnected; called periodically."""
        if self._transport is None or self._transport.is_closing():
            self._wakeup.set()

    def end(self) -> None:
        """End the response after the queued events."""
        self._ended = True
        self._wakeup.set()

    async def _send(self, request: web.Request, response: web.StreamResponse) -> None:
        try:
            async with asyncio.timeout(self._options.timeout):
                await self._send_initial(response)
                await self._send_queued(request, response)
        except (Unauthorized, Forbidden, TooManyRequests) as error:
            await response.write(_event("ERROR", failure(error.code, error.reason, str(error))))
        except TimeoutError:
            if self._options.bookmarks and self._after is not None and not self._queue:
                await response.write(self._bookmark())
        except Expired as error:
            await response.write(_event("ERROR", failure(error.code, error.reason, str(error))))
        except StoreError as error:
            await response.write(_event("ERROR", failure(503, "ServiceUnavailable", str(error))))

    async def _send_initial(self, response: web.StreamResponse) -> None:
        """Send the existing objects and the events since the start revision; queue those that arrived meanwhile."""
        shared, after = self._shared, self._options.start
        first = True
        if self._options.initial:
            after = None
            async for items, revision in shared.source.existing(shared.selection):
                after = revision if after is None else after
                if lines := b"".join(shared.encode_event("ADDED", item) for item in items):
                    await response.write(shared.representation.with_columns(lines) if first else lines)
                    first = False
        elif after is None:
            after = shared.position
        assert after is not None
        if self._options.marks_end:
            await response.write(self._bookmark(revision=after, end=True))
        upto = after
        async for lines, complete in shared.since(after):
            # Each chunk is sent before the next one is read: a watch that ends early has made progress.
            upto = complete
            if lines:
                await response.write(shared.representation.with_columns(lines) if first else lines)
                first = False
        self._queue = [line for revision, line in self._early if revision > upto]
        self._after, self._early = upto, []
        self._sent_columns = not first

    async def _send_queued(self, request: web.Request, response: web.StreamResponse) -> None:
        """Send events as they are queued, and bookmarks periodically.

        By them clients without events can resume, and proxies see that the connection is in use, also without changes.
        """
        loop = asyncio.get_running_loop()
        bookmark_at = loop.time() + BOOKMARK_SECONDS if self._options.bookmarks else math.inf
        recheck_at = loop.time() + RECHECK_SECONDS
        with _Timer(loop, self._wakeup) as timer:
            while True:
                if loop.time() >= recheck_at:
                    await recheck(request)
                    await recheck_hidden(request)
                    recheck_at = loop.time() + RECHECK_SECONDS
                chunk = b"".join(self._queue)
                self._queue.clear()
                self._bytes = 0
                if chunk:
                    await recheck_hidden(request, joined_only=True)
                    if not self._sent_columns:
                        chunk, self._sent_columns = self._shared.representation.with_columns(chunk), True
                    await response.write(chunk)
                    continue
                if self._ended or request.transport is None or request.transport.is_closing():
                    return
                if loop.time() >= bookmark_at:
                    bookmark_at = loop.time() + BOOKMARK_SECONDS
                    await response.write(self._bookmark())
                    continue
                self._wakeup.clear()
                timer.set(min(bookmark_at, recheck_at))
                await self._wakeup.wait()

    def _bookmark(self, *, revision: int | None = None, end: bool = False) -> bytes:
        version = revision if revision is not None else max(self._shared.position, self._after or 0)
        metadata: Document = {"resourceVersion": str(version), "creationTimestamp": None}
        if end:
            metadata["annotations"] = {_INITIAL_END: "true"}
        head: Document
        match self._shared.representation.form:
            case "Table":
                head = {"kind": TABLE, "apiVersion": "meta.k8s.io/v1", "columnDefinitions": None, "rows": []}
            case "PartialObjectMetadata" | "PartialObjectMetadataList":
                head = {"kind": PARTIAL, "apiVersion": "meta.k8s.io/v1"}
            case _:
                head = {"kind": self._shared.representation.resource.kind, "apiVersion": API_VERSION}
        return _event("BOOKMARK", {**head, "metadata": metadata})


class _Timer:
    """Sets an asyncio event at a given time.

    Setting it to the same time again is free: it is set after each event, of which there may be very many.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
        self._loop = loop
        self._event = event
        self._timer: asyncio.TimerHandle | None = None

    def set(self, at: float) -> None:
        """Set the time (of the loop's clock), in place of an earlier one."""
        if self._timer is None or self._timer.when() != at:
            self._cancel()
            self._timer = self._loop.call_at(at, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._event.set()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cancel()


def _event(kind: str, document: Document) -> bytes:
    return orjson.dumps({"type": kind, "object": document}) + b"\n"
