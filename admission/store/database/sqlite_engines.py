"""SQLAlchemy engines on a SQLite file: for asyncio and for worker threads, each to write and to read.

Those for asyncio have connections of their own, with one switch of threads for each statement.
"""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote

import aiosqlite
from sqlalchemy import create_engine, event
from sqlalchemy.ext.asyncio import create_async_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from sqlalchemy import Connection, Dialect, Engine
    from sqlalchemy.engine.interfaces import DBAPIConnection
    from sqlalchemy.ext.asyncio import AsyncEngine


_FIRST_ROWS: Final = 1_000
"""Number of rows that are fetched together with the execution of a statement."""


def connect_aiosqlite(database: str, **options: Any) -> SqliteConnection:
    """Return a connection like `aiosqlite.connect`, which is opened by `await`; parameters of `sqlite3.connect`."""
    connection = SqliteConnection(lambda: sqlite3.connect(database, **options))
    connection._thread.daemon = True  # as SQLAlchemy does, so that a connection left open does not keep the process
    return connection


class SqliteConnection(aiosqlite.Connection):
    """Connection of aiosqlite whose cursors do all work for a statement in a single call on its thread.

    With aiosqlite's own cursors SQLAlchemy makes four such calls: create the cursor, execute, fetch, close. Each is two
    switches of threads and a system call, which cost more than most statements do.
    """

    def __init__(self, connector: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connector, iter_chunk_size=0)
        self.unfinished = set[sqlite3.Cursor]()
        """Cursors that may have further rows; used on the connection's thread only."""

    def cursor(self) -> Cursor:  # type: ignore[override]
        """Return a new cursor; unlike aiosqlite's it is not awaited."""
        return Cursor(self)

    async def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function on the connection's thread. Raises what it raises, and ValueError for a closed connection."""
        await self._execute(function, *arguments)  # type: ignore[no-untyped-call]

    async def rollback(self) -> None:
        """Roll back the transaction.

        Since Python 3.11 that ends no statement. One that was cancelled, or whose rows were not all read, would keep
        its lock until it is garbage collected, even if the connection is closed.
        """
        await self.call(self._rollback)

    def _rollback(self) -> None:
        while self.unfinished:
            self.unfinished.pop().close()
        self._conn.rollback()


class Cursor:
    """Asynchronous cursor with the part of DB-API's interface that SQLAlchemy uses (`AsyncIODBAPICursor`).

    Rows beyond the first 1,000 are fetched on demand, so that a stream of rows does not occupy memory.
    """

    arraysize = 1
    description: Sequence[Any] | None = None
    rowcount = -1
    lastrowid: int | None = None

    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection
        self._rows: list[Any] = []
        self._open: sqlite3.Cursor | None = None
        """The cursor as long as it may have further rows."""

    async def __aenter__(self) -> Self:
        return self

    async def execute(self, operation: str, parameters: Any = ()) -> None:
        """Execute a statement and fetch its first rows."""
        await self._connection.call(self._execute, operation, parameters)

    async def executemany(self, operation: str, parameters: Any) -> None:
        """Execute a statement, which returns no rows, once for each of the parameters."""
        await self._connection.call(self._execute_many, operation, parameters)

    async def fetchall(self) -> list[Any]:
        """Return all further rows."""
        return await self._take(-1)

    async def fetchmany(self, size: int = arraysize) -> list[Any]:
        """Return up to `size` further rows."""
        return await self._take(size)

    async def fetchone(self) -> Any | None:
        """Return the next row; None if there is none."""
        return next(iter(await self._take(1)), None)

    async def close(self) -> None:
        """Close the cursor, after which a statement with further rows does not keep a lock."""
        if self._open is not None:
            cursor, self._open = self._open, None
            await self._connection.call(self._close, cursor)

    def _close(self, cursor: sqlite3.Cursor) -> None:
        self._connection.unfinished.discard(cursor)
        cursor.close()

    def _execute(self, operation: str, parameters: Any) -> None:
        self._keep(self._connection._conn.execute(operation, parameters))

    def _execute_many(self, operation: str, parameters: Any) -> None:
        self._keep(self._connection._conn.executemany(operation, parameters))

    def _keep(self, cursor: sqlite3.Cursor) -> None:
        """Take over results and first rows of an executed statement; with RETURNING, `rowcount` is known after them."""
        self._rows = cursor.fetchmany(_FIRST_ROWS)
        self.description, self.rowcount, self.lastrowid = cursor.description, cursor.rowcount, cursor.lastrowid
        if len(self._rows) < _FIRST_ROWS:
            cursor.close()
        else:
            self._open = cursor
            self._connection.unfinished.add(cursor)

    async def _take(self, number: int) -> list[Any]:
        """Remove and return up to `number` rows; all for a negative number."""
        if self._open is not None and not 0 <= number <= len(self._rows):
            await self._connection.call(self._fetch, number)
        taken = self._rows if number < 0 else self._rows[:number]
        self._rows = [] if number < 0 else self._rows[number:]
        return taken

    def _fetch(self, number: int) -> None:
        assert self._open is not None
        self._rows += self._open.fetchall() if number < 0 else self._open.fetchmany(number)


