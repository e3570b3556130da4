"""List and watch: the changes of a collection as a stream without gaps, across broken connections and expired versions.

Three nested generators: `_stream` reads one watch request, `_list_and_watch` decides from which version
to watch or list again, `batches` retries after failures.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import orjson

from admission.cluster.errors import BadAnswer, Expired, Silent, Unreachable, status_error
from admission.model.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

    from admission.cluster.client import Client, Object

log = logging.getLogger(__name__)

SILENCE = 120.0
"""Seconds without a byte after which a connection counts as dead; bookmarks come about once a minute."""

WATCH_SECONDS = (300, 600)
"""The server ends a watch after a random time in here, so that watches spread over API servers."""

LONGEST_LINE = 8 * 2**20
"""Bytes; etcd stores objects of 1.5 MiB at most."""

SHORT = 1.0
"""Seconds; a stream that ends sooner counts as a failed attempt."""

ChangeType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]


@dataclass(frozen=True, slots=True)
class Change:
    """One object was added, modified or deleted.

    `key` is `namespace/name`, or `name` in no namespace. `object` is None for an object that was deleted
    during a gap between two watches; `uid` is then the last one known.
    """

    type: ChangeType
    key: str
    uid: str
    object: Object | None


class Informer:
    """The changes of all objects at a collection's path, in batches.

    It remembers only uid and resourceVersion of each object: enough to find what has gone during a gap, and to drop
    what was told before. A slow consumer makes the server wait (TCP backpressure), so memory does not grow.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        *,
        label_selector: str = "",
        page: int = 500,
        silence: float = SILENCE,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._path = path
        self._params = {"labelSelector": label_selector} if label_selector else {}
        self._page = page
        self._silence = silence
        self._clock = clock
        self._sleep = sleep
        self._known = _Known()
        self._version = ""
        self._failures = 0
        self.synced = asyncio.Event()
        """Set once the consumer has handled the whole first list; never cleared."""
        self.failure: ClusterError | None = None
        """The failure that interrupts the stream now; None while a list or watch is open."""
        self._failing_since = 0.0

    def knows(self, key: str, version: str) -> bool:
        """Whether the object `key` (`namespace/name`) was reported at this resourceVersion or a newer one."""
        known = self._known.version(key)
        return known is not None and not _newer(version, known)

    @property
    def failing(self) -> float:
        """Seconds since the stream is interrupted; 0 while it is not."""
        return 0.0 if self.failure is None else self._clock() - self._failing_since

    @property
    def _name(self) -> str:
        return f"GET {self._client.server}{self._path}"

    async def batches(self) -> AsyncGenerator[list[Change]]:
        """All changes, without end, beginning with every existing object as ADDED; no batch is empty.

        For one key the order is that of the server. No ClusterError leaves it: it retries with growing, jittered
        pauses and says so in `failure`. To stop, cancel the task that reads, or close the generator (`aclosing`).
        """
        while True:
            try:
                async with aclosing(self._list_and_watch()) as batches:
                    async for batch in batches:
                        yield batch
            except ClusterError as error:
                self._report(error)
            await self._pause()

    def forget(self) -> list[Change]:
        """The deletions of all that was told: there is no such resource any more. Once nobody reads `batches`."""
        return self._known.gone(self._known.keys())

    async def _list_and_watch(self) -> AsyncGenerator[list[Change]]:
        """List if there is no version to watch from, then open one watch after another until the version expires."""
        if not self._version:
            async with aclosing(self._list()) as batches:
                async for batch in batches:
                    yield batch
            self.synced.set()
        while True:
            began, before, broke = self._clock(), self._version, False
            try:
                async with aclosing(self._stream()) as batches:
                    async for batch in batches:
                        yield batch
            except (Expired, BadAnswer):
                self._version = ""  # a line that cannot be read must not be asked for again
                raise
            except Silent:
                broke = True  # a dead connection or a quiet cluster: the check below finds out
            except Unreachable as error:
                self._report(error)
                broke = True
            finally:
                short = self._clock() - began < SHORT
                if not short:
                    self._failures = 0
            if broke or self._version == before:
                await self._check_not_turned_back()
            if short:
                await self._pause()

    async def _list(self) -> AsyncGenerator[list[Change]]:
        """The differences between a fresh list and the known objects, page by page; deletions come last."""
        limit, version = self._page, ""
        while True:
            unseen = self._known.keys()
            try:
                async with aclosing(self._client.list_pages(self._path, params=self._params, limit=limit)) as pages:
                    async for page in pages:
                        version = page["metadata"]["resourceVersion"]
                        if batch := [change for item in page["items"] for change in self._known.listed(item, unseen)]:
                            yield batch
                break
            except Expired:
                if not limit:
                    raise
                limit = 0  # the snapshot went before its last page: take all at once, which cannot expire
            except (KeyError, TypeError) as error:
                raise BadAnswer(f"{self._name}: the answer is no list ({error!r})") from error
        if gone := self._known.gone(unseen):
            yield gone
        self._version = version
        self._recovered()

    async def _stream(self) -> AsyncGenerator[list[Change]]:
        """One watch from `_version` on, until the server ends it."""
        began = self._version
        params = self._params | {
            "watch": "1",
            "resourceVersion": began,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(*WATCH_SECONDS)),
        }
        rest = b""
        async with self._client.stream(self._path, params=params, silence=self._silence) as arrivals:
            self._recovered()
            async for arrived in arrivals:
                *lines, rest = (rest + arrived).split(b"\n")
                batch: list[Change] = []
                failure: ClusterError | None = None
                try:
                    for line in filter(None, lines):
                        batch += self._read(line, began)
                except ClusterError as error:
                    failure = error
                if batch:
                    yield batch  # also before a failure: what is known counts as told
                if failure is not None:
                    raise failure
                if len(rest) > LONGEST_LINE:
                    raise BadAnswer(f"{self._name}: an event of the watch is over {LONGEST_LINE} bytes")

    def _read(self, line: bytes, began: str) -> Iterable[Change]:
        """The changes of one line of a watch: none, one, or two (an object was replaced by another one of its name).

        Everything up to the version at which the watch `began` is known already. Within a watch only the events of one
        object are ordered: a new object is reported even if a newer version of another one came first.
        """
        try:
            event = orjson.loads(line)
            kind, body = event["type"], event["object"]
            if kind == "ERROR":
                raise status_error(f"{self._name}: watch", int(body.get("code", 500)), body)
            version = body["metadata"]["resourceVersion"]
            changes: Iterable[Change] = ()
            if kind in ("ADDED", "MODIFIED", "DELETED"):
                changes = self._known.watched(kind, body, began)
            elif kind != "BOOKMARK":
                log.warning("ignored a watch event of the unknown type %r at %s", kind, self._path)
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            raise BadAnswer(f"{self._name}: a line of the watch cannot be read ({error!r})") from error
        if _newer(version, self._version):
            self._version = version
        return changes

    async def _check_not_turned_back(self) -> None:
        """Raise Expired if the server's versions are behind ours: it was restored from a backup or created anew.

        Such a server does not refuse a watch from our version: it sends nothing until it has reached it.
        """
        head = await self._client.get(self._path, params={"limit": "1"})
        now = head.get("metadata", {}).get("resourceVersion", "")
        if now != self._version and _newer(self._version, now):
            self._version = ""
            raise Expired(f"{self._name}: the server has gone back to version {now}", code=410, status={})

    def _report(self, error: ClusterError) -> None:
        if self.failure is None:
            self._failing_since = self._clock()
            if not isinstance(error, Expired):
                log.warning("%s; trying again", error)
        self.failure = error

    def _recovered(self) -> None:
        if self.failure is not None:
            log.info("watching %s again", self._path)
            self.failure = None

    async def _pause(self) -> None:
        self._failures += 1
        await self._sleep(random.uniform(0.5, 1.0) * min(0.2 * 2 ** min(self._failures, 10), 30.0))


