"""The leadership lock: one Sluice decides for each database.

Where replicas elect a leader, the epoch alone fences: an elected replica takes the next epoch, and every commit of an
older epoch is refused, however late it comes. Without an election a lock keeps a second Sluice out as well, and out of
a database on which an elected one leads: on a file next to SQLite's, in PostgreSQL for a transaction that stays open as
long as the lead. Should that be lost unnoticed (a restarted database, a network partition), there is still the epoch.
"""

from __future__ import annotations

import fcntl
import logging
import os
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import func, select, text, update

from admission.store.database.tables import head
from admission.store.errors import AlreadyRunning, DatabaseBusy, DatabaseUnusable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from admission.store.database.connection import Database

log = logging.getLogger(__name__)

_ADVISORY_LOCK = 0x736C75696365
"""Any number that no other program uses in the same database: "sluice" in ASCII."""


_ATTEMPTS = 3

_END_STUCK_WRITERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid) "
    "WHERE relation = 'head'::regclass AND mode IN ('RowExclusiveLock', 'RowShareLock') AND wait_event_type = 'Client' "
    "AND datname = current_database() AND xact_start IS NOT NULL "
    "AND state_change < clock_timestamp() - interval '2 seconds'"
)
"""Sessions that have the row locked and have waited for their client for seconds: of a frozen or disconnected process.

One that goes on is left alone, however long its transaction is.

PostgreSQL's own limit, `idle_in_transaction_session_timeout`, does not hold for one that has just prepared a statement:
asyncpg sends the message that makes it idle with the values.
"""


_THAT_OTHERS_WAIT_FOR = (
    " AND EXISTS (SELECT FROM pg_stat_activity AS other "
    "WHERE other.wait_event_type = 'Lock' AND pg_locks.pid = ANY(pg_blocking_pids(other.pid)))"
)


class Lead(NamedTuple):
    """What a new leader has to know."""

    epoch: int
    last: float | None
    """Time of the last leader's last write by its clock (Unix time, s); None: there was none."""


class Leadership:
    """The leadership of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = AsyncExitStack()

    async def take(self, holder: str, *, at: float, elected: bool) -> Lead:
        """Take the lead as `holder` (host and process, for people).

        Taking it again, after StaleEpoch for example, gives up the old lock first. Raises AlreadyRunning, unless the
        holder was `elected` on PostgreSQL.
        """
        await self.release()
        path = self._database.location.path
        if path is None and elected:
            lead = await self._depose(holder, at=at)
            # An elected leader ignores this lock; it keeps out processes that were not elected.
            await self._lock.enter_async_context(_transaction_lock(self._database, shared=True))
            return lead
        lock = _file_lock(path.with_name(path.name + ".lock")) if path else _transaction_lock(self._database)
        if not await self._lock.enter_async_context(lock):
            await self.release()
            raise AlreadyRunning(await self._who_leads())
        try:
            return await self._next_epoch(holder, at=at)
        except BaseException:
            await self.release()
            raise

    async def _depose(self, holder: str, *, at: float) -> Lead:
        """Take the next epoch from a leader that may have been frozen in the middle of a commit."""
        for _ in range(_ATTEMPTS):
            # First of all: what this process writes for its own users waits for the same row, and is before us.
            await self.end_stuck_writers()
            with suppress(DatabaseBusy):
                return await self._next_epoch(holder, at=at, lock_timeout="1s")
        await self.end_stuck_writers()
        return await self._next_epoch(holder, at=at)

    async def end_stuck_writers(self, which: str = "") -> None:
        """End what a frozen or disconnected process has begun to write, which keeps all others from it."""
        if self._database.location.path is None:
            async with self._database.read() as connection:
                ended = (await connection.execute(text(_END_STUCK_WRITERS + which))).all()
            if ended:
                log.warning("ended %d sessions of PostgreSQL that had the database locked and stood still", len(ended))

    async def unblock(self) -> None:
        """As `end_stuck_writers`, but only where somebody waits: a restore of ours may stand still for its input."""
        await self.end_stuck_writers(_THAT_OTHERS_WAIT_FOR)

    async def _next_epoch(self, holder: str, *, at: float, lock_timeout: str = "") -> Lead:
        async with self._database.write() as connection:
            if lock_timeout:
                await connection.execute(select(func.set_config("lock_timeout", lock_timeout, True)))
            statement = update(head).values(epoch=head.c.epoch + 1, holder=holder, held_since=at)
            row = (await connection.execute(statement.returning(head.c.epoch, head.c.decided_at))).one()
            return Lead(*row)

    async def release(self) -> None:
        """Give up the leadership."""
        await self._lock.aclose()

    async def _who_leads(self) -> str:
        async with self._database.read() as connection:
            row = (await connection.execute(select(head.c.holder, head.c.held_since))).one()
        since = datetime.fromtimestamp(row.held_since, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if row.held_since else "?"
        return (
            f"another Sluice ({row.holder or 'just starting'}, since {since}) uses the database "
            f"{self._database.location}; stop it first, or use PostgreSQL, which several may share"
        )


@asynccontextmanager
async def _file_lock(path: Path) -> AsyncIterator[bool]:
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise DatabaseUnusable(
            f"the lock file {path} cannot be written ({error.strerror}); make it writable"
        ) from error
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(file)


@asynccontextmanager
async def _transaction_lock(database: Database, *, shared: bool = False) -> AsyncIterator[bool]:
    lock = func.pg_try_advisory_xact_lock_shared if shared else func.pg_try_advisory_xact_lock
    async with database.lock_transaction() as connection:
        yield bool(await connection.scalar(select(lock(_ADVISORY_LOCK))))
