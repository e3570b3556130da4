"""The connection to SQLite or PostgreSQL: how it is opened, how a transaction begins.

SQLite has one writing connection and a few that only read; writers begin with BEGIN IMMEDIATE, so that a transaction
that reads before it writes never fails half-way. PostgreSQL has one pool; readers see one snapshot for the whole of
their transaction, as SQLite's do.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from sqlalchemy import create_engine, event, func, make_url, select
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import QueuePool

from admission.store.database.driver_errors import translated
from admission.store.database.tls import SSL_MODES, tls_context
from admission.store.database.unblocking import unblocking
from admission.store.errors import DatabaseUnavailable, DatabaseUnusable, InvalidDatabaseUrl
from admission.store.records import PoolUse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping

    from sqlalchemy import URL, Connection, Dialect, Engine
    from sqlalchemy.engine.interfaces import DBAPIConnection
    from sqlalchemy.ext.asyncio import AsyncConnection
    from sqlalchemy.pool import Pool

    from admission.model.errors import StoreError

T = TypeVar("T")

log = logging.getLogger(__name__)

SQLITE_SUFFIXES = ("-wal", "-shm", "-journal", ".lock")
"""Of the files beside a SQLite database: its log with index, a rollback journal, and the lock of the leader."""
_TLS_OPTIONS = ("ssl", "sslmode", "sslrootcert", "sslcert", "sslkey")
_BUSY_SECONDS = 10
_END_SECONDS = 2
"""How long the end of a held transaction is waited for."""
_SQLITE_READERS = 2
"""Threads, and connections, for `Database.look`."""
_LIMITS_OF_TRANSACTIONS = ("lock_timeout", "idle_in_transaction_session_timeout")
_POSTGRESQL_SETTINGS = {
    "application_name": "sluice",
    "lock_timeout": f"{_BUSY_SECONDS}s",
    # A frozen leader must not keep the row locked that its successor has to change.
    "idle_in_transaction_session_timeout": "30s",
    "timezone": "UTC",
}
_LIMITS = select(*(func.set_config(name, _POSTGRESQL_SETTINGS[name], True) for name in _LIMITS_OF_TRANSACTIONS))
"""The same for one transaction."""
_PGBOUNCER_OPTIONS: Mapping[str, Any] = {
    # pgbouncer refuses all other settings of a session.
    "server_settings": {name: _POSTGRESQL_SETTINGS[name] for name in ("application_name", "timezone")},
    # A statement that was prepared in one transaction is on another server connection than the next transaction.
    "statement_cache_size": 0,
    "prepared_statement_cache_size": 0,
    # The unnamed statement lasts until the next one; names would pile up on connections that nobody closes.
    "prepared_statement_name_func": lambda: "",
}
_SQLITE_OPTIONS: Mapping[str, Any] = {
    "max_overflow": 0,
    # The driver must not begin transactions of its own: it would do so too late, and not for reading at all.
    "connect_args": {"isolation_level": None, "timeout": _BUSY_SECONDS},
}
_PGBOUNCER = "pgbouncer"
_POSTGRESQL_OPTIONS = {"host", "port", _PGBOUNCER, *_TLS_OPTIONS}


@dataclass(frozen=True, slots=True)
class Location:
    """Where the database is, as parsed from what the user gave."""

    url: URL
    """For the synchronous name of the dialect, without a driver."""
    path: Path | None
    """The file, if it is SQLite."""

    @classmethod
    def parse(cls, text: str) -> Location:
        """Read `sqlite:///relative.db`, `sqlite:////absolute.db` or `postgresql://user:password@host:port/name`.

        Raises InvalidDatabaseUrl.
        """
        try:
            url = make_url(text)
        except (ArgumentError, ValueError) as error:
            raise InvalidDatabaseUrl(f"the database URL is no URL; {_EXPECTED}") from error
        dialect = url.drivername.partition("+")[0]
        if dialect == "sqlite":
            if not url.database or url.database == ":memory:" or url.host or url.query:
                raise InvalidDatabaseUrl(f"the database URL {_shown(url.set(query={}))!r} names no file; {_EXPECTED}")
            return cls(url.set(drivername="sqlite"), Path(url.database))
        if dialect not in ("postgresql", "postgres"):
            raise InvalidDatabaseUrl(f"the database URL begins with {url.drivername!r}; {_EXPECTED}")
        if not url.database:
            raise InvalidDatabaseUrl(f"the database URL names no database; {_EXPECTED}")
        if unknown := set(url.query) - _POSTGRESQL_OPTIONS:
            raise InvalidDatabaseUrl(
                f"the database URL has the unknown option {min(unknown)!r}; known are {sorted(_POSTGRESQL_OPTIONS)}"
            )
        if url.query.get(_PGBOUNCER, "true") not in ("true", "false"):
            raise InvalidDatabaseUrl(f"pgbouncer={url.query[_PGBOUNCER]} in the database URL is neither true nor false")
        for option in ("sslmode", "ssl"):
            if url.query.get(option, "disable") not in SSL_MODES:
                raise InvalidDatabaseUrl(
                    f"{option}={url.query[option]} in the database URL is none of {', '.join(SSL_MODES)}"
                )
        return cls(url.set(drivername="postgresql"), None)

    @property
    def is_behind_pgbouncer(self) -> bool:
        """Whether the URL says so: each transaction may then be on another connection to the server."""
        return self.url.query.get(_PGBOUNCER) == "true"

    def __str__(self) -> str:
        """For messages: the file's absolute path, or the URL without its password."""
        return str(self.path.absolute()) if self.path else _shown(self.url)