class _Known:
    """Uid and resourceVersion of each object that was reported, by key."""

    def __init__(self) -> None:
        self._objects: dict[str, tuple[str, str]] = {}

    def keys(self) -> set[str]:
        return set(self._objects)

    def version(self, key: str) -> str | None:
        known = self._objects.get(key)
        return None if known is None else known[1]

    def listed(self, item: Object, unseen: set[str]) -> list[Change]:
        """The changes that an item of a list implies, none if it is known; removes its key from `unseen`."""
        key, uid, version = _identify(item)
        unseen.discard(key)
        old = self._objects.get(key)
        if old == (uid, version):
            return []
        return self._store(key, uid, version, old, item)

    def watched(self, kind: ChangeType, body: Object, since: str) -> list[Change]:
        """The changes that a watch event implies; none if it is known. Everything up to version `since` is known."""
        key, uid, version = _identify(body)
        old = self._objects.get(key)
        if kind == "DELETED":
            if old is None or old[0] != uid or _newer(old[1], version):
                return []
            del self._objects[key]
            return [Change("DELETED", key, uid, body)]
        if not _newer(version, since if old is None else old[1]):
            return []
        return self._store(key, uid, version, old, body)

    def gone(self, keys: set[str]) -> list[Change]:
        """Forget `keys`, and report them as deleted."""
        return [Change("DELETED", key, self._objects.pop(key)[0], None) for key in keys]

    def _store(self, key: str, uid: str, version: str, old: tuple[str, str] | None, body: Object) -> list[Change]:
        self._objects[key] = (uid, version)
        if old is None:
            return [Change("ADDED", key, uid, body)]
        if old[0] == uid:
            return [Change("MODIFIED", key, uid, body)]
        return [Change("DELETED", key, old[0], None), Change("ADDED", key, uid, body)]


def _identify(body: Object) -> tuple[str, str, str]:
    metadata = body["metadata"]
    namespace, name = metadata.get("namespace"), metadata["name"]
    return f"{namespace}/{name}" if namespace else name, metadata["uid"], metadata["resourceVersion"]


def _newer(version: str, than: str) -> bool:
    """Whether resourceVersion `version` comes after `than`; comparable as decimal numbers since Kubernetes 1.35."""
    try:
        return int(version) > int(than)
    except ValueError:
        return version != than
