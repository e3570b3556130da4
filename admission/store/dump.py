"""Export and import of the whole database as lines of JSON, between SQLite and PostgreSQL in either direction.

The first line is a header: `{"format": "sluice-dump", "version": 1, "schema": ..., "rows": {table: count}}`. Each table
follows as `{"table": name, "columns": [...]}` and its rows as arrays; referenced tables come before those that refer to
them, and instants are microseconds since the epoch. The last line is `{"end": "sluice-dump", "sha256": ...}` with the
checksum of all lines before it, by which a truncated file is recognised.

A dump is one snapshot of the database. It is restored in one transaction, completely or not at all.
"""

from __future__ import annotations

import hashlib
import zlib
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson
from sqlalchemy import func, insert, select, update
from sqlalchemy.exc import DataError, IntegrityError

from admission.store.database.instant import Instant
from admission.store.database.tables import SCHEMA_VERSION, head, metadata
from admission.store.errors import DatabaseNotEmpty, UnusableDump
from admission.store.ledger.usage import MICROSECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sqlalchemy import Column, Insert, Table, Update
    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.store.database.connection import Database

Write: TypeAlias = "Callable[[bytes], object]"
"""Callback that receives the output, in chunks of whole lines."""
Progress: TypeAlias = "Callable[[str, int, int], None]"
"""Callback for progress: name of the table, number of its rows done, number of its rows in all."""

_FORMAT: Final = "sluice-dump"
_VERSION: Final = 1
_BATCH: Final = 1_000
"""Rows that are read and written at a time."""
_TABLES: Final = tuple(table for table in metadata.sorted_tables if table.info.get("exported", True))
"""Exported tables. Browser sessions are left out: the reader of an export must not be able to impersonate users."""


async def dump(database: Database, write: Write, progress: Progress) -> None:
    """Export the database to `write`."""
    out = _Output(write)
    async with database.read() as connection:
        if connection.dialect.name == "postgresql":
            # The consumer of the output may be slower than the timeout allows a client to be idle.
            await connection.execute(select(func.set_config("idle_in_transaction_session_timeout", "0", True)))
        counts = {str(table.name): await _count(connection, table) for table in _TABLES}
        out.lines([{"format": _FORMAT, "version": _VERSION, "schema": SCHEMA_VERSION, "rows": counts}])
        for table in _TABLES:
            out.lines([{"table": table.name, "columns": table.columns.keys()}])
            instants = [place for place, column in enumerate(table.columns) if isinstance(column.type, Instant)]
            done = 0
            result = await connection.stream(select(table).order_by(*table.primary_key))
            async for rows in result.partitions(_BATCH):
                out.lines([_row(row, instants) for row in rows])
                done += len(rows)
                progress(table.name, done, counts[table.name])
    out.lines([{"end": _FORMAT, "sha256": out.checksum.hexdigest()}])


async def restore(database: Database, file: Iterable[bytes], progress: Progress) -> None:
    """Import the lines of a dump into an empty database; its present leader, if any, is deposed by a new epoch.

    Raises UnusableDump and DatabaseNotEmpty, without any row written.
    """
    documents = _documents(file)
    current = next(documents)
    header = current[0]
    if not isinstance(header, dict) or (header.get("format"), header.get("version")) != (_FORMAT, _VERSION):
        raise UnusableDump(_NO_DUMP)
    if header.get("schema") != SCHEMA_VERSION:
        raise UnusableDump(
            f"the export has schema {header.get('schema')} and this Sluice {SCHEMA_VERSION}; import it with the Sluice "
            "that has written it, and then upgrade the database by `sluice migrate`"
        )
    async with database.write() as connection:
        try:
            target = _ImportTarget(connection, header["rows"], progress)
            await target.check_empty(str(database.location))
            for current in documents:
                await target.process(*current)
        except (UnusableDump, DatabaseNotEmpty):
            raise
        except Exception as error:  # of any type: a damaged line can be any value in any column
            if _is_intact(chain([current], documents)):
                raise
            raise UnusableDump(_DAMAGED) from error


_NO_DUMP: Final = "the file is no export of Sluice's; give one that `sluice export` has written"
_DAMAGED: Final = "the export is damaged, nothing was imported; export again"
_CUT: Final = "the export is truncated, nothing was imported; export again, or copy the file again"


