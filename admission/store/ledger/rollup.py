"""Roll-ups of the ledger by hour and by day, so that a report over a year does not read a year of admissions.

Hours are read and summed up in a read transaction, which blocks no writer; the transaction that writes the sums checks
that no commit has changed those hours since. A later commit with a time in an hour that has roll-ups (after an outage
of the database, or by a clock that was set back) deletes the roll-ups from that hour on, in its own transaction. So
roll-ups and ledger are always consistent.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from sqlalchemy import bindparam, case, delete, func, insert, literal, select, update

from admission.store.database.instant import Instant
from admission.store.database.tables import admissions, head, usage_days, usage_rollups
from admission.store.errors import StaleEpoch
from admission.store.ledger import usage_rows
from admission.store.ledger.usage import MICROSECONDS, usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Connection, Insert
    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.store.database.connection import Database
    from admission.store.ledger.usage import Holding
    from admission.store.ledger.usage_rows import Quotas
    from admission.store.records import Document

HOUR = 3600.0
DAY = 24 * HOUR
GRACE = 300.0
"""Seconds from the end of an hour until it is summed up, by when its events usually have been committed."""


def hour_of(at: float) -> float:
    """Return the start of the hour of an instant (Unix times, s)."""
    return math.floor(at / HOUR) * HOUR


def _day_of(at: float) -> float:
    return math.floor(at / DAY) * DAY


async def roll_up(database: Database, *, now: float, epoch: int) -> int:
    """Add the roll-ups of all hours that are over by `now` (Unix time, s); return their number.

    An hour's usage of a resource is the amount held times the seconds held, in amount-seconds. If several hours are
    due, those of one day share a transaction. Raises StaleEpoch.
    """
    hours = 0
    quotas: Quotas = {}
    known: int | None = None
    while True:
        async with database.read() as connection:
            revision, start = await _next_hour(connection, epoch)
            if start is None or (end := min(_day_of(start) + DAY, hour_of(now - GRACE))) <= start:
                return hours
            holdings = await usage_rows.rows_in_force(connection, start, end)
            if revision != known:  # they are those of all time, and each write takes a revision
                quotas, known = await usage_rows.nominal_quotas(connection), revision
        rows = await asyncio.to_thread(_sums, holdings, quotas, start, end)
        if await _write(database, start, end, rows, revision=revision, epoch=epoch):
            hours += round((end - start) / HOUR)


def reopen(connection: Connection, at: float) -> None:
    """Delete the roll-ups from the hour of `at` (Unix time, s) on, because a late commit has changed that hour."""
    first: float | None = connection.scalar(_REOPEN, {"hour": hour_of(at)})
    if first is not None:
        connection.execute(delete(usage_rollups).where(usage_rollups.c.hour >= first))
        connection.execute(delete(usage_days).where(usage_days.c.day > first - DAY))


async def _next_hour(connection: AsyncConnection, epoch: int) -> tuple[int, float | None]:
    """Return the newest revision, and the start of the first hour without roll-ups; None if the ledger is empty."""
    columns = head.c
    row = (await connection.execute(select(columns.revision, columns.epoch, columns.rolled_up_to))).one()
    _check(row.epoch, epoch)
    if row.rolled_up_to is not None:
        return row.revision, row.rolled_up_to
    first: float | None = await connection.scalar(select(func.min(admissions.c.from_at)))
    return row.revision, None if first is None else hour_of(first)


def _sums(holdings: Sequence[Holding], quotas: Quotas, start: float, end: float) -> list[Document]:
    """Return the rows of `usage_rollups` for the hours from `start` to `end`."""
    rows = []
    for number in range(round((end - start) / HOUR)):
        hour = start + number * HOUR
        until = usage_rows.micros(hour + HOUR)
        for account, used in usage(holdings, quotas, start=usage_rows.micros(hour), end=until).items():
            rows.append(
                {
                    "hour": hour,
                    **account.quota_key._asdict(),
                    **dict(zip(usage_rows.HOLDER_COLUMNS, account.holder, strict=True)),
                    "amount_seconds": used.total / MICROSECONDS,
                    "borrowed_seconds": used.borrowed / MICROSECONDS,
                }
            )
    return rows


async def _write(
    database: Database, start: float, end: float, rows: Sequence[Document], *, revision: int, epoch: int
) -> bool:
    """Insert the roll-ups of the hours from `start` to `end`; return False if the ledger changed since `revision`."""
    async with database.write() as connection:
        locked = select(head.c.epoch, head.c.rolled_up_to).with_for_update()
        row = (await connection.execute(locked)).one()
        _check(row.epoch, epoch)
        moved = row.rolled_up_to is not None and row.rolled_up_to != start
        if moved or await usage_rows.changed_since(connection, revision, start, end):
            await connection.rollback()
            return False
        if rows:
            await connection.execute(insert(usage_rollups), rows)
        await connection.execute(update(head).values(rolled_up_to=end))
        if end == _day_of(end):
            await connection.execute(_insert_day(end - DAY))
    return True


def _insert_day(day: float) -> Insert:
    """Return the INSERT ... SELECT of a day's roll-ups from those of its hours."""
    hours = usage_rollups.c
    by = [hours[column.name] for column in usage_days.primary_key if column.name != "day"]
    sums = func.sum(hours.amount_seconds), func.sum(hours.borrowed_seconds)
    of_the_day = hours.hour >= _instant(day), hours.hour < _instant(day + DAY)
    totals = select(_instant(day), *by, *sums).where(*of_the_day).group_by(*by)
    return insert(usage_days).from_select(usage_days.c.keys(), totals)


def _check(current: int, epoch: int) -> None:
    if current != epoch:
        raise StaleEpoch(f"this Sluice is no longer the leader (its epoch is {epoch}); the usage was not summed up")


def _instant(at: float) -> ColumnElement[float]:
    return literal(at, Instant())


_HOUR = bindparam("hour", type_=Instant())
# Hours of which ledger rows were deleted by retention cannot be summed up again: their roll-ups stay.
_EARLIEST = case((head.c.pruned_to > _HOUR, head.c.pruned_to), else_=_HOUR)
# Built once, because constructing a statement costs as much as executing it.
_REOPEN = (
    update(head).where(head.c.rolled_up_to > _EARLIEST).values(rolled_up_to=_EARLIEST).returning(head.c.rolled_up_to)
)
