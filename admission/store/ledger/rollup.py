"""Roll-ups of the ledger by hour and by day, so that a report over a year does not read a year of admissions.

Hours are read and summed up without holding anybody up; the transaction that writes the sums only makes sure that
nothing of those hours was committed meanwhile. What is committed later than that with a time in an hour that is summed
up already (an outage of the database, a clock that was set back) takes that hour and those after it back, in its own
transaction. So sums and ledger agree at all times.
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
"""Seconds after its end until an hour is summed up: what happens in it has been committed by then."""


def hour_of(at: float) -> float:
    """The beginning of the hour of an instant."""
    return math.floor(at / HOUR) * HOUR


def _day_of(at: float) -> float:
    return math.floor(at / DAY) * DAY


async def roll_up(database: Database, *, now: float, epoch: int) -> int:
    """Sum up the hours that are over and have not been summed up, and return how many they were.

    An hour's usage of a resource is the amount held times the seconds held, in amount-seconds. The hours of a day share
    a transaction, if several are due. Raises StaleEpoch.
    """
    hours = 0
    while True:
        async with database.read() as connection:
            revision, start = await _next_hour(connection, epoch)
            if start is None or (end := min(_day_of(start) + DAY, hour_of(now - GRACE))) <= start:
                return hours
            held = await usage_rows.during(connection, start, end)
            quotas = await usage_rows.nominal_quotas(connection)
        rows = await asyncio.to_thread(_sums, held, quotas, start, end)
        if await _write(database, start, end, rows, revision=revision, epoch=epoch):
            hours += round((end - start) / HOUR)


def reopen(connection: Connection, at: float) -> None:
    """Delete the roll-ups from the hour of `at` on, as a late commit has changed it."""
    again: float | None = connection.scalar(_REOPEN, {"hour": hour_of(at)})
    if again is not None:
        connection.execute(delete(usage_rollups).where(usage_rollups.c.hour >= again))
        connection.execute(delete(usage_days).where(usage_days.c.day > again - DAY))


async def _next_hour(connection: AsyncConnection, epoch: int) -> tuple[int, float | None]:
    """The newest revision, and the beginning of the first hour that is to be summed up; None if the ledger is empty."""
    columns = head.c
    row = (await connection.execute(select(columns.revision, columns.epoch, columns.rolled_up_to))).one()
    _check(row.epoch, epoch)
    if row.rolled_up_to is not None:
        return row.revision, row.rolled_up_to
    first: float | None = await connection.scalar(select(func.min(admissions.c.from_at)))
    return row.revision, None if first is None else hour_of(first)


def _sums(held: Sequence[Holding], quotas: Quotas, start: float, end: float) -> list[Document]:
    """The rows of the hours from `start` to `end`."""
    rows = []
    for number in range(round((end - start) / HOUR)):
        hour = start + number * HOUR
        until = usage_rows.micros(hour + HOUR)
        for account, used in usage(held, quotas, start=usage_rows.micros(hour), end=until).items():
            rows.append(
                {
                    "hour": hour,
                    **account.pot._asdict(),
                    **dict(zip(usage_rows.HOLDER, account.holder, strict=True)),
                    "amount_seconds": used.total / MICROSECONDS,
                    "borrowed_seconds": used.borrowed / MICROSECONDS,
                }
            )
    return rows


async def _write(
    database: Database, start: float, end: float, rows: Sequence[Document], *, revision: int, epoch: int
) -> bool:
    """Whether the rows were written; False: what they are the sums of has changed since `revision`."""
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
            await connection.execute(_sum_up(end - DAY))
    return True


def _sum_up(day: float) -> Insert:
    hours = usage_rollups.c
    by = [hours[column.name] for column in usage_days.primary_key if column.name != "day"]
    sums = func.sum(hours.amount_seconds), func.sum(hours.borrowed_seconds)
    of_the_day = hours.hour >= _instant(day), hours.hour < _instant(day + DAY)
    found = select(_instant(day), *by, *sums).where(*of_the_day).group_by(*by)
    return insert(usage_days).from_select(usage_days.c.keys(), found)


def _check(current: int, epoch: int) -> None:
    if current != epoch:
        raise StaleEpoch(f"this Sluice leads no more (its epoch is {epoch}); the usage was not summed up")


def _instant(at: float) -> ColumnElement[float]:
    return literal(at, Instant())


_HOUR = bindparam("hour", type_=Instant())
# Not where rows have left the ledger: the sums are all that there is of them.
_EARLIEST = case((head.c.pruned_to > _HOUR, head.c.pruned_to), else_=_HOUR)
# Made once, because each commit that begins or ends an admission executes it.
_REOPEN = (
    update(head).where(head.c.rolled_up_to > _EARLIEST).values(rolled_up_to=_EARLIEST).returning(head.c.rolled_up_to)
)