class _ImportTarget:
    """The database that an import writes to, in batches of rows of one table."""

    def __init__(self, connection: AsyncConnection, counts: dict[str, int], progress: Progress) -> None:
        self._connection = connection
        self._counts = counts
        self._progress = progress
        self._table: Table = head
        self._columns: list[Column[Any]] = []
        self._batch: list[dict[str, Any]] = []
        self._done: dict[str, int] = {}
        self._own: dict[str, Any] = {}

    async def check_empty(self, name: str) -> None:
        locked = select(head.c.revision, head.c.epoch, head.c.identity).with_for_update()
        self._own = dict((await self._connection.execute(locked)).mappings().one())
        for table in _TABLES:
            if table is not head and await _count(self._connection, table):
                raise DatabaseNotEmpty(f"the database {name} is not empty (there are {table.name}); use a new one")

    async def process(self, document: Any, checksum: str) -> None:
        match document:
            case list():
                await self._add(document)
            case {"table": str(name), "columns": list(columns)}:
                await self._begin(name, columns)
            case {"end": _, "sha256": expected}:
                await self._end(intact=expected == checksum)
            case _:
                raise UnusableDump(_DAMAGED)

    async def _begin(self, table: str, columns: list[str]) -> None:
        await self._flush()
        if table not in {each.name for each in _TABLES} or not all(
            name in metadata.tables[table].c for name in columns
        ):
            raise UnusableDump(_DAMAGED)
        self._table = metadata.tables[table]
        self._columns = [self._table.c[name] for name in columns]
        self._done[table] = 0

    async def _add(self, row: list[Any]) -> None:
        if len(row) != len(self._columns):
            raise UnusableDump(_DAMAGED)
        self._batch.append(
            {column.name: _value(column, value) for column, value in zip(self._columns, row, strict=True)}
        )
        if len(self._batch) == _BATCH:
            await self._flush()

    async def _end(self, *, intact: bool) -> None:
        await self._flush()
        if not intact or self._done != self._counts:
            raise UnusableDump(_DAMAGED)
        if self._connection.dialect.name == "postgresql":
            for table in metadata.sorted_tables:
                await _continue_ids(self._connection, table)

    async def _flush(self) -> None:
        if not self._batch:
            return
        batch, self._batch = self._batch, []
        statement: Insert | Update = insert(self._table)
        if self._table is head:
            # Revision and epoch must not fall behind those of either database; a new epoch deposes the leaders of both.
            (row,) = batch
            revision, epoch = (max(row[name], self._own[name]) for name in ("revision", "epoch"))
            row |= {"revision": revision, "epoch": epoch + 1, "holder": "", "held_since": None}
            # The identity is that of the exported database, unless no Sluice has ever used it.
            row["identity"] = row["identity"] or self._own["identity"]
            statement = update(head)
        try:
            await self._connection.execute(statement, batch)
        except (IntegrityError, DataError) as error:
            raise UnusableDump(f"{_DAMAGED} ({self._table.name}: {error.orig})") from error
        self._done[self._table.name] += len(batch)
        self._progress(self._table.name, self._done[self._table.name], self._counts.get(self._table.name, 0))


class _Output:
    """Writer of JSON lines that keeps their checksum."""

    def __init__(self, write: Write) -> None:
        self.checksum = hashlib.sha256()
        self._write = write

    def lines(self, documents: Iterable[object]) -> None:
        lines = b"".join(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE) for document in documents)
        self.checksum.update(lines)
        self._write(lines)


def _documents(file: Iterable[bytes]) -> Iterator[tuple[Any, str]]:
    """Yield each document, the last one with the checksum of all lines before it (else "").

    Raises UnusableDump for a file that cannot be read or parsed, or without a last line.
    """
    checksum, first = hashlib.sha256(), True
    try:
        for line in file:
            document = orjson.loads(line)
            first = False
            is_last = isinstance(document, dict) and "end" in document
            yield document, checksum.hexdigest() if is_last else ""
            if is_last:
                return
            checksum.update(line)
    except (EOFError, orjson.JSONDecodeError) as error:
        raise UnusableDump(_NO_DUMP if first else _CUT) from error
    except (OSError, zlib.error) as error:
        raise UnusableDump(_DAMAGED) from error
    raise UnusableDump(_NO_DUMP if first else _CUT)


def _is_intact(rest: Iterable[tuple[Any, str]]) -> bool:
    """Read the rest of a dump, and return whether it has its checksum. Raises UnusableDump as `_documents` does."""
    return any(checksum != "" and document.get("sha256") == checksum for document, checksum in rest)


async def _count(connection: AsyncConnection, table: Table) -> int:
    return int(await connection.scalar(select(func.count()).select_from(table)) or 0)


async def _continue_ids(connection: AsyncConnection, table: Table) -> None:
    """Set the sequence of a PostgreSQL table to its highest imported id, so that new rows get higher ones."""
    if table.autoincrement_column is not None:
        last = select(func.coalesce(func.max(table.autoincrement_column), 1)).scalar_subquery()
        await connection.execute(select(func.setval(func.pg_get_serial_sequence(table.name, "id"), last)))


def _value(column: Column[Any], value: Any) -> Any:
    return value / MICROSECONDS if isinstance(column.type, Instant) and value is not None else value


def _row(row: Iterable[Any], instants: Iterable[int]) -> list[Any]:
    values = list(row)
    for place in instants:
        if values[place] is not None:
            values[place] = round(values[place] * MICROSECONDS)
    return values
