"""Watches: one change stream for each resource, fanned out to all of its watchers.

A stream polls the database for changes, also for those of other processes, and publishes them to shared watches: one
for all watchers with the same selection and representation, which encodes each event once. Slow clients delay nobody:
they are disconnected, and resume.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from typing import TYPE_CHECKING

from admission.api.auth.identity import AuthMethod, identity
from admission.api.errors import TooManyRequests
from admission.api.watch.changes import QueueObjectSource, StatusSchedule, WorkloadSource
from admission.api.watch.shared_watch import SharedWatch
from admission.api.watch.watch_request import Watcher, WatchOptions
from admission.model.errors import StoreError
from admission.serving.connections import ConnectionLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from admission.api.documents.representation import Representation
    from admission.api.documents.selection import Selection
    from admission.api.registry import Resource
    from admission.api.watch.changes import ChangeSource, ObjectChange
    from admission.store.store import Store

MIN_POLL_SECONDS = 0.05
"""Shortest interval between two polls of the database by a stream."""
WRITES_PER_SECOND = 2_000
"""Most writes to sockets by a stream: with more watchers it polls less often, and sends more events together."""
LINGER_SECONDS = 60.0
"""Time that a shared watch without watchers is kept, for watchers that resume after a broken connection."""
CONNECTION_CHECK_SECONDS = 5.0
"""Interval of the check for watchers whose connections broke."""
MAX_WATCHERS = 10_000
"""Most watchers of this process; further requests are answered by 429."""
MAX_WATCHERS_PER_USER = 1_000
"""Most watchers of one user; a quarter of the process's connections if that is less (few open files allowed)."""
_RETRY_SECONDS = 5
"""Retry-After of these answers."""

log = logging.getLogger(__name__)


