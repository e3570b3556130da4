"""Who may decide: one Sluice for each database, for as long as its process lives.

A lock keeps the second one out: on a file next to SQLite's, in PostgreSQL for a session. Should the lock be lost
unnoticed (a restarted database, a network partition), the epoch still stops the old leader's next commit.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlalchemy import func, select, update

from admission.store.errors import AlreadyRunning, DatabaseUnusable
from admission.store.tables import head

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from admission.store.database import Database

_ADVISORY_LOCK = 0x736C75696365
"""Any number that no other program uses in the same database: "sluice" in ASCII."""


class Leadership:
    """The lead on one database, once it is taken."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = AsyncExitStack()

    async def take(self, holder: str, *, at: float) -> int:
        """Take the lead as `holder` (host and process, for people) and return the new epoch.

        Taking it again, after StaleEpoch for example, gives up the old lock first. Raises AlreadyRunning.
        """
        await self.release()
        path = self._database.location.path
        lock = _file_lock(path.with_name(path.name + ".lock")) if path else _session_lock(self._database)
        if not await self._lock.enter_async_context(lock):
            await self.release()
            raise AlreadyRunning(await self._who_leads())
        try:
            async with self._database.write() as connection:
                statement = update(head).values(epoch=head.c.epoch + 1, holder=holder, held_since=at)
                return int(await connection.scalar(statement.returning(head.c.epoch)))
        except BaseException:
            await self.release()
            raise

    async def release(self) -> None:
        """Let another Sluice take the lead."""
        await self._lock.aclose()

    async def _who_leads(self) -> str:
        async with self._database.read() as connection:
            row = (await connection.execute(select(head.c.holder, head.c.held_since))).one()
        since = datetime.fromtimestamp(row.held_since, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if row.held_since else "?"
        return (
            f"another Sluice ({row.holder or 'just starting'}, since {since}) uses the database "
            f"{self._database.location}; stop it first or use another --database-url"
        )


@asynccontextmanager
async def _file_lock(path: Path) -> AsyncIterator[bool]:
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
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
async def _session_lock(database: Database) -> AsyncIterator[bool]:
    async with database.session() as connection:
        yield bool(await connection.scalar(select(func.pg_try_advisory_lock(_ADVISORY_LOCK))))
