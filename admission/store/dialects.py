"""What both databases can do and the common SQL cannot say: ON CONFLICT, and a list of any length as one value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from sqlalchemy import Text, any_, bindparam, func, select
from sqlalchemy.dialects import postgresql, sqlite

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from sqlalchemy import ColumnElement, Table


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
