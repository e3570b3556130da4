"""Connections to SQLite or PostgreSQL: URL, engines and pools, read and write transactions.

SQLite has one connection that writes and a few read-only ones. Write transactions start with BEGIN IMMEDIATE, so that a
transaction that reads before it writes cannot fail with SQLITE_BUSY at its first write. PostgreSQL has one pool; read
transactions are REPEATABLE READ, so that they see one snapshot, as SQLite's do.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import ssl
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy import event, func, make_url, select
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import QueuePool

from admission.model.errors import StoreError
from admission.store.database.driver_errors import translated
from admission.store.database.sqlite_engines import SQLITE_READERS, sqlite_engines
from admission.store.errors import DatabaseUnavailable, DatabaseUnusable, InvalidDatabaseUrl
from admission.store.records import PoolUse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

    from sqlalchemy import URL, Connection, Dialect, Engine
    from sqlalchemy.ext.asyncio import AsyncConnection
    from sqlalchemy.pool import Pool


T = TypeVar("T")

log = logging.getLogger(__name__)

SQLITE_SUFFIXES = ("-wal", "-shm", "-journal", ".lock")
"""Suffixes of the files beside a SQLite database: write-ahead log and its index, rollback journal, leadership lock."""
_TLS_OPTIONS = ("ssl", "sslmode", "sslrootcert", "sslcert", "sslkey")
_BUSY_SECONDS = 10
"""Seconds that a statement waits for a lock before it fails, on either database."""
_ROLLBACK_SECONDS = 2
"""Timeout of the rollback that ends a `lock_transaction`, in seconds."""
_TIMEOUTS = ("lock_timeout", "idle_in_transaction_session_timeout")
_SERVER_SETTINGS = {
    "application_name": "sluice",
    "lock_timeout": f"{_BUSY_SECONDS}s",
    # A frozen leader must not keep the row of `head` locked: its successor has to update it.
    "idle_in_transaction_session_timeout": "30s",
    "timezone": "UTC",
}
_SET_TIMEOUTS = select(*(func.set_config(name, _SERVER_SETTINGS[name], True) for name in _TIMEOUTS))
"""Sets the timeouts for one transaction (SET LOCAL)."""
_PGBOUNCER_OPTIONS: Mapping[str, Any] = {
    # pgbouncer rejects any other startup parameter.
    "server_settings": {name: _SERVER_SETTINGS[name] for name in ("application_name", "timezone")},
    # The next transaction may run on another server connection, which does not have this one's prepared statements.
    "statement_cache_size": 0,
    "prepared_statement_cache_size": 0,
    # The unnamed statement is replaced by the next one; named ones would accumulate on pgbouncer's connections.
    "prepared_statement_name_func": lambda: "",
}
_PGBOUNCER = "pgbouncer"
_POSTGRESQL_OPTIONS = {"host", "port", _PGBOUNCER, *_TLS_OPTIONS}


@dataclass(frozen=True, slots=True)
class Location:
    """A parsed and validated database URL."""

    url: URL
    """The URL with the bare dialect name, without a driver: `sqlite`, `postgresql`."""
    path: Path | None
    """The SQLite file; None for PostgreSQL."""

    @classmethod
    def parse(cls, text: str) -> Location:
        """Parse `sqlite:///relative.db`, `sqlite:////absolute.db` or `postgresql://user:password@host:port/name`.

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
        if text.count("@") > 1:  # which one ends the password is a guess: the URL cannot be shown without it
            raise InvalidDatabaseUrl(
                f"the database URL has more than one @; write %40 for one in a password; {_EXPECTED}"
            )
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
        """Whether the URL has `pgbouncer=true`: each transaction may then run on another server connection."""
        return self.url.query.get(_PGBOUNCER) == "true"

    def __str__(self) -> str:
        """Return the file's absolute path, or the URL without its password, for messages."""
        return str(self.path.absolute()) if self.path else _shown(self.url)


def _shown(url: URL) -> str:
    return url.render_as_string(hide_password=True)


