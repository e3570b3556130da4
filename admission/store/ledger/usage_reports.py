"""Who used how much: full hours from the roll-ups, what lies beside them from the ledger itself."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from sqlalchemy import func, literal, select

from admission.store.database.tables import Instant, head, usage_days, usage_rollups
from admission.store.ledger import usage_rows, violations
from admission.store.ledger.rollup import DAY, HOUR, hour_of
from admission.store.ledger.usage import MICROSECONDS, usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sqlalchemy import Column
    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.store.database.connection import Database
    from admission.store.ledger.usage import Account, Usage
    from admission.store.ledger.violations import Violation

GROUPINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "queue": ("namespace", "local_queue"),
    "clusterqueue": ("cluster_queue",),
    "user": ("submitted_by",),
    "namespace": ("namespace",),
    "flavor": ("flavor",),
    "priority": ("priority",),
    "resource": ("resource",),
}
"""What a report can be divided by, and the columns that this means."""

Key: TypeAlias = "tuple[str | int, ...]"


@dataclass(frozen=True, slots=True)
class UsageRow:
    """What was used of one resource. Amounts (milli of cpu, else base units) times seconds."""

    of: Mapping[str, str | int]
    """Whose it is, by column: namespace, local_queue, cluster_queue, submitted_by, flavor, priority, resource."""
    nominal_seconds: float
    """Within the nominal quota of the ClusterQueue at that time ..."""
    borrowed_seconds: float
    """... and beyond it."""

    @property
    def amount_seconds(self) -> float:
        """All of it."""
        return self.nominal_seconds + self.borrowed_seconds


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Usage from `start` to `end`, which are full hours where the ledger has given up its rows."""

    start: float
    end: float
    rows: tuple[UsageRow, ...]
    """Sorted by what they are divided by."""


class Reports:
    """Reports on the ledger."""

    def __init__(self, database: Database, *, clock: Callable[[], float]) -> None:
        self._database = database
        self.now = clock
        """Seconds since the epoch."""

    async def usage(self, by: Sequence[str], *, start: float, end: float) -> UsageReport:
        """Usage from `start` until `end`, or until now, divided by some of GROUPINGS, and always by resource."""
        columns = tuple(dict.fromkeys(column for name in (*by, "resource") for column in GROUPINGS[name]))
        end = min(end, self.now())
        async with self._database.read() as connection:
            rolled_up_to, pruned_to = (await connection.execute(select(head.c.rolled_up_to, head.c.pruned_to))).one()
            start, end = _hours_only(start, pruned_to, math.floor), _hours_only(end, pruned_to, math.ceil)
            first, last = math.ceil(start / HOUR) * HOUR, min(hour_of(end), rolled_up_to or 0.0)
            sums: defaultdict[Key, list[float]] = defaultdict(lambda: [0.0, 0.0])
            for part in _summed_up(first, last):
                await _add_up(connection, sums, columns, *part)
            parts = [(start, first), (last, end)] if first < last else [(start, end)]
            read = [(part, await usage_rows.during(connection, *part)) for part in parts if part[0] < part[1]]
            quotas = await usage_rows.nominal_quotas(connection) if read else {}
        for (begins, ends), held in read:
            window = {"start": usage_rows.micros(begins), "end": usage_rows.micros(ends)}
            for account, used in (await asyncio.to_thread(usage, held, quotas, **window)).items():
                _add(sums, columns, account, used)
        rows = [UsageRow(dict(zip(columns, key, strict=True)), *seconds) for key, seconds in sorted(sums.items())]
        return UsageReport(start, max(start, end), tuple(row for row in rows if row.amount_seconds))

    async def violations(self, *, since: float = 0.0) -> tuple[Violation, ...]:
        """Where more quota was given than there was, by admissions that began at `since` or later; none, we hope."""
        async with self._database.read() as connection:
            rows, versions = await violations.read(connection, since=since)
        return await asyncio.to_thread(lambda: tuple(violations.violations(rows, versions, since=since)))


def _hours_only(at: float, pruned_to: float | None, rounding: Callable[[float], int]) -> float:
    return at if pruned_to is None or at >= pruned_to else rounding(at / HOUR) * HOUR


def _summed_up(first: float, last: float) -> Iterator[tuple[Column[float], float, float]]:
    """Full days and what is left of hours before and after them: the column of their times, from when, until when."""
    days = math.ceil(first / DAY) * DAY, math.floor(last / DAY) * DAY
    if days[0] >= days[1]:
        yield usage_rollups.c.hour, first, last
        return
    yield usage_rollups.c.hour, first, days[0]
    yield usage_days.c.day, *days
    yield usage_rollups.c.hour, days[1], last


async def _add_up(
    connection: AsyncConnection,
    sums: defaultdict[Key, list[float]],
    columns: tuple[str, ...],
    period: Column[float],
    first: float,
    last: float,
) -> None:
    """Nominal and borrowed seconds of full hours or days, by the values of `columns`."""
    if first >= last:
        return
    table = period.table.c
    by = [table[name] for name in columns]
    totals = func.sum(table.amount_seconds), func.sum(table.borrowed_seconds)
    within = period >= literal(first, Instant()), period < literal(last, Instant())
    for *key, total, borrowed in await connection.execute(select(*by, *totals).where(*within).group_by(*by)):
        seconds = sums[tuple(key)]
        seconds[0] += total - borrowed
        seconds[1] += borrowed


def _add(sums: defaultdict[Key, list[float]], columns: tuple[str, ...], account: Account, used: Usage) -> None:
    values = {**account.pot._asdict(), **dict(zip(usage_rows.HOLDER, account.holder, strict=True))}
    seconds = sums[tuple(values[name] for name in columns)]
    seconds[0] += used.nominal / MICROSECONDS
    seconds[1] += used.borrowed / MICROSECONDS
