"""Informer for one resource: list, then watch, with resumption after lost connections and 410 Gone, without gaps.

Three nested generators: `_stream` reads one watch request, `_list_and_watch` decides from which resourceVersion to
watch, or to list again, and `batches` retries after failures.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from contextlib import aclosing
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias

import orjson

from admission.cluster.errors import BadAnswer, Expired, IdleTimeout, Unreachable, status_error
from admission.model.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping

    from admission.cluster.client import Client, Object

log = logging.getLogger(__name__)

IDLE_TIMEOUT = 120.0
"""Seconds without data after which a watch is considered dead; bookmarks arrive about once a minute."""

WATCH_SECONDS = (300, 600)
"""Range of the random timeoutSeconds of a watch, so that watches spread over the API servers, as in client-go."""

MAX_LINE = 8 * 2**20
"""Bytes of a watch event, beyond which the stream is considered invalid: objects in etcd have 1.5 MiB at most."""

SHORT_WATCH = 1.0
"""Seconds; a watch that ends sooner counts as a failed attempt, which is followed by a backoff."""

ChangeType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]


@dataclass(frozen=True, slots=True)
class WatchedChange:
    """An object was added, modified or deleted.

    `key`: `namespace/name`, or `name` of a cluster-scoped object. `object`: None for an object that was deleted between
    two watches; `uid` is then the last known one.
    """

    type: ChangeType
    key: str
    uid: str
    object: Object | None


class Informer:
    """Changes of all objects of a collection, in batches.

    The informer keeps only uid and resourceVersion of each object: enough to find objects deleted between two watches,
    and to drop repeated events. A slow consumer stops the server by TCP backpressure, so memory does not grow.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        *,
        label_selector: str = "",
        field_selector: str = "",
        reported: Mapping[str, str] = MappingProxyType({}),
        page: int = 500,
        idle_timeout: float = IDLE_TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`reported`: uids by key of objects that a former informer has reported, see the method of that name.

        Those that the first list lacks are reported as deleted.
        """
        self._client = client
        self._path = path
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._params = {name: selector for name, selector in selectors.items() if selector}
        self._page = page
        self._idle_timeout = idle_timeout
        self._clock = clock
        self._sleep = sleep
        self._known = _KnownObjects(reported)
        self._version = ""
        self._failures = 0
        self.synced = asyncio.Event()
        """Set when the consumer has handled the whole first list (HasSynced); never cleared."""
        self.failure: ClusterError | None = None
        """The failure that interrupts the stream at present; None while a list or watch succeeds."""
        self._failing_since = 0.0

    def has_seen(self, key: str, version: str) -> bool:
        """Whether the object `key` (`namespace/name`) was reported with this resourceVersion or a newer one."""
        known = self._known.version(key)
        return known is not None and not _newer(version, known)

    def uid_of(self, key: str) -> str | None:
        """Return the uid of the object `key` (`namespace/name`) as last reported; None: there is none."""
        return self._known.uid(key)

    def reported(self) -> dict[str, str]:
        """Return the uids by key of the objects that were reported, and not deleted since."""
        return self._known.uids()

    @property
    def failing(self) -> float:
        """Seconds for which the stream has been interrupted; 0: it is not."""
        return 0.0 if self.failure is None else self._clock() - self._failing_since

    @property
    def _name(self) -> str:
        return f"GET {self._client.server}{self._path}"

    async def batches(self) -> AsyncGenerator[list[WatchedChange]]:
        """Yield all changes in non-empty batches, without end, starting with every existing object as ADDED.

        Changes of one key are in the order of the server. No ClusterError is raised: failures are retried with
        exponential backoff and jitter, and shown in `failure`. To stop, cancel the reading task, or close the generator
        (`aclosing`).
        """
        while True:
            try:
                async with aclosing(self._list_and_watch()) as batches:
                    async for batch in batches:
                        yield batch
            except ClusterError as error:
                self._note_failure(error)
            await self._pause()

    def forget(self) -> list[WatchedChange]:
        """Return the deletions of all reported objects, because the resource does not exist any more.

        Must not be called while `batches` is being read.
        """
        return self._known.delete(self._known.keys())

    async def _list_and_watch(self) -> AsyncGenerator[list[WatchedChange]]:
        """List if there is no version to watch from, then watch again and again until the version expires."""
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
                self._version = ""  # list again: a watch from the same version would get the unreadable event again
                raise
            except IdleTimeout:
                broke = True  # a dead connection or a quiet cluster: the request below fails in the first case
            except Unreachable as error:
                self._note_failure(error)
                broke = True
            finally:
                short = self._clock() - began < SHORT_WATCH
                if not short:
                    self._failures = 0
            if broke or self._version == before:
                await self._check_not_reset()
            if short:
                await self._pause()

    async def _list(self) -> AsyncGenerator[list[WatchedChange]]:
        """Yield the differences between a new list and the known objects, page by page; deletions come last."""
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
                limit = 0  # the snapshot has expired before the last page: an unpaged list cannot expire
            except (KeyError, TypeError, AttributeError) as error:
                raise BadAnswer(f"{self._name}: the answer is no list ({error!r})") from error
        if deletions := self._known.delete(unseen):
            yield deletions
        self._version = version
        self._note_success()

    async def _stream(self) -> AsyncGenerator[list[WatchedChange]]:
        """Yield the changes of one watch from `_version` on, until the server ends it."""
        began = self._version
        params = self._params | {
            "watch": "1",
            "resourceVersion": began,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(*WATCH_SECONDS)),
        }
        rest = b""
        async with self._client.stream(self._path, params=params, idle_timeout=self._idle_timeout) as chunks:
            self._note_success()
            async for chunk in chunks:
                *lines, rest = (rest + chunk).split(b"\n")
                batch: list[WatchedChange] = []
                failure: ClusterError | None = None
                try:
                    for line in filter(None, lines):
                        batch += self._read(line, began)
                except ClusterError as error:
                    failure = error
                if batch:
                    yield batch  # also before raising a failure: these changes are noted as reported
                if failure is not None:
                    raise failure
                if len(rest) > MAX_LINE:
                    raise BadAnswer(f"{self._name}: an event of the watch is over {MAX_LINE} bytes")

    def _read(self, line: bytes, began: str) -> Iterable[WatchedChange]:
        """Return the changes of one line of a watch: none, one, or two (an object was deleted and recreated).

        Events up to the version at which the watch `began` were reported already. Within a watch only the events of one
        object are ordered: a new object is reported even if a newer version of another one came first.
        """
        try:
            event = orjson.loads(line)
            kind, body = event["type"], event["object"]
            if kind == "ERROR":
                raise status_error(f"{self._name}: watch", int(body.get("code", 500)), body)
            version = body["metadata"]["resourceVersion"]
            changes: Iterable[WatchedChange] = ()
            if kind in ("ADDED", "MODIFIED", "DELETED"):
                changes = self._known.watched(kind, body, began)
            elif kind != "BOOKMARK":
                log.warning("ignored a watch event of the unknown type %r at %s", kind, self._path)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadAnswer(f"{self._name}: a line of the watch cannot be read ({error!r})") from error
        if _newer(version, self._version):
            self._version = version
        return changes

    async def _check_not_reset(self) -> None:
        """Raise Expired if the server's resourceVersion is lower than ours: etcd was restored or recreated.

        A watch from a version in the future is not rejected: the server sends nothing until it has reached that.
        """
        head = await self._client.get(self._path, params={"limit": "1"})
        metadata = head.get("metadata")
        now = str(metadata.get("resourceVersion", "")) if isinstance(metadata, dict) else ""
        if now != self._version and _newer(self._version, now):
            self._version = ""
            raise Expired(f"{self._name}: the server has gone back to version {now}", code=410, status={})

    def _note_failure(self, error: ClusterError) -> None:
        if self.failure is None:
            self._failing_since = self._clock()
            if not isinstance(error, Expired):  # of an API server that is away the probe warns, once for all watches
                log.log(logging.INFO if isinstance(error, Unreachable) else logging.WARNING, "%s; trying again", error)
        self.failure = error

    def _note_success(self) -> None:
        if self.failure is not None:
            log.info("watching %s again", self._path)
            self.failure = None

    async def _pause(self) -> None:
        self._failures += 1
        await self._sleep(random.uniform(0.5, 1.0) * min(0.2 * 2 ** min(self._failures, 10), 30.0))


class _KnownObjects:
    """Uid and resourceVersion of each reported object, by key."""

    def __init__(self, uids: Mapping[str, str]) -> None:
        """`uids`: by key, of objects in an unknown version, so that each is reported when it is listed."""
        self._objects = {key: (uid, "") for key, uid in uids.items()}

    def keys(self) -> set[str]:
        return set(self._objects)

    def uids(self) -> dict[str, str]:
        return {key: uid for key, (uid, _) in self._objects.items()}

    def uid(self, key: str) -> str | None:
        known = self._objects.get(key)
        return None if known is None else known[0]

    def version(self, key: str) -> str | None:
        known = self._objects.get(key)
        return None if known is None else known[1]

    def listed(self, item: Object, unseen: set[str]) -> list[WatchedChange]:
        """Return the changes by an item of a list, none if it is known; remove its key from `unseen`."""
        key, uid, version = _identify(item)
        unseen.discard(key)
        old = self._objects.get(key)
        if old == (uid, version):
            return []
        return self._store(key, uid, version, old, item)

    def watched(self, kind: ChangeType, body: Object, since: str) -> list[WatchedChange]:
        """Return the changes by a watch event, none if it is known. Everything up to version `since` is known."""
        key, uid, version = _identify(body)
        old = self._objects.get(key)
        if kind == "DELETED":
            if old is None or old[0] != uid or _newer(old[1], version):
                return []
            del self._objects[key]
            return [WatchedChange("DELETED", key, uid, body)]
        if not _newer(version, since if old is None else old[1]):
            return []
        return self._store(key, uid, version, old, body)

    def delete(self, keys: set[str]) -> list[WatchedChange]:
        """Remove these keys, and return their deletions."""
        return [WatchedChange("DELETED", key, self._objects.pop(key)[0], None) for key in keys]

    def _store(
        self, key: str, uid: str, version: str, old: tuple[str, str] | None, body: Object
    ) -> list[WatchedChange]:
        self._objects[key] = (uid, version)
        if old is None:
            return [WatchedChange("ADDED", key, uid, body)]
        if old[0] == uid:
            return [WatchedChange("MODIFIED", key, uid, body)]
        return [WatchedChange("DELETED", key, old[0], None), WatchedChange("ADDED", key, uid, body)]


def _identify(body: Object) -> tuple[str, str, str]:
    metadata = body["metadata"]
    namespace, name = metadata.get("namespace"), metadata["name"]
    return f"{namespace}/{name}" if namespace else name, metadata["uid"], metadata["resourceVersion"]


def _newer(version: str, than: str) -> bool:
    """Whether resourceVersion `version` is newer than `than`; comparable as decimal integers since Kubernetes 1.35."""
    try:
        return int(version) > int(than)
    except ValueError:
        return version != than