_EXPECTED = "give sqlite:///FILE or postgresql://USER:PASSWORD@HOST:PORT/NAME"


def keep_private(path: Path) -> None:
    """Change the mode of a SQLite file and those beside it to 0600 if other users of the machine have access.

    Access of the group alone is left: it was granted on purpose. Files of another owner are left as they are.
    """
    for each in (path, *(path.with_name(path.name + suffix) for suffix in SQLITE_SUFFIXES)):
        with suppress(OSError):
            found = each.stat()
            if found.st_mode & stat.S_IRWXO and found.st_uid == os.geteuid():
                each.chmod(0o600)
                log.info("%s could be read by all users of this machine, and now by its owner alone", each.absolute())


def make_private(path: Path) -> None:
    """Create an empty SQLite file with mode 0600, unless it exists. SQLite creates those beside it with its mode."""
    with suppress(OSError):  # SQLite reports why the file cannot be created
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


class Database:
    """Transactions on one database. Created by `connect`, disposed of by `close`."""

    def __init__(
        self,
        location: Location,
        writer: AsyncEngine,
        reader: AsyncEngine,
        sync_writer: Engine | None = None,
        sync_reader: Engine | None = None,
    ) -> None:
        self.location = location
        self.write_transactions = 0
        """Number of write transactions committed since this object was created."""
        self.write_failure: StoreError | None = None
        """The error of the last write transaction, if the database itself failed; None after a success."""
        self.answered_at = -math.inf
        """When the last transaction was completed (monotonic time, s)."""
        self.unblock: Callable[[], Awaitable[None]] | None = None
        """Callback run periodically while a write transaction takes long, see `unblocking`; None: no callback."""
        self._writer = writer
        self._reader = reader
        self._sync_writer = sync_writer
        self._sync_reader = sync_reader
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._threads = ThreadPoolExecutor(max_workers=SQLITE_READERS, thread_name_prefix="store-reader")
        self._writing = asyncio.Lock()

    @asynccontextmanager
    async def write(self, *, dry_run: bool = False) -> AsyncIterator[AsyncConnection]:
        """Write transaction; committed at the end of the block, rolled back if the block raises or for a dry run.

        Write transactions of this process are serialised, so that none of them waits for a lock of another.
        """
        async with self._writing:
            with self._noting_write_failure(), translated(self.location):
                async with unblocking(self.unblock), self._writer.begin() as connection:
                    yield connection
                    if dry_run:
                        await connection.rollback()
                    committing = connection.in_transaction()
            if committing:
                self._note_committed()

    async def write_sync(self, work: Callable[[Connection], T], *, dry_run: bool = False) -> T:
        """Run synchronous code in a write transaction, serialised with those of `write`; return its result.

        The transaction is rolled back after a dry run. On SQLite all of it is one call on a worker thread. With `write`
        each statement is one, and the switches of threads would cost more than the commit itself.
        """
        async with self._writing:
            try:
                if self._sync_writer is None:
                    async with unblocking(self.unblock), self._writer.begin() as connection:
                        result, committing = await connection.run_sync(_complete, work, dry_run)
                else:
                    loop = asyncio.get_running_loop()
                    result, committing = await loop.run_in_executor(
                        self._thread, _write_transaction, self._sync_writer, work, dry_run
                    )
            except Exception:
                with self._noting_write_failure(), translated(self.location):
                    raise
            if committing:
                self._note_committed()
        return result

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """Read-only transaction: all its statements see one snapshot of the database."""
        with translated(self.location):
            async with self._reader.connect() as connection:
                yield connection
                self.answered_at = time.monotonic()

    async def read_sync(self, work: Callable[[Connection], T]) -> T:
        """Run synchronous code in a read-only transaction, on SQLite on a worker thread as `write_sync` does."""
        with translated(self.location):
            if self._sync_reader is None:
                async with self._reader.connect() as connection:
                    result = await connection.run_sync(work)
            else:
                loop = asyncio.get_running_loop()
                result = await loop.run_in_executor(self._threads, _transaction, self._sync_reader, work)
            self.answered_at = time.monotonic()
            return result

    @asynccontextmanager
    async def lock_transaction(self) -> AsyncIterator[AsyncConnection]:
        """PostgreSQL transaction that may stay open for weeks to hold advisory locks; it writes nothing.

        It does not hold VACUUM back: READ COMMITTED keeps no snapshot between statements. The locks belong to a
        transaction, not to a session, because pgbouncer does not give a client a session of its own.
        """
        with translated(self.location):
            connection = await self._writer.connect()
            try:
                await connection.execute(select(func.set_config("idle_in_transaction_session_timeout", "0", True)))
                yield connection
            finally:
                # The server notices a closed connection late: a rollback frees the locks now. A lost one has no locks.
                with suppress(SQLAlchemyError, OSError, TimeoutError):
                    async with asyncio.timeout(_ROLLBACK_SECONDS):
                        await connection.rollback()
                await connection.invalidate()
                await connection.close()

    @contextmanager
    def _noting_write_failure(self) -> Iterator[None]:
        try:
            yield
        except (DatabaseUnavailable, DatabaseUnusable) as error:
            self.write_failure = error
            raise

    def _note_committed(self) -> None:
        self.answered_at = time.monotonic()
        self.write_transactions += 1
        self.write_failure = None

    def pools(self) -> list[PoolUse]:
        """Return size and use of each connection pool."""
        engines: dict[str, Engine] = {"write": self._sync_writer or self._writer.sync_engine}
        if self._sync_writer is not None:  # PostgreSQL has one pool for everything
            engines |= {"read": self._reader.sync_engine, "maintain": self._writer.sync_engine}
        if self._sync_reader is not None:
            engines["look"] = self._sync_reader
        return [_pool_use(name, engine.pool) for name, engine in engines.items()]

    async def close(self) -> None:
        """Close all connections and worker threads."""
        await self._reader.dispose()
        await self._writer.dispose()
        for engine in filter(None, (self._sync_writer, self._sync_reader)):
            await asyncio.get_running_loop().run_in_executor(self._thread, engine.dispose)
        self._thread.shutdown()
        self._threads.shutdown()