def _shown(url: URL) -> str:
    return url.render_as_string(hide_password=True)


_EXPECTED = "give sqlite:///FILE or postgresql://USER:PASSWORD@HOST:PORT/NAME"


def keep_private(path: Path) -> None:
    """Let only its owner read a SQLite file, and those beside it, if all users of the machine may by now.

    Rights of a group alone are left, as they were given on purpose. Files of others are left as they are.
    """
    for each in (path, *(path.with_name(path.name + suffix) for suffix in SQLITE_SUFFIXES)):
        with suppress(OSError):
            found = each.stat()
            if found.st_mode & stat.S_IRWXO and found.st_uid == os.geteuid():
                each.chmod(0o600)
                log.info("%s could be read by all users of this machine, and now by its owner alone", each.absolute())


def make_private(path: Path) -> None:
    """Make an empty SQLite file that only its owner can read; those that SQLite makes beside it have the same mode."""
    with suppress(OSError):  # SQLite tells why a file cannot be made
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


class Database:
    """Transactions on one database. Made by `connect`, ended by `close`."""

    def __init__(
        self,
        location: Location,
        writer: AsyncEngine,
        reader: AsyncEngine,
        direct: Engine | None = None,
        looking: Engine | None = None,
    ) -> None:
        self.location = location
        self.write_transactions = 0
        """Committed ones, since this object was made."""
        self.write_failure: StoreError | None = None
        """Why the last attempt to write failed, if it did for a fault of the database."""
        self.unblock: Callable[[], Awaitable[None]] | None = None
        """What to do, again and again, while a transaction that may write takes long; None: nothing."""
        self._writer = writer
        self._reader = reader
        self._direct = direct
        self._looking = looking
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._threads = ThreadPoolExecutor(max_workers=_SQLITE_READERS, thread_name_prefix="store-reader")
        self._writing = asyncio.Lock()

    @asynccontextmanager
    async def write(self, *, dry_run: bool = False) -> AsyncIterator[AsyncConnection]:
        """One transaction that may write; committed at the end of the block, rolled back if it raises or is a dry run.

        Transactions of this process follow each other, so that none of them waits in the database.
        """
        async with self._writing:
            with self._remembering(), translated(self.location):
                async with unblocking(self.unblock), self._writer.begin() as connection:
                    yield connection
                    if dry_run:
                        await connection.rollback()
                    committing = connection.in_transaction()
            if committing:
                self._written()

    async def transact(self, work: Callable[[Connection], T]) -> T:
        """One transaction that may write, by synchronous code; else as `write`.

        On SQLite the whole of it runs in one go on a thread of its own. aiosqlite goes there and back for each step of
        each statement, thirty times for a commit, which costs more than the commit itself.
        """
        async with self._writing:
            try:
                if self._direct is None:
                    async with unblocking(self.unblock), self._writer.begin() as connection:
                        result = await connection.run_sync(work)
                else:
                    loop = asyncio.get_running_loop()
                    result = await loop.run_in_executor(self._thread, _transaction, self._direct, work)
            except Exception:
                with self._remembering(), translated(self.location):
                    raise
            self._written()
        return result

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """One transaction that cannot write and sees one moment of the database, however many statements it has."""
        with translated(self.location):
            async with self._reader.connect() as connection:
                yield connection

    async def look(self, work: Callable[[Connection], T]) -> T:
        """One transaction as those of `read`, by synchronous code; on SQLite as `transact` has its own run."""
        with translated(self.location):
            if self._looking is None:
                async with self._reader.connect() as connection:
                    return await connection.run_sync(work)
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, _transaction, self._looking, work)

    @asynccontextmanager
    async def held_transaction(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that may stay open for weeks, for the locks that are taken in it; nothing is written in it.

        It keeps nothing from being cleaned up: once its statements are over it sees no snapshot. A transaction, not a
        session, as behind pgbouncer there is no session of one's own.
        """
        with translated(self.location):
            connection = await self._writer.connect()
            try:
                await connection.execute(select(func.set_config("idle_in_transaction_session_timeout", "0", True)))
                yield connection
            finally:
                # So that its locks are free when this returns: of a connection that ends the server learns later. One
                # that is lost has none.
                with suppress(SQLAlchemyError, OSError, TimeoutError):
                    async with asyncio.timeout(_END_SECONDS):
                        await connection.rollback()
                await connection.invalidate()
                await connection.close()

    @contextmanager
    def _remembering(self) -> Iterator[None]:
        try:
            yield
        except (DatabaseUnavailable, DatabaseUnusable) as error:
            self.write_failure = error
            raise

    def _written(self) -> None:
        self.write_transactions += 1
        self.write_failure = None

    def pools(self) -> list[PoolUse]:
        """How many connections are in use, and may be."""
        engines: dict[str, Engine] = {"write": self._direct or self._writer.sync_engine}
        if self._direct is not None:  # else one pool is for all
            engines |= {"read": self._reader.sync_engine, "maintain": self._writer.sync_engine}
        if self._looking is not None:
            engines["look"] = self._looking
        return [_use(name, engine.pool) for name, engine in engines.items()]

    async def close(self) -> None:
        """Give all connections back."""
        await self._reader.dispose()
        await self._writer.dispose()
        for engine in filter(None, (self._direct, self._looking)):
            await asyncio.get_running_loop().run_in_executor(self._thread, engine.dispose)
        self._thread.shutdown()
        self._threads.shutdown()


def _use(name: str, pool: Pool) -> PoolUse:
    assert isinstance(pool, QueuePool), pool
    return PoolUse(name, pool.size() + max(pool._max_overflow, 0), pool.checkedout())


def _transaction(engine: Engine, work: Callable[[Connection], T]) -> T:
    with engine.begin() as connection:
        return work(connection)


def connect(location: Location, *, migrating: bool = False) -> Database:
    """The database at `location`; nothing is opened yet. Raises DatabaseUnusable for a folder that is not there.

    `migrating`: an absent SQLite file is made, statements may take as long as they need, and foreign keys do not act,
    because SQLite changes a table by replacing it.
    """
    if location.path is None:
        engine = _postgresql_engine(location, command_timeout=None if migrating else 60)
        reader = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        database = Database(location, engine, reader)

        @event.listens_for(engine.sync_engine, "do_connect")
        def show_what_is_valid(
            _dialect: Dialect, _record: object, _arguments: list[Any], options: dict[str, Any]
        ) -> None:
            """Password and certificates as they are by now, for they may have been changed since the start."""
            if database.location.url.password is not None:
                options["password"] = database.location.url.password
            try:
                context = tls_context(location.url.query)
            except InvalidDatabaseUrl as error:  # perhaps they are being written
                log.warning("%s; those of the last connection are used", error)
            else:
                if context is not None:
                    options["ssl"] = context

        if location.is_behind_pgbouncer:

            @event.listens_for(engine.sync_engine, "begin")
            def limit_waits(connection: Connection) -> None:
                if not connection.get_execution_options().get("postgresql_readonly"):
                    connection.execute(_LIMITS)

        return database
    path = location.path
    if not path.parent.is_dir():
        raise DatabaseUnusable(
            f"the folder of the database {path} does not exist: create it, or correct the database URL"
        )
    writer = create_async_engine(_sqlite_url("aiosqlite", path, migrating=migrating), pool_size=1, **_SQLITE_OPTIONS)
    reader = create_async_engine(_sqlite_url("aiosqlite", path, migrating=migrating), pool_size=4, **_SQLITE_OPTIONS)
    direct = create_engine(_sqlite_url("pysqlite", path, migrating=migrating), pool_size=1, **_SQLITE_OPTIONS)
    looking = create_engine(
        _sqlite_url("pysqlite", path, migrating=migrating), pool_size=_SQLITE_READERS, **_SQLITE_OPTIONS
    )
    pragmas = (f"foreign_keys={'OFF' if migrating else 'ON'}", "journal_mode=WAL", "synchronous=NORMAL")
    _prepare_sqlite(writer.sync_engine, "BEGIN IMMEDIATE", pragmas)
    _prepare_sqlite(reader.sync_engine, "BEGIN", (*pragmas, "query_only=ON"))
    _prepare_sqlite(direct, "BEGIN IMMEDIATE", pragmas)
    _prepare_sqlite(looking, "BEGIN", (*pragmas, "query_only=ON"))
    return Database(location, writer, reader, direct, looking)


def _postgresql_engine(location: Location, *, command_timeout: float | None) -> AsyncEngine:
    url = location.url.set(drivername="postgresql+asyncpg")
    options: dict[str, Any] = {
        "timeout": 10,
        "command_timeout": command_timeout,
        "server_settings": _POSTGRESQL_SETTINGS,
    }
    if location.is_behind_pgbouncer:
        options |= _PGBOUNCER_OPTIONS
    url = url.difference_update_query([_PGBOUNCER])
    if context := tls_context(url.query):
        options["ssl"] = context
        url = url.difference_update_query(_TLS_OPTIONS)
    elif "sslmode" in url.query:
        url = url.update_query_dict({"ssl": url.query["sslmode"]}).difference_update_query(["sslmode"])
    return create_async_engine(url, pool_pre_ping=True, connect_args=options)


def _sqlite_url(driver: str, path: Path, *, migrating: bool) -> str:
    return f"sqlite+{driver}:///file:{quote(str(path.absolute()))}?mode={'rwc' if migrating else 'rw'}&uri=true"


def _prepare_sqlite(engine: Engine, begin: str, pragmas: Iterable[str]) -> None:
    """Set each new connection up, and have transactions begin by `begin`."""

    @event.listens_for(engine, "do_connect")
    def probe(_dialect: Dialect, _record: object, arguments: list[Any], options: dict[str, Any]) -> None:
        # Where a file cannot be opened, aiosqlite leaves a thread behind that fails once the loop is closed.
        sqlite3.connect(*arguments, **options).close()

    @event.listens_for(engine, "connect")
    def prepare(connection: DBAPIConnection, _record: object) -> None:
        cursor = connection.cursor()
        try:
            for pragma in pragmas:
                cursor.execute(f"PRAGMA {pragma}")
        except BaseException:
            # The pool does not know it yet, and would leave its thread running.
            connection.close()
            raise
        cursor.close()

    @event.listens_for(engine, "invalidate")
    def release(connection: DBAPIConnection, _record: object, reason: BaseException | None) -> None:
        # The cursor of a statement that was cancelled outlives its closed connection, and the lock would with it.
        if isinstance(reason, asyncio.CancelledError):
            connection.rollback()

    @event.listens_for(engine, "begin")
    def start(connection: Connection) -> None:
        connection.exec_driver_sql(begin)
