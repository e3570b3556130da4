"""Leadership of a database: only one Sluice decides, by a fencing epoch and, without leader election, a lock.

An elected replica takes the next epoch, and every commit with an older epoch fails, however late it arrives. Without
election (`elected=False`) an exclusive lock keeps a second Sluice out as well: flock on a file beside SQLite's, or in
PostgreSQL an advisory lock of a transaction that stays open as long as the lead. An elected leader holds that lock
shared, so that a Sluice without election cannot start beside it. If the lock is lost unnoticed (a restarted database, a
network partition), the epoch still fences.
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
"""Key of the advisory lock, "sluice" in ASCII. No other program that uses the database may have the same key."""

_ATTEMPTS = 3
"""Attempts to take the next epoch with a short lock timeout, before one with the ordinary timeout."""

_END_STUCK_WRITERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid) "
    "WHERE relation = 'head'::regclass AND mode IN ('RowExclusiveLock', 'RowShareLock') AND wait_event_type = 'Client' "
    "AND datname = current_database() AND xact_start IS NOT NULL "
    "AND state_change < clock_timestamp() - interval '2 seconds'"
)
"""Terminates sessions that have the row of `head` locked and have waited for their client for two seconds or more.

Those belong to a frozen or disconnected process; sessions that make progress are left alone, however long their
transaction is. PostgreSQL's `idle_in_transaction_session_timeout` does not cover a session that has only prepared a
statement: asyncpg sends the Sync message, which makes the session idle, together with the values.
"""


_THAT_BLOCK_OTHERS = (
    " AND EXISTS (SELECT FROM pg_stat_activity AS other "
    "WHERE other.wait_event_type = 'Lock' AND pg_locks.pid = ANY(pg_blocking_pids(other.pid)))"
)


class Lead(NamedTuple):
    """Epoch of a new leader, and the last write of its predecessor."""

    epoch: int
    last_write_at: float | None
    """Time of the former leader's last write, by its clock (Unix time, s); None: no leader has written yet."""


class Leadership:
    """The leadership of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = AsyncExitStack()

    async def take(self, holder: str, *, at: float, elected: bool) -> Lead:
        """Become the leader as `holder` (host and process, for display) at `at` (Unix time, s).

        A repeated call, after StaleEpoch for example, releases the old lock first. Raises AlreadyRunning if another
        Sluice is the leader, unless the holder was `elected` on PostgreSQL.
        """
        await self.release()
        path = self._database.location.path
        if path is None and elected:
            lead = await self._depose(holder, at=at)
            # The result is ignored: the lock does not fence an elected leader, it keeps out a Sluice without election.
            await self._lock.enter_async_context(_transaction_lock(self._database, shared=True))
            return lead
        lock = _file_lock(path.with_name(path.name + ".lock")) if path else _transaction_lock(self._database)
        if not await self._lock.enter_async_context(lock):
            await self.release()
            raise AlreadyRunning(await self._already_running_message())
        try:
            return await self._next_epoch(holder, at=at)
        except BaseException:
            await self.release()
            raise

    async def _depose(self, holder: str, *, at: float) -> Lead:
        """Take the next epoch from a leader that may be frozen in the middle of a commit."""
        for _ in range(_ATTEMPTS):
            # First end blocked sessions: writes of this process for API users wait for the same row, ahead of this one.
            await self.end_stuck_writers()
            with suppress(DatabaseBusy):
                return await self._next_epoch(holder, at=at, lock_timeout="1s")
        await self.end_stuck_writers()
        return await self._next_epoch(holder, at=at)

    async def end_stuck_writers(self, which: str = "") -> None:
        """Terminate PostgreSQL sessions of a frozen or disconnected process that block all other writes.

        `which`: a further SQL condition.
        """
        if self._database.location.path is None:
            async with self._database.read() as connection:
                ended = (await connection.execute(text(_END_STUCK_WRITERS + which))).all()
            if ended:
                log.warning("terminated %d idle PostgreSQL sessions that had the database locked", len(ended))

    async def unblock(self) -> None:
        """Call `end_stuck_writers` for sessions that block others only: an import may be idle waiting for its input."""
        await self.end_stuck_writers(_THAT_BLOCK_OTHERS)

    async def _next_epoch(self, holder: str, *, at: float, lock_timeout: str = "") -> Lead:
        async with self._database.write() as connection:
            if lock_timeout:
                await connection.execute(select(func.set_config("lock_timeout", lock_timeout, True)))
            statement = update(head).values(epoch=head.c.epoch + 1, holder=holder, held_since=at)
            row = (await connection.execute(statement.returning(head.c.epoch, head.c.decided_at))).one()
            return Lead(*row)

    async def release(self) -> None:
        """Release the lock. The epoch stays valid until another leader takes the next one."""
        await self._lock.aclose()

    async def _already_running_message(self) -> str:
        async with self._database.read() as connection:
            row = (await connection.execute(select(head.c.holder, head.c.held_since))).one()
        since = datetime.fromtimestamp(row.held_since, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if row.held_since else "?"
        location = self._database.location
        several = (
            "use PostgreSQL, which several may share" if location.path else "start all replicas with the same --lease"
        )
        return (
            f"another Sluice ({row.holder or 'just starting'}, since {since}) uses the database {location}; "
            f"stop it first, or {several}"
        )


@asynccontextmanager
async def _file_lock(path: Path) -> AsyncIterator[bool]:
    """Lock a file exclusively during the block, without waiting; yield whether the lock was free."""
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
    """Hold the advisory lock during the block, without waiting for it; yield whether it was free."""
    lock = func.pg_try_advisory_xact_lock_shared if shared else func.pg_try_advisory_xact_lock
    async with database.lock_transaction() as connection:
        yield bool(await connection.scalar(select(lock(_ADVISORY_LOCK))))