class Watches:
    """All watches of this process. `now` returns the Unix time (s)."""

    def __init__(self, store: Store, *, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now
        self._streams: dict[str, ChangeStream] = {}
        self._status_schedule = StatusSchedule(time.monotonic, time.process_time)
        self._watchers_by_user: Counter[str] = Counter()
        self._quarter = ConnectionLimits.for_this_process().total // 4

    async def serve(
        self, request: web.Request, representation: Representation, selection: Selection
    ) -> web.StreamResponse:
        """Answer with events until the client disconnects, or the watch times out.

        Raises BadRequest, InvalidObject and TooManyRequests.
        """
        options = WatchOptions.of(request)
        if sum(stream.watchers for stream in self._streams.values()) >= MAX_WATCHERS:
            raise TooManyRequests("too many watches are open", retry_after=_RETRY_SECONDS)
        who = identity(request)
        # The admin token is not limited: its holder has all rights anyway.
        user = "" if who.auth_method is AuthMethod.ADMIN_TOKEN else who.name
        most = min(MAX_WATCHERS_PER_USER, self._quarter)
        if user and self._watchers_by_user[user] >= most:
            raise TooManyRequests(
                f"{user} has {most} watches open, the limit for one user: close some, or watch all namespaces at once",
                retry_after=_RETRY_SECONDS,
            )
        self._watchers_by_user[user] += 1
        try:
            return await self._serve(request, representation, selection, options)
        finally:
            self._watchers_by_user[user] -= 1
            if not self._watchers_by_user[user]:
                del self._watchers_by_user[user]

    async def _serve(
        self, request: web.Request, representation: Representation, selection: Selection, options: WatchOptions
    ) -> web.StreamResponse:
        resource = representation.resource
        stream = self._streams.get(resource.plural)
        if stream is None:
            stream = self._streams[resource.plural] = ChangeStream(self._store, self._source(resource), now=self._now)
        try:
            shared = await stream.shared_watch(representation, selection)
            return await Watcher(shared, options).serve(request)
        finally:
            stream.release(representation, selection)

    async def close(self) -> None:
        """End all watches."""
        for stream in self._streams.values():
            await stream.close()

    def _source(self, resource: Resource) -> ChangeSource:
        if not resource.is_of_queue_objects:
            return WorkloadSource(self._store, now=self._now)
        return QueueObjectSource(self._store, resource.kind, self._status_schedule)


class ChangeStream:
    """Publishes the changes of one resource to its shared watches; polls the database while there are any."""

    def __init__(self, store: Store, source: ChangeSource, *, now: Callable[[], float]) -> None:
        self._store = store
        self._source = source
        self._now = now
        self._shared: dict[tuple[Representation, Selection], SharedWatch] = {}
        self._expiring: dict[tuple[Representation, Selection], asyncio.TimerHandle] = {}
        """Timers that drop shared watches without watchers."""
        self._starting = asyncio.Lock()
        self._position = 0
        """Revision up to which changes have been read."""
        self._task: asyncio.Task[None] | None = None
        self._connection_check: asyncio.TimerHandle | None = None

    @property
    def watchers(self) -> int:
        """Number of watchers."""
        return sum(len(shared.watchers) for shared in self._shared.values())

    async def shared_watch(self, representation: Representation, selection: Selection) -> SharedWatch:
        """Return the shared watch for a representation and selection, with its members loaded; start the polling."""
        async with self._starting:
            if self._task is not None and self._task.cancelling():
                await asyncio.wait([self._task])  # its last watcher has left; its end must not be that of this one
            if self._task is None or self._task.done():
                self._forget_all()
                self._position = await self._source.begin()
                self._task = asyncio.create_task(self._run(), name="watch")
        key = representation, selection
        if (timer := self._expiring.pop(key, None)) is not None:
            timer.cancel()
        shared = self._shared.get(key)
        if shared is None:
            shared = SharedWatch(self._source, representation, selection, self._position, now=self._now)
            self._shared[key] = shared
        await shared.load_members()
        return shared

    def release(self, representation: Representation, selection: Selection) -> None:
        """Note that a watcher has left, or could not begin: without any the shared watch is kept for LINGER_SECONDS."""
        key = representation, selection
        shared = self._shared.get(key)
        if shared is not None and not shared.watchers and key not in self._expiring:
            self._expiring[key] = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._expire, key)

    async def close(self) -> None:
        """Stop polling, and end all watches."""
        self._end_watches()
        self._forget_all()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _expire(self, key: tuple[Representation, Selection]) -> None:
        del self._expiring[key]
        if not self._shared[key].watchers:
            del self._shared[key]
        if not self._shared and self._task is not None:
            self._task.cancel()

    def _forget_all(self) -> None:
        for timer in self._expiring.values():
            timer.cancel()
        self._expiring.clear()
        self._shared.clear()

    def _end_watches(self) -> None:
        for shared in self._shared.values():
            for watcher in [*shared.watchers]:
                watcher.end()

    def _check_connections(self) -> None:
        for shared in self._shared.values():
            for watcher in shared.watchers:
                watcher.check_connection()
        loop = asyncio.get_running_loop()
        self._connection_check = loop.call_later(CONNECTION_CHECK_SECONDS, self._check_connections)

    async def _run(self) -> None:
        self._check_connections()
        try:
            while True:
                await self._wait()
                try:
                    changes, upto = await self._source.poll(self._position)
                except StoreError as error:
                    log.warning("watches wait for the database: %s", error)
                else:
                    self._position = upto
                    self._publish(changes, upto)
                await asyncio.sleep(max(MIN_POLL_SECONDS, self.watchers / WRITES_PER_SECOND))
        except Exception:
            log.exception("the watches of a resource failed; its clients will reconnect")
            raise
        finally:
            if self._connection_check is not None:
                self._connection_check.cancel()
            self._end_watches()

    def _publish(self, changes: list[ObjectChange], upto: int) -> None:
        """Publish changes to each shared watch; to those of one namespace only the changes in it."""
        by_namespace: dict[str, list[ObjectChange]] = {}
        for change in changes:
            by_namespace.setdefault(change.namespace, []).append(change)
        for shared in self._shared.values():
            namespace = shared.selection.namespace
            shared.publish(changes if namespace is None else by_namespace.get(namespace, ()), upto)

    async def _wait(self) -> None:
        """Wait until something was written, or the status of queue objects is due to be computed again."""
        try:
            async with asyncio.timeout(self._source.pause()):
                await self._store.revisions.wait_for(self._position)
        except TimeoutError:
            return
