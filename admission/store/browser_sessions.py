"""Browser sessions of the dashboard: encrypted bearer tokens, by digest of a secret that only the browser has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from sqlalchemy import delete, func, insert, select

from admission.store.database.tables import browser_sessions

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.store.database.connection import Database

_MAX_SESSIONS: Final = 1000
"""Limit on the number of sessions; a new one then replaces the oldest, so that signing in cannot fill the database."""


class SealedSession(NamedTuple):
    """A session that has not expired."""

    sealed_token: bytes
    """The encrypted bearer token. The key is not in the database."""
    seconds_left: float
    """Seconds until it expires."""


class BrowserSessions:
    """The browser sessions in the database. `clock` returns seconds since the epoch."""

    def __init__(self, database: Database, *, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock

    async def add(self, digest: str, sealed_token: bytes, *, seconds: float) -> None:
        """Add a session that expires after `seconds`, and delete expired ones. Raises StoreError."""
        now, columns = self._clock(), browser_sessions.c
        row = {"digest": digest, "sealed_token": sealed_token, "began_at": now, "ends_at": now + seconds}
        async with self._database.write() as connection:
            await connection.execute(delete(browser_sessions).where(columns.ends_at <= now))
            count = (await connection.execute(select(func.count()).select_from(browser_sessions))).scalar_one()
            if count >= _MAX_SESSIONS:
                oldest = select(columns.digest).order_by(columns.began_at).limit(count - _MAX_SESSIONS + 1)
                await connection.execute(delete(browser_sessions).where(columns.digest.in_(oldest)))
            await connection.execute(insert(browser_sessions).values(row))

    async def find(self, digest: str) -> SealedSession | None:
        """Return a session; None if it does not exist or has expired. Raises StoreError."""
        columns = browser_sessions.c
        statement = select(columns.sealed_token, columns.ends_at).where(columns.digest == digest)
        async with self._database.read() as connection:
            row = (await connection.execute(statement)).one_or_none()
        left = 0.0 if row is None else row.ends_at - self._clock()
        return SealedSession(row.sealed_token, left) if row is not None and left > 0 else None

    async def remove(self, digest: str) -> None:
        """Delete a session, if it exists. Raises StoreError."""
        async with self._database.write() as connection:
            await connection.execute(delete(browser_sessions).where(browser_sessions.c.digest == digest))
