"""One watch request: what it asks for, what waits to be sent to it, and the stream of its answer."""

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
from admission.api.errors import BadRequest, Expired, Forbidden, Unauthorized
from admission.api.http.request_options import flag, number, resource_version
from admission.api.registry import API_VERSION
from admission.apimachinery.accept import PARTIAL, TABLE
from admission.model.errors import InvalidObject, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.api.http.responses import Document
    from admission.api.watch.shared_watch import Group

log = logging.getLogger(__name__)

MOST_BYTES = 8 * 2**20
"""A client for which more than that waits is cut off: it is too slow, or not there any more."""
BOOKMARK_SECONDS = 60.0
_TIMEOUT_SECONDS = 1800
LONGEST_SECONDS = 3600
"""A watch that asks for longer ends earlier, which each client has to expect at any time."""
RECHECK_SECONDS = 30.0
"""So often it is asked again whether the user may still watch: about as long as rights and tokens are remembered."""
_INITIAL_END = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What a watch asks for beside what it selects."""

    start: int | None
    """Events after this revision; None: from now on."""
    initial: bool
    """First all that exists, as if it had just been created."""
    bookmarks: bool
    marks_end: bool
    """Whether a bookmark tells where that ends."""
    timeout: float

    @classmethod
    def of(cls, request: web.Request) -> WatchOptions:
        """Raises BadRequest and InvalidObject."""
        if request.query.get("continue"):
            raise BadRequest("continue is for lists only")
        start = resource_version(request)
        asked, match = request.query.get("sendInitialEvents", ""), request.query.get("resourceVersionMatch", "")
        if bool(asked) != (match == "NotOlderThan") or (match and not asked):
            text = "must be NotOlderThan if sendInitialEvents is set, and may not be set otherwise"
            raise InvalidObject([("resourceVersionMatch", text)], subject="ListOptions")
        initial = flag(request, "sendInitialEvents") if asked else not start
        bookmarks = flag(request, "allowWatchBookmarks")
        asked_seconds = number(request, "timeoutSeconds")
        timeout = min(asked_seconds or _TIMEOUT_SECONDS * (1 + random.random()), LONGEST_SECONDS)
        marks_end = bookmarks and initial and (bool(asked) or start == 0)
        return cls(start or None, initial, bookmarks, marks_end, timeout)


class Watcher:
    """What is told to one client."""

    def __init__(self, group: Group, options: WatchOptions) -> None:
        self._group = group
        self._options = options
        self._after: int | None = None  # once known: what is told up to then is known to the client
        self._early: list[tuple[int, bytes]] = []
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._woken = asyncio.Event()
        self._ended = False
        self._told_columns = False
        self._transport: asyncio.Transport | None = None

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """The answer: events until the time is over or the client has gone."""
        response = web.StreamResponse(
            headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"}
        )
        await response.prepare(request)
        self._transport = request.transport
        self._group.watchers.add(self)
        try:
            await self._send(request, response)
            await response.write_eof()
        except ConnectionError:
            pass  # the client has gone
        except Exception:  # there is no other answer than to end: the headers have been sent
            log.exception("a watch of %s failed", request.path)
        finally:
            self._group.watchers.discard(self)
        return response

    def tell(self, lines: Iterable[tuple[int, bytes]], joined: bytes) -> None:
        """New events, each with its revision; and all of them together."""
        if self._after is None:
            self._early.extend(lines)
        elif all(revision > self._after for revision, _ in lines):
            self._waiting.append(joined)
        else:
            self._waiting.extend(line for revision, line in lines if revision > self._after)
        self._bytes += len(joined)
        if self._bytes > MOST_BYTES:
            self.end()
            if self._transport is not None:
                self._transport.abort()
        self._woken.set()

    def look(self) -> None:
        """See whether the client is still there; to be called now and then."""
        if self._transport is None or self._transport.is_closing():
            self._woken.set()

    def end(self) -> None:
        """Send the client away once it has got what waits."""
        self._ended = True
        self._woken.set()

    async def _send(self, request: web.Request, response: web.StreamResponse) -> None:
        try:
            async with asyncio.timeout(self._options.timeout):
                await self._begin(response)
                await self._go_on(request, response)
        except (Unauthorized, Forbidden) as error:
            await response.write(_event("ERROR", _status(error.code, error.reason, str(error))))
        except TimeoutError:
            if self._options.bookmarks and self._after is not None and not self._waiting:
                await response.write(self._bookmark())
        except Expired as error:
            await response.write(_event("ERROR", _status(error.code, error.reason, str(error))))
        except StoreError as error:
            await response.write(_event("ERROR", _status(503, "ServiceUnavailable", str(error))))

    async def _begin(self, response: web.StreamResponse) -> None:
        """Send what exists, or what was missed; from there on what the group tells."""
        group, after = self._group, self._options.start
        first = True
        if self._options.initial:
            after = None
            async for items, revision in group.source.existing(group.selection):
                after = revision if after is None else after
                if lines := b"".join(group.line("ADDED", item) for item in items):
                    await response.write(group.form.with_columns(lines) if first else lines)
                    first = False
        elif after is None:
            after = group.position
        assert after is not None
        missed, upto = await group.since(after)
        self._waiting = [*missed, *(line for revision, line in self._early if revision > upto)]
        self._after, self._early = upto, []
        if first and self._waiting:
            self._waiting[0] = group.form.with_columns(self._waiting[0])
            first = False
        if self._options.marks_end:
            await response.write(self._bookmark(revision=after, end=True))
        self._told_columns = not first

    async def _go_on(self, request: web.Request, response: web.StreamResponse) -> None:
        """Send what comes; a bookmark now and then tells a client without events how far it has got."""
        loop = asyncio.get_running_loop()
        bookmark_at, told = loop.time() + BOOKMARK_SECONDS if self._options.bookmarks else math.inf, 0
        recheck_at = loop.time() + RECHECK_SECONDS
        with _Alarm(loop, self._woken) as alarm:
            while True:
                if loop.time() >= recheck_at:
                    await recheck(request)
                    recheck_at = loop.time() + RECHECK_SECONDS
                chunk = b"".join(self._waiting)
                self._waiting.clear()
                self._bytes = 0
                if chunk:
                    if not self._told_columns:
                        chunk, self._told_columns = self._group.form.with_columns(chunk), True
                    await response.write(chunk)
                    continue
                if self._ended or request.transport is None or request.transport.is_closing():
                    return
                if loop.time() >= bookmark_at:
                    bookmark_at = loop.time() + BOOKMARK_SECONDS
                    if self._group.position > told:
                        told = self._group.position
                        await response.write(self._bookmark())
                        continue
                self._woken.clear()
                alarm.set(min(bookmark_at, recheck_at))
                await self._woken.wait()

    def _bookmark(self, *, revision: int | None = None, end: bool = False) -> bytes:
        version = revision if revision is not None else max(self._group.position, self._after or 0)
        metadata: Document = {"resourceVersion": str(version), "creationTimestamp": None}
        if end:
            metadata["annotations"] = {_INITIAL_END: "true"}
        head: Document
        match self._group.form.form:
            case "Table":
                head = {"kind": TABLE, "apiVersion": "meta.k8s.io/v1", "columnDefinitions": None, "rows": []}
            case "PartialObjectMetadata" | "PartialObjectMetadataList":
                head = {"kind": PARTIAL, "apiVersion": "meta.k8s.io/v1"}
            case _:
                head = {"kind": self._group.form.resource.kind, "apiVersion": API_VERSION}
        return _event("BOOKMARK", {**head, "metadata": metadata})


class _Alarm:
    """Sets an event at a time, once. It stays as it was set while events come, of which there are many more."""

    def __init__(self, loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
        self._loop = loop
        self._event = event
        self._timer: asyncio.TimerHandle | None = None

    def set(self, at: float) -> None:
        """At this time of the loop; not at another one any more."""
        if self._timer is None or self._timer.when() != at:
            self._cancel()
            self._timer = self._loop.call_at(at, self._ring)

    def _ring(self) -> None:
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


def _status(code: int, reason: str, message: str) -> Document:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
