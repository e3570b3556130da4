"""The store as everybody else sees it: open it, take the lead, load, commit, read."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from sqlalchemy import select

from admission.model.errors import StoreError
from admission.store import loading, rollup, schema
from admission.store.database import Location, connect
from admission.store.leadership import Leadership
from admission.store.queues import Queues, all_objects
from admission.store.records import LoadedState, Statistics
from admission.store.tables import head
from admission.store.workloads import Workloads
from admission.store.writer import Writer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from admission.store.database import Database
    from admission.store.records import Changes


class Store:
    """One database. Reads and queue objects are for everybody; `commit` is for the one who has taken the lead."""

    def __init__(self, database: Database, *, clock: Callable[[], float]) -> None:
        self.queues = Queues(database, clock=clock, changed=self._queues_changed)
        """Queue objects: list, get, create, replace, delete, versions, changes_since."""
        self.workloads = Workloads(database)
        """Workloads, for reading: list, get, status numbers."""
        self._database = database
        self._clock = clock
        self._writer = Writer(database)
        self._leadership = Leadership(database)
        self._queue_revision = 0
        self._queue_change = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, *, clock: Callable[[], float] = time.time) -> AsyncIterator[Store]:
        """The store at `url` (`sqlite:///FILE` or `postgresql://...`), closed at the end of the block.

        `clock` gives seconds since the epoch. Raises InvalidDatabaseUrl, DatabaseUnavailable (DatabaseBusy),
        DatabaseUnusable (no rights, no such file, no database file) and SchemaMismatch (to be migrated first).
        """
        database = connect(Location.parse(url))
        store = cls(database, clock=clock)
        async with AsyncExitStack() as closing:
            closing.push_async_callback(database.close)
            closing.push_async_callback(store._leadership.release)
            closing.push_async_callback(store._writer.close)
            await schema.check(database)
            yield store

    async def lead(self, holder: str) -> int:
        """Take the lead as `holder` (host and process, for people) and return the epoch that `commit` wants.

        Raises AlreadyRunning if another Sluice has it.
        """
        return await self._leadership.take(holder, at=self._clock())

    async def load(self) -> LoadedState:
        """All that a restarted Sluice has to know, as of one moment."""
        async with self._database.read() as connection:
            revision = (await connection.execute(select(head.c.revision))).scalar_one()
            return LoadedState(await all_objects(connection), await loading.unfinished(connection), revision)

    async def commit(self, changes: Changes, *, epoch: int) -> int:
        """Write all of `changes` or nothing, together with what others commit at the same time; the new revision.

        Raises StaleEpoch, ContradictsLedger (a workload would hold quota twice), DatabaseUnavailable (it is not known
        whether the changes were written: load again) and DatabaseUnusable (read-only, disk full: try again later).
        """
        return await self._writer.commit(changes, epoch=epoch)

    async def roll_up(self, *, epoch: int) -> int:
        """Sum up the ledger's hours that are over (see `rollup`), and return how many. Raises StaleEpoch."""
        return await rollup.roll_up(self._database, now=self._clock(), epoch=epoch)

    async def queues_changed(self, since: int) -> None:
        """Wait until a queue object was written in this process with a revision above `since`."""
        while self._queue_revision <= since:
            await self._queue_change.wait()

    async def health(self) -> str | None:
        """None if the database answers, else the sentence that says why not."""
        try:
            async with self._database.read() as connection:
                await connection.execute(select(head.c.revision))
        except StoreError as error:
            return str(error)
        return None

    @property
    def statistics(self) -> Statistics:
        """What was written since the store was opened."""
        return Statistics(write_transactions=self._database.write_transactions, commits=self._writer.commits)

    def _queues_changed(self, revision: int) -> None:
        self._queue_revision = revision
        # Whoever waits is woken; whoever comes later waits for the next change.
        self._queue_change.set()
        self._queue_change = asyncio.Event()