def _pool_use(name: str, pool: Pool) -> PoolUse:
    assert isinstance(pool, QueuePool), pool
    return PoolUse(name, pool.size() + max(pool._max_overflow, 0), pool.checkedout())


def _transaction(engine: Engine, work: Callable[[Connection], T]) -> T:
    with engine.begin() as connection:
        return work(connection)


def _write_transaction(engine: Engine, work: Callable[[Connection], T], dry_run: bool) -> tuple[T, bool]:
    with engine.begin() as connection:
        return _complete(connection, work, dry_run)


def _complete(connection: Connection, work: Callable[[Connection], T], dry_run: bool) -> tuple[T, bool]:
    """Do the work of a write transaction; return its result, and whether it is to be committed."""
    result = work(connection)
    if dry_run:
        connection.rollback()
    return result, connection.in_transaction()


def connect(location: Location, *, migrating: bool = False) -> Database:
    """Return the database at `location`; it connects on demand. Raises DatabaseUnusable for a missing folder.

    `migrating`: an absent SQLite file is created, statements have no timeout, and foreign keys are not enforced,
    because SQLite alters a table by replacing it.
    """
    if location.path is None:
        engine = _postgresql_engine(location, command_timeout=None if migrating else 60)
        reader = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        database = Database(location, engine, reader)

        @event.listens_for(engine.sync_engine, "do_connect")
        def use_current_credentials(
            _dialect: Dialect, _record: object, _arguments: list[Any], options: dict[str, Any]
        ) -> None:
            """Read password and certificates for each new connection: they may have been rotated since the start."""
            if database.location.url.password is not None:
                options["password"] = database.location.url.password
            try:
                context = tls_context(location.url.query)
            except InvalidDatabaseUrl as error:  # the files may be half-written
                log.warning("%s; those of the last connection are used", error)
            else:
                if context is not None:
                    options["ssl"] = context

        if location.is_behind_pgbouncer:

            @event.listens_for(engine.sync_engine, "begin")
            def set_transaction_timeouts(connection: Connection) -> None:
                if not connection.get_execution_options().get("postgresql_readonly"):
                    connection.execute(_SET_TIMEOUTS)

        return database
    path = location.path
    if not path.parent.is_dir():
        raise DatabaseUnusable(
            f"the folder of the database {path} does not exist: create it, or correct the database URL"
        )
    return Database(location, *sqlite_engines(path, migrating=migrating, busy_seconds=_BUSY_SECONDS))


