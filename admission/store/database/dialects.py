"""Statements that differ between SQLite and PostgreSQL: upserts, list parameters, bulk inserts."""

from __future__ import annotations

from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
from sqlalchemy import JSON, Text, any_, bindparam, cast, column, func, select
from sqlalchemy.dialects import postgresql, sqlite

from admission.store.database.instant import Instant, to_datetime

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from sqlalchemy import ColumnElement, Connection, Table

    from admission.store.records import Document


def parsed_json(value: Any) -> Any:
    """Return the value of a JSON column that was read as text: PostgreSQL's driver has parsed it already."""
    return orjson.loads(value) if isinstance(value, str) else value


def insert(dialect: str, table: Table) -> Any:
    """Return the dialect's INSERT, which has `on_conflict_do_update` and `on_conflict_do_nothing`."""
    return sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)


def upsert(dialect: str, table: Table, *, keep: Collection[str] = ()) -> Any:
    """Return an upsert: rows with an existing primary key replace all its columns but those to `keep`."""
    statement = insert(dialect, table)
    keys = [column.name for column in table.primary_key]
    replaced = {column.name: statement.excluded[column.name] for column in table.c if column.name not in (*keys, *keep)}
    return statement.on_conflict_do_update(index_elements=keys, set_=replaced)


def in_list(dialect: str, column: ColumnElement[str], texts: Iterable[str]) -> ColumnElement[bool]:
    """Return a condition like `column IN (...)` that passes the list as one parameter.

    To compile an IN with hundreds of parameters takes longer than the query.
    """
    if dialect == "sqlite":
        values = func.json_each(orjson.dumps([*texts]).decode()).table_valued("value")
        return column.in_(select(values.c.value))
    return column == any_(bindparam(None, [*texts], type_=postgresql.ARRAY(Text)))


def bulk_insert(connection: Connection, statement: Any, rows: Sequence[Document]) -> None:
    """Execute an INSERT for rows that all have the same columns; the statement object has to be reused between calls.

    PostgreSQL receives the rows as one JSON parameter: executing the statement for each row would double its cost.
    SQLite has no such cost; for it, values are converted column by column: a workload's row takes 15 µs that way and 25
    with SQLAlchemy's conversion of single values. Compiled statements are cached by the identity of `statement`.
    """
    if not rows:
        return
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(*_sqlite_insert(statement, tuple(rows[0])).with_parameters(rows))
    else:
        connection.execute(_json_insert(statement, tuple(rows[0])), {"rows": _json(statement.table, rows)})


class _SqliteInsert(NamedTuple):
    """A compiled INSERT for SQLite, with the conversion of its parameters."""

    sql: str
    values: Callable[[Document], tuple[Any, ...]]
    """Getter of a row's values, in the order of the placeholders in `sql`."""
    instants: tuple[int, ...]
    """Positions of the parameters that are instants, stored as microseconds."""
    documents: tuple[int, ...]
    """Positions of the parameters that are documents, stored as JSON text."""

    def with_parameters(self, rows: Iterable[Document]) -> tuple[str, list[tuple[Any, ...]]]:
        """Return the SQL and the converted parameters of the rows."""
        columns: list[Sequence[Any]] = [*zip(*map(self.values, rows), strict=True)]
        for index in self.instants:
            columns[index] = [None if value is None else round(value * 1_000_000) for value in columns[index]]
        for index in self.documents:
            columns[index] = [None if value is None else orjson.dumps(value).decode() for value in columns[index]]
        return self.sql, [*zip(*columns, strict=True)]


@cache
def _sqlite_insert(statement: Any, names: tuple[str, ...]) -> _SqliteInsert:
    compiled = statement.inline().compile(dialect=sqlite.dialect(), column_keys=names)
    order = compiled.positiontup
    types = [statement.table.c[name].type for name in order]
    instants = tuple(index for index, kind in enumerate(types) if isinstance(kind, Instant))
    documents = tuple(index for index, kind in enumerate(types) if isinstance(kind, JSON))
    return _SqliteInsert(compiled.string, itemgetter(*order), instants, documents)


@cache
def _json_insert(statement: Any, names: tuple[str, ...]) -> Any:
    """Return INSERT ... SELECT for PostgreSQL that expands its JSON parameter `rows` by json_to_recordset."""
    types = {name: statement.table.c[name].type for name in names}
    columns = (column(name, Text if isinstance(kind, JSON) else kind) for name, kind in types.items())
    function = func.json_to_recordset(cast(bindparam("rows", type_=Text), JSON))
    record = function.table_valued(*columns).render_derived("record", with_types=True)
    values = (cast(record.c[name], JSON) if isinstance(kind, JSON) else record.c[name] for name, kind in types.items())
    return statement.from_select(names, select(*values))


def _json(table: Table, rows: Iterable[Document]) -> str:
    converters = _converters(table)
    return orjson.dumps(
        [row | {name: convert(row[name]) for name, convert in converters if row.get(name) is not None} for row in rows]
    ).decode()


@cache
def _converters(table: Table) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """Return (column name, converter) of the columns whose values are not written as plain JSON values."""
    found: list[tuple[str, Callable[[Any], Any]]] = []
    for one in table.c:
        if isinstance(one.type, Instant):
            found.append((one.name, to_datetime))
        elif isinstance(one.type, JSON):
            found.append((one.name, _document))
    return tuple(found)


def _document(value: Any) -> str:
    """Encode a JSON column's value as a string: PostgreSQL accepts an escaped NUL only within a document of its own."""
    return orjson.dumps(value).decode()
