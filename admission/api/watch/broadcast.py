"""Watches: one stream of changes for each resource, shared by all who watch it, however many they are.

A stream reads what has changed, whoever wrote it, and hands it to groups of watchers who asked for the same. A group
writes each event once. Nobody waits for a slow client: it is cut off, and resumes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from typing import TYPE_CHECKING

from admission.api.auth.authentication import AuthMethod, identity
from admission.api.errors import TooManyRequests
from admission.api.watch.changes import QueueObjectSource, StatusPace, WorkloadSource
from admission.api.watch.shared_watch import Group
from admission.api.watch.watch_request import Watcher, WatchOptions
from admission.model.errors import StoreError
from admission.serving.connections import ConnectionLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from admission.api.documents.representation import Representation
    from admission.api.documents.selection import Selection
    from admission.api.registry import Resource
    from admission.api.watch.changes import Change, Source
    from admission.store.store import Store

PACE_SECONDS = 0.05
"""The database is not read more often for watches than that."""
WRITES_PER_SECOND = 2_000
"""The more watchers there are, the more events are sent together; so many sockets are written to, at most."""
LINGER_SECONDS = 60.0
"""A group is kept so long for watchers whose connections broke."""
LOOK_SECONDS = 5.0
"""So often it is looked for watchers whose connections broke."""
MOST_WATCHERS = 10_000
MOST_OF_ONE_USER = 1_000
"""Fewer where the process may open few files: a quarter of its connections."""
_RETRY_SECONDS = 5

log = logging.getLogger(__name__)


class Watches:
    """All watches of this process. `now` gives seconds since the epoch."""

    def __init__(self, store: Store, *, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now
        self._streams: dict[str, Stream] = {}
        self._pace = StatusPace(time.monotonic, time.process_time)
        self._of_users: Counter[str] = Counter()
        self._quarter = ConnectionLimits.for_this_process().total // 4

    async def serve(self, request: web.Request, form: Representation, selection: Selection) -> web.StreamResponse:
        """Answer with events until the client has enough. Raises BadRequest, InvalidObject and TooManyRequests."""
        options = WatchOptions.of(request)
        if sum(stream.watchers for stream in self._streams.values()) >= MOST_WATCHERS:
            raise TooManyRequests("too many watches are open", retry_after=_RETRY_SECONDS)
        who = identity(request)
        # Who has the admin's token can stop the process as well.
        user = "" if who.auth_method is AuthMethod.ADMIN_TOKEN else who.name
        most = min(MOST_OF_ONE_USER, self._quarter)
        if user and self._of_users[user] >= most:
            raise TooManyRequests(
                f"{user} has {most} watches open, and one user may have no more: close some, or watch "
                "all namespaces at once",
                retry_after=_RETRY_SECONDS,
            )
        self._of_users[user] += 1
        try:
            return await self._serve(request, form, selection, options)
        finally:
            self._of_users[user] -= 1
            if not self._of_users[user]:
                del self._of_users[user]

    async def _serve(
        self, request: web.Request, form: Representation, selection: Selection, options: WatchOptions
    ) -> web.StreamResponse:
        stream = self._streams.get(form.resource.plural)
        if stream is None:
            stream = self._streams[form.resource.plural] = Stream(
                self._store, self._source(form.resource), now=self._now
            )
        group = await stream.group(form, selection)
        watcher = Watcher(group, options)
        try:
            return await watcher.serve(request)
        finally:
            stream.left(form, selection)

    async def close(self) -> None:
        """End all of them."""
        for stream in self._streams.values():
            await stream.close()

    def _source(self, resource: Resource) -> Source:
        if resource.model is None:
            return WorkloadSource(self._store, now=self._now)
        return QueueObjectSource(self._store, resource.kind, self._pace)


class Stream:
    """The changes of one resource, read as long as somebody watches."""

    def __init__(self, store: Store, source: Source, *, now: Callable[[], float]) -> None:
        self._store = store
        self._source = source
        self._now = now
        self._groups: dict[tuple[Representation, Selection], Group] = {}
        self._leaving: dict[tuple[Representation, Selection], asyncio.TimerHandle] = {}
        self._beginning = asyncio.Lock()
        self._position = 0
        self._task: asyncio.Task[None] | None = None
        self._looking: asyncio.TimerHandle | None = None

    @property
    def watchers(self) -> int:
        """How many watch."""
        return sum(len(group.watchers) for group in self._groups.values())

    async def group(self, form: Representation, selection: Selection) -> Group:
        """Those who watch the same, ready to be joined."""
        async with self._beginning:
            if self._task is None or self._task.done():
                self._groups.clear()
                self._position = await self._source.begin()
                self._task = asyncio.create_task(self._run(), name="watch")
        key = form, selection
        if (leaving := self._leaving.pop(key, None)) is not None:
            leaving.cancel()
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(self._source, form, selection, self._position, now=self._now)
        await group.ready()
        return group

    def left(self, form: Representation, selection: Selection) -> None:
        """A watcher has gone; the last one's group is kept for a while."""
        key = form, selection
        group = self._groups.get(key)
        if group is not None and not group.watchers and key not in self._leaving:
            self._leaving[key] = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._forget, key)

    async def close(self) -> None:
        """Send everybody away."""
        for leaving in self._leaving.values():
            leaving.cancel()
        self._end()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _forget(self, key: tuple[Representation, Selection]) -> None:
        del self._leaving[key]
        if not self._groups[key].watchers:
            del self._groups[key]
        if not self._groups and self._task is not None:
            self._task.cancel()

    def _end(self) -> None:
        for group in self._groups.values():
            for watcher in [*group.watchers]:
                watcher.end()

    def _look(self) -> None:
        for group in self._groups.values():
            for watcher in group.watchers:
                watcher.look()
        self._looking = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    async def _run(self) -> None:
        self._look()
        try:
            while True:
                await self._wait()
                try:
                    changes, upto = await self._source.live(self._position)
                except StoreError as error:
                    log.warning("watches wait for the database: %s", error)
                else:
                    self._position = upto
                    self._tell(changes, upto)
                await asyncio.sleep(max(PACE_SECONDS, self.watchers / WRITES_PER_SECOND))
        except Exception:
            log.exception("the watches of a resource failed; its clients will ask again")
            raise
        finally:
            if self._looking is not None:
                self._looking.cancel()
            self._end()

    def _tell(self, changes: list[Change], upto: int) -> None:
        """Hand each group what can concern it."""
        by_namespace: dict[str, list[Change]] = {}
        for change in changes:
            by_namespace.setdefault(change.namespace, []).append(change)
        for group in self._groups.values():
            namespace = group.selection.namespace
            group.feed(changes if namespace is None else by_namespace.get(namespace, ()), upto)

    async def _wait(self) -> None:
        """Until something was written, or the source wants to look again."""
        try:
            async with asyncio.timeout(self._source.pause()):
                await self._store.revisions.wait_for(self._position)
        except TimeoutError:
            return