SQLITE_READERS = 2
"""Number of connections of the synchronous engine that reads."""


def sqlite_engines(
    path: Path, *, migrating: bool, busy_seconds: int
) -> tuple[AsyncEngine, AsyncEngine, Engine, Engine]:
    """Return the engines that write and read for asyncio, and those for worker threads.

    `migrating`: an absent file is created, and foreign keys are not enforced. `busy_seconds`: how long a statement
    waits for a lock of another process.
    """
    options: dict[str, Any] = {
        "max_overflow": 0,
        # No implicit transactions of the driver: it begins them at the first write, too late, and never for reads.
        "connect_args": {"isolation_level": None, "timeout": busy_seconds},
    }
    file = f"file:{quote(str(path.absolute()))}?mode={'rwc' if migrating else 'rw'}&uri=true"
    writer = create_async_engine(f"sqlite+aiosqlite:///{file}", pool_size=1, **options)
    reader = create_async_engine(f"sqlite+aiosqlite:///{file}", pool_size=4, **options)
    sync_writer = create_engine(f"sqlite+pysqlite:///{file}", pool_size=1, **options)
    sync_reader = create_engine(f"sqlite+pysqlite:///{file}", pool_size=SQLITE_READERS, **options)
    pragmas = (f"foreign_keys={'OFF' if migrating else 'ON'}", "journal_mode=WAL", "synchronous=NORMAL")
    _prepare(writer.sync_engine, "BEGIN IMMEDIATE", pragmas)
    _prepare(reader.sync_engine, "BEGIN", (*pragmas, "query_only=ON"))
    _prepare(sync_writer, "BEGIN IMMEDIATE", pragmas)
    _prepare(sync_reader, "BEGIN", (*pragmas, "query_only=ON"))
    return writer, reader, sync_writer, sync_reader


def _prepare(engine: Engine, begin: str, pragmas: Iterable[str]) -> None:
    """Run `pragmas` on each new connection, and start each transaction with the statement `begin`."""

    @event.listens_for(engine, "do_connect")
    def connect(dialect: Dialect, _record: object, arguments: list[Any], options: dict[str, Any]) -> None:
        # If a file cannot be opened, aiosqlite leaks a thread that fails when the event loop is closed.
        sqlite3.connect(*arguments, **options).close()
        if dialect.is_async:
            options["async_creator_fn"] = connect_aiosqlite

    @event.listens_for(engine, "connect")
    def prepare(connection: DBAPIConnection, _record: object) -> None:
        cursor = connection.cursor()
        try:
            for pragma in pragmas:
                cursor.execute(f"PRAGMA {pragma}")
        except BaseException:
            # The pool does not own the connection yet, and would leave its thread running.
            connection.close()
            raise
        cursor.close()

    @event.listens_for(engine, "invalidate")
    def release(connection: DBAPIConnection, _record: object, reason: BaseException | None) -> None:
        # The cursor of a cancelled statement outlives the closed connection, and would keep its lock.
        if isinstance(reason, asyncio.CancelledError):
            connection.rollback()

    @event.listens_for(engine, "begin")
    def start(connection: Connection) -> None:
        connection.exec_driver_sql(begin)
