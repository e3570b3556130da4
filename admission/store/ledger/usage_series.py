"""Usage over time: the same sums as in `usage_reports`, in buckets of equal length."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import func, literal, select

from admission.store.database.instant import Instant
from admission.store.database.tables import admissions, head, usage_days, usage_rollups
from admission.store.ledger import usage_rows
from admission.store.ledger.rollup import DAY, HOUR, hour_of
from admission.store.ledger.usage import MICROSECONDS, usage, windows
from admission.store.ledger.usage_reports import UsageRow, columns_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.store.database.connection import Database
    from admission.store.ledger.usage import Holding
    from admission.store.ledger.usage_reports import Key
    from admission.store.ledger.usage_rows import Quotas


@dataclass(frozen=True, slots=True)
class UsageSeries:
    """Usage from `start` to `end` (Unix times, s) in buckets of `step` seconds; the last one may be incomplete."""

    start: float
    end: float
    step: float
    buckets: tuple[tuple[float, tuple[UsageRow, ...]], ...]
    """(start, rows) of each bucket; buckets without usage are left out."""


_STEPS = ((60.0, HOUR), (300.0, 6 * HOUR), (HOUR, 3 * DAY), (6 * HOUR, 14 * DAY), (DAY, 120 * DAY), (7 * DAY, math.inf))
"""Lengths of buckets to choose from, each with the longest series that is divided by it (s)."""

_Sums = defaultdict[float, "defaultdict[Key, list[float]]"]
"""[nominal, borrowed] amount-seconds by start of the bucket and key."""


async def usage_series(
    database: Database,
    by: Sequence[str],
    *,
    start: float,
    end: float,
    step: float | None,
    where: Mapping[str, Collection[str]],
) -> UsageSeries:
    """Return usage grouped by some of GROUPINGS and by time. `where`: accepted values by column of FILTERS.

    Buckets start at multiples of `step` (seconds) since the epoch, those of a day at midnight UTC; the first one
    contains `start`. Without a `step` the series begins with the first usage of all if that is later, and its length
    decides the step. Buckets of whole hours are read from the roll-ups as far as those reach. Shorter buckets, and
    groupings by workload or kind, need the rows of the ledger: such a series starts after the rows that retention has
    deleted.
    """
    columns = columns_of(by)
    holder = usage_rows.holder_columns({*columns, *where})
    sums: _Sums = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))
    async with database.read() as connection:
        rolled_up_to, pruned_to = (await connection.execute(select(head.c.rolled_up_to, head.c.pruned_to))).one()
        if step is None:
            start = max(start, await _first_usage(connection, pruned=pruned_to is not None) or start)
            step = next(each for each, longest in _STEPS if end - start <= longest)
        first = math.floor(start / step) * step
        if step % HOUR == 0 and holder == usage_rows.HOLDER_COLUMNS:
            summed_up_to = max(first, min(hour_of(end), rolled_up_to or 0.0))
            await _add_hours(connection, sums, columns, first, summed_up_to, step, where)
        else:
            summed_up_to = first = max(first, math.ceil((pruned_to or 0.0) / step) * step)
        held, quotas = [], {}
        if summed_up_to < end:
            held = await usage_rows.rows_in_force(connection, summed_up_to, end, holder=holder, where=where)
            quotas = await usage_rows.nominal_quotas(connection)
    window = summed_up_to, end, step
    await asyncio.to_thread(_add_ledger, sums, columns, held, quotas, window, holder, where)
    buckets = tuple((at, _rows(columns, sums[at])) for at in sorted(sums))
    return UsageSeries(first, max(first, end), step, buckets)


async def _first_usage(connection: AsyncConnection, *, pruned: bool) -> float | None:
    """Return when the first workload of all was admitted (Unix time, s), to the hour if its row has been deleted."""
    if not pruned:
        return (await connection.execute(select(admissions.c.from_at).order_by(admissions.c.id).limit(1))).scalar()
    sums = [select(func.min(period)) for period in (usage_days.c.day, usage_rollups.c.hour)]
    found = [(await connection.execute(statement)).scalar() for statement in sums]
    return min((at for at in found if at is not None), default=None)


async def _add_hours(
    connection: AsyncConnection,
    sums: _Sums,
    columns: tuple[str, ...],
    first: float,
    last: float,
    step: float,
    where: Mapping[str, Collection[str]],
) -> None:
    """Add the roll-ups by hour, or by day for buckets of whole days."""
    midnight = first
    if step % DAY == 0 and first % DAY == 0:
        midnight = max(first, math.floor(last / DAY) * DAY)
    for period, begins, ends in ((usage_days.c.day, first, midnight), (usage_rollups.c.hour, midnight, last)):
        if begins >= ends:
            continue
        table = period.table.c
        by = [table[name] for name in columns]
        within = [period >= literal(begins, Instant()), period < literal(ends, Instant())]
        within += [table[name].in_(sorted(allowed)) for name, allowed in where.items()]
        totals = func.sum(table.amount_seconds), func.sum(table.borrowed_seconds)
        statement = select(period, *by, *totals).where(*within).group_by(period, *by)
        for at, *key, total, borrowed in await connection.execute(statement):
            seconds = sums[math.floor(at / step) * step][tuple(key)]
            seconds[0] += total - borrowed
            seconds[1] += borrowed


def _add_ledger(
    sums: _Sums,
    columns: tuple[str, ...],
    held: Sequence[Holding],
    quotas: Quotas,
    window: tuple[float, float, float],
    holder: tuple[str, ...],
    where: Mapping[str, Collection[str]],
) -> None:
    """Add the usage by rows of the ledger in `window` (start, end, step)."""
    at, end, step = window
    bounds = [usage_rows.micros(at)] if held else []
    while held and at < end:
        at = min((math.floor(at / step) + 1) * step, end)
        bounds.append(usage_rows.micros(at))
    for begins, ends, rows in windows(held, bounds):
        bucket = math.floor(begins / MICROSECONDS / step) * step
        for account, used in usage(rows, quotas, start=begins, end=ends).items():
            values = {**account.quota_key._asdict(), **dict(zip(holder, account.holder, strict=True))}
            if all(values[name] in allowed for name, allowed in where.items()):
                seconds = sums[bucket][tuple(values[name] for name in columns)]
                seconds[0] += used.nominal / MICROSECONDS
                seconds[1] += used.borrowed / MICROSECONDS


def _rows(columns: tuple[str, ...], sums: Mapping[Key, list[float]]) -> tuple[UsageRow, ...]:
    rows = (
        UsageRow(dict(zip(columns, key, strict=True)), nominal, borrowed)
        for key, (nominal, borrowed) in sorted(sums.items())
    )
    return tuple(row for row in rows if row.amount_seconds)
