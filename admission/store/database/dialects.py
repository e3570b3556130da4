"""What both databases can do and the common SQL cannot say: ON CONFLICT, and lists and rows as one value."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
from sqlalchemy import JSON, Text, any_, bindparam, cast, column, func, select
from sqlalchemy.dialects import postgresql, sqlite

from admission.store.database.instant import Instant

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from sqlalchemy import ColumnElement, Connection, Table

    from admission.store.records import Document


def insert(dialect: str, table: Table) -> Any:
    """An INSERT with `on_conflict_do_update` and `on_conflict_do_nothing`."""
    return sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)


def upsert(dialect: str, table: Table, *, keep: Collection[str] = ()) -> Any:
    """Insert rows, or replace those of the same key but for the columns to `keep`."""
    statement = insert(dialect, table)
    keys = [column.name for column in table.primary_key]
    replaced = {column.name: statement.excluded[column.name] for column in table.c if column.name not in (*keys, *keep)}
    return statement.on_conflict_do_update(index_elements=keys, set_=replaced)


def among(dialect: str, column: ColumnElement[str], texts: Iterable[str]) -> ColumnElement[bool]:
    """That the column is one of the texts, as one parameter: IN with hundreds of them takes longer than the query."""
    if dialect == "sqlite":
        values = func.json_each(orjson.dumps([*texts]).decode()).table_valued("value")
        return column.in_(select(values.c.value))
    return column == any_(bindparam(None, [*texts], type_=postgresql.ARRAY(Text)))


def insert_all(connection: Connection, statement: Any, rows: Sequence[Document]) -> None:
    """Execute an INSERT, made once and kept, for rows that all have the same columns.

    PostgreSQL takes them as one JSON value: to execute a statement for each row costs it as much again as the row
    itself. SQLite has no such cost; for it values are converted by column: the row of a workload takes 15 µs so, and
    25 where SQLAlchemy converts them one by one.
    """
    if not rows:
        return
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(*_for_sqlite(statement, tuple(rows[0])).of(rows))
    else:
        connection.execute(_from_json(statement, tuple(rows[0])), {"rows": _json(statement.table, rows)})


class _Text(NamedTuple):
    """An INSERT as SQLite is given it."""

    text: str
    values: Callable[[Document], tuple[Any, ...]]
    """The values of a row, in the order in which the text wants them."""
    instants: tuple[int, ...]
    documents: tuple[int, ...]
    """Positions of values that are written in another way, as the types of their columns do it."""

    def of(self, rows: Iterable[Document]) -> tuple[str, list[tuple[Any, ...]]]:
        """The text, and the values of the rows."""
        columns: list[Sequence[Any]] = [*zip(*map(self.values, rows), strict=True)]
        for index in self.instants:
            columns[index] = [None if value is None else round(value * 1_000_000) for value in columns[index]]
        for index in self.documents:
            columns[index] = [None if value is None else orjson.dumps(value).decode() for value in columns[index]]
        return self.text, [*zip(*columns, strict=True)]


@cache
def _for_sqlite(statement: Any, names: tuple[str, ...]) -> _Text:
    compiled = statement.inline().compile(dialect=sqlite.dialect(), column_keys=names)
    order = compiled.positiontup
    types = [statement.table.c[name].type for name in order]
    instants = tuple(index for index, kind in enumerate(types) if isinstance(kind, Instant))
    documents = tuple(index for index, kind in enumerate(types) if isinstance(kind, JSON))
    return _Text(compiled.string, itemgetter(*order), instants, documents)


@cache
def _from_json(statement: Any, names: tuple[str, ...]) -> Any:
    types = {name: statement.table.c[name].type for name in names}
    columns = (column(name, Text if isinstance(kind, JSON) else kind) for name, kind in types.items())
    function = func.json_to_recordset(cast(bindparam("rows", type_=Text), JSON))
    given = function.table_valued(*columns).render_derived("given", with_types=True)
    values = (cast(given.c[name], JSON) if isinstance(kind, JSON) else given.c[name] for name, kind in types.items())
    return statement.from_select(names, select(*values))


def _json(table: Table, rows: Iterable[Document]) -> str:
    special = _special(table)
    return orjson.dumps(
        [row | {name: write(row[name]) for name, write in special if row.get(name) is not None} for row in rows]
    ).decode()


@cache
def _special(table: Table) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """The columns whose values are written in another way than JSON's own, and how."""
    found: list[tuple[str, Callable[[Any], Any]]] = []
    for one in table.c:
        if isinstance(one.type, Instant):
            found.append((one.name, _instant))
        elif isinstance(one.type, JSON):
            found.append((one.name, _document))
    return tuple(found)


def _instant(value: float) -> datetime:
    """As the type of the column does it, to the microsecond: beginnings and endings must meet."""
    return datetime.fromtimestamp(value, UTC)


def _document(value: Any) -> str:
    """A text of its own: only within a document does PostgreSQL take the escaped zero byte."""
    return orjson.dumps(value).decode()
