"""The ledger summed up by the hour, so that a report over a year does not read a year of admissions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from sqlalchemy import Double, case, func, insert, literal, select, update
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import FunctionElement

from admission.store.errors import StaleEpoch
from admission.store.tables import Instant, admissions, head, usage_rollups

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement
    from sqlalchemy.ext.asyncio import AsyncConnection
    from sqlalchemy.sql.compiler import SQLCompiler

    from admission.store.database import Database

HOUR = 3600.0
GRACE = 300.0
"""Seconds after its end until an hour is summed up: what happens in it has been committed by then."""


async def roll_up(database: Database, *, now: float, epoch: int) -> int:
    """Sum up the hours that are over and have not been summed up, and return how many they were.

    An hour's usage of a resource is the amount held times the seconds held, in amount-seconds. Each hour is a
    transaction of its own. Raises StaleEpoch.
    """
    hours = 0
    while True:
        async with database.write() as connection:
            hour = await _next_hour(connection, epoch)
            if hour is None or hour + HOUR + GRACE > now:
                await connection.rollback()
                return hours
            await connection.execute(insert(usage_rollups).from_select(usage_rollups.c.keys()[:-1], _usage(hour)))
            await connection.execute(update(head).values(rolled_up_to=hour + HOUR))
        hours += 1


async def _next_hour(connection: AsyncConnection, epoch: int) -> float | None:
    """The beginning of the first hour that is to be summed up; None if the ledger is empty."""
    # Locked, so that nothing is committed while the hour is read.
    statement = select(head.c.rolled_up_to).where(head.c.epoch == epoch).with_for_update()
    row = (await connection.execute(statement)).one_or_none()
    if row is None:
        raise StaleEpoch(f"this Sluice leads no more (its epoch is {epoch}); the usage was not summed up")
    if row.rolled_up_to is not None:
        return float(row.rolled_up_to)
    first: float | None = await connection.scalar(select(func.min(admissions.c.from_at)))
    return None if first is None else math.floor(first / HOUR) * HOUR


def _usage(hour: float) -> Any:
    columns = admissions.c
    start, end = literal(hour, Instant()), literal(hour + HOUR, Instant())
    begins = case((columns.from_at > start, columns.from_at), else_=start)
    ends = case((columns.to_at < end, columns.to_at), else_=end)
    by = (
        columns.cluster_queue,
        columns.local_queue,
        columns.namespace,
        columns.submitted_by,
        columns.priority,
        columns.flavor,
        columns.resource,
    )
    return (
        select(start, *by, func.sum(columns.amount * _seconds(begins, ends)))
        .where(columns.from_at < end, (columns.to_at > start) | columns.to_at.is_(None), columns.resource != "")
        .group_by(*by)
    )


class _seconds(FunctionElement[float]):  # noqa: N801  a function of SQL
    """The time between two instants; each database subtracts in its own way."""

    type = Double()
    inherit_cache = True

    def __init__(self, begins: ColumnElement[Any], ends: ColumnElement[Any]) -> None:
        super().__init__(begins, ends)


@compiles(_seconds, "sqlite")
def _sqlite_seconds(element: _seconds, compiler: SQLCompiler, **options: Any) -> str:
    begins, ends = (compiler.process(clause, **options) for clause in element.clauses)
    return f"(({ends}) - ({begins})) / 1000000.0"


@compiles(_seconds, "postgresql")
def _postgresql_seconds(element: _seconds, compiler: SQLCompiler, **options: Any) -> str:
    begins, ends = (compiler.process(clause, **options) for clause in element.clauses)
    return f"extract(epoch FROM ({ends}) - ({begins}))::double precision"