def _postgresql_engine(location: Location, *, command_timeout: float | None) -> AsyncEngine:
    url = location.url.set(drivername="postgresql+asyncpg")
    options: dict[str, Any] = {"timeout": 10, "command_timeout": command_timeout, "server_settings": _SERVER_SETTINGS}
    if location.is_behind_pgbouncer:
        options |= _PGBOUNCER_OPTIONS
    url = url.difference_update_query([_PGBOUNCER])
    if context := tls_context(url.query):
        options["ssl"] = context
        url = url.difference_update_query(_TLS_OPTIONS)
    elif "sslmode" in url.query:
        url = url.update_query_dict({"ssl": url.query["sslmode"]}).difference_update_query(["sslmode"])
    return create_async_engine(url, pool_pre_ping=True, connect_args=options)


_DELAY_SECONDS = 4
"""Seconds until the first call: less than the lock timeout, after which a waiting transaction fails."""
_INTERVAL_SECONDS = 1
"""Seconds between two calls."""


@asynccontextmanager
async def unblocking(unblock: Callable[[], Awaitable[None]] | None) -> AsyncIterator[None]:
    """Call `unblock` periodically while the block runs longer than `_DELAY_SECONDS`; else it costs only a timer."""
    if unblock is None:
        yield
        return
    loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[None]]()
    timer = loop.call_later(_DELAY_SECONDS, lambda: tasks.add(loop.create_task(_repeat(unblock))))
    try:
        yield
    finally:
        timer.cancel()
        for task in tasks:
            task.cancel()
            await asyncio.wait({task})


async def _repeat(callback: Callable[[], Awaitable[None]]) -> None:
    while True:
        with suppress(StoreError):  # the blocked transaction reports the error
            await callback()
        await asyncio.sleep(_INTERVAL_SECONDS)


SSL_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
"""Valid values of `sslmode`, as in libpq."""

_FILES = ("sslrootcert", "sslcert", "sslkey")


def tls_context(query: Mapping[str, str | tuple[str, ...]]) -> ssl.SSLContext | None:
    """Return the TLS context for the options of a database URL; None if they name no files: the driver handles those.

    As with libpq, a given `sslrootcert` verifies the server's certificate in every mode; `verify-full` also checks the
    host name. Raises InvalidDatabaseUrl for contradictory options and unusable files.
    """
    files = {name: str(query[name]) for name in _FILES if name in query}
    if not files:
        return None
    mode = query.get("sslmode", query.get("ssl", "verify-full"))
    if mode not in ("require", "verify-ca", "verify-full"):
        raise InvalidDatabaseUrl(f"sslmode={mode} makes no use of {min(files)}: use require, verify-ca or verify-full")
    if "sslkey" in files and "sslcert" not in files:
        raise InvalidDatabaseUrl("sslkey is given without sslcert: name the certificate that it belongs to")
    if mode != "require" and "sslrootcert" not in files:
        raise InvalidDatabaseUrl(f"sslmode={mode} needs sslrootcert, the file of the CA certificate to trust")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = mode == "verify-full"
    context.verify_mode = ssl.CERT_REQUIRED if "sslrootcert" in files else ssl.CERT_NONE
    try:
        if "sslrootcert" in files:
            context.load_verify_locations(files["sslrootcert"])
        if "sslcert" in files:
            context.load_cert_chain(files["sslcert"], files.get("sslkey"))
    except (OSError, ssl.SSLError) as error:
        raise InvalidDatabaseUrl(f"the certificates of the database URL cannot be used: {error}") from error
    return context
