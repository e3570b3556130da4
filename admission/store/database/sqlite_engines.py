"""SQLAlchemy engines on a SQLite file: for asyncio and for worker threads, each to write and to read."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sqlalchemy import create_engine, event
from sqlalchemy.ext.asyncio import create_async_engine

from admission.store.database import sqlite_connection

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from sqlalchemy import Connection, Dialect, Engine
    from sqlalchemy.engine.interfaces import DBAPIConnection
    from sqlalchemy.ext.asyncio import AsyncEngine

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
            options["async_creator_fn"] = sqlite_connection.connect

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
