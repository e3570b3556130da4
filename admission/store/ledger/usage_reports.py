"""Usage reports: full hours and days from the roll-ups, the rest from the ledger itself."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

from sqlalchemy import func, literal, select

from admission.store.database.instant import Instant
from admission.store.database.tables import head, usage_days, usage_rollups
from admission.store.ledger import usage_rows, violations
from admission.store.ledger.rollup import DAY, HOUR, hour_of
from admission.store.ledger.usage import MICROSECONDS, usage, windows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from sqlalchemy import Column
    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.store.database.connection import Database
    from admission.store.ledger.usage import Holding, Pot, Steps
    from admission.store.ledger.violations import Violation

GROUPINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "queue": ("namespace", "local_queue"),
    "clusterqueue": ("cluster_queue",),
    "user": ("submitted_by",),
    "namespace": ("namespace",),
    "flavor": ("flavor",),
    "priority": ("priority",),
    "kind": ("kind",),
    "workload": ("namespace", "kind", "workload"),
    "resource": ("resource",),
}
"""Groupings of a report, with their columns. Kinds and workloads are known as far back as the ledger has rows."""

FILTERS: Final[Mapping[str, str]] = {
    "queue": "local_queue",
    "clusterqueue": "cluster_queue",
    "user": "submitted_by",
    "namespace": "namespace",
    "flavor": "flavor",
    "kind": "kind",
    "resource": "resource",
}
"""Filters of a report, with their columns."""

PERIODS: Final = ("day", "month")
"""Periods of a report; they begin at midnight, UTC."""

Key: TypeAlias = "tuple[str | int, ...]"


@dataclass(frozen=True, slots=True)
class UsageRow:
    """The usage of one resource in amounts (milli-CPU, else base units) times seconds."""

    of: Mapping[str, str | int]
    """Whose it is, by column: namespace, local_queue, cluster_queue, submitted_by, flavor, priority, kind, workload,
    resource.

    Divided by time also `period`: a day such as 2026-11-22, or a month such as 2026-11.
    """
    nominal_seconds: float
    """Within the nominal quota of the ClusterQueue at that time ..."""
    borrowed_seconds: float
    """... and beyond it."""
    others: int = 0
    """So many groups are added up in this row, which therefore has `resource` (and `period`) alone; 0: it is one."""

    @property
    def amount_seconds(self) -> float:
        """Nominal and borrowed together."""
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

    async def usage(
        self,
        by: Sequence[str],
        *,
        start: float,
        end: float,
        period: str = "",
        where: Mapping[str, Collection[str]] | None = None,
    ) -> UsageReport:
        """Usage from `start` until `end`, or until now, divided by some of GROUPINGS, and always by resource.

        `period` (of PERIODS) divides it by time, too. `where` has, for columns of FILTERS, the values that count.
        """
        columns, where = columns_of(by), where or {}
        sums = _Sums(columns, period, where)
        end = min(end, self.now())
        async with self._database.read() as connection:
            rolled_up_to, pruned_to = (await connection.execute(select(head.c.rolled_up_to, head.c.pruned_to))).one()
            if sums.holder != usage_rows.HOLDER:
                start, rolled_up_to = max(start, pruned_to or 0.0), None
            start, end = _hours_only(start, pruned_to, math.floor), _hours_only(end, pruned_to, math.ceil)
            first, last = math.ceil(start / HOUR) * HOUR, min(hour_of(end), rolled_up_to or 0.0)
            for times, begins, ends in _summed_up(first, last):
                await sums.add_rollups(connection, times, begins, ends)
            parts = [(start, first), (last, end)] if first < last else [(start, end)]
            read = [
                (part, await usage_rows.during(connection, *part, holder=sums.holder, where=where))
                for part in parts
                if part[0] < part[1]
            ]
            quotas = await usage_rows.nominal_quotas(connection) if read else {}
        for part, held in read:
            await asyncio.to_thread(sums.add_holdings, held, quotas, *part)
        return UsageReport(start, max(start, end), tuple(row for row in sums.rows() if row.amount_seconds))

    async def violations(self, *, since: float = 0.0) -> tuple[Violation, ...]:
        """Quota violations by admissions that began at `since` (Unix time, s) or later; empty in a correct ledger."""
        async with self._database.read() as connection:
            rows, versions = await violations.read(connection, since=since)
        return await asyncio.to_thread(lambda: tuple(violations.violations(rows, versions, since=since)))


def columns_of(by: Sequence[str]) -> tuple[str, ...]:
    """The columns of some of GROUPINGS, and the resource."""
    return tuple(dict.fromkeys(column for name in (*by, "resource") for column in GROUPINGS[name]))


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


class _Sums:
    """Nominal and borrowed seconds by period, if it is divided into some, and by the values of `columns`."""

    def __init__(self, columns: tuple[str, ...], period: str, where: Mapping[str, Collection[str]]) -> None:
        self._columns = columns
        self._period = period
        self._where = where
        self.holder = usage_rows.holder({*columns, *where})
        """What rows of the ledger are to be read with."""
        self._sums: defaultdict[Key, list[float]] = defaultdict(lambda: [0.0, 0.0])

    async def add_rollups(self, connection: AsyncConnection, times: Column[float], first: float, last: float) -> None:
        """Add the full hours or days of a table of roll-ups; `times` is its column of their beginnings."""
        if first >= last:
            return
        table = times.table.c
        by = [*([times] if self._period else []), *(table[name] for name in self._columns)]
        totals = func.sum(table.amount_seconds), func.sum(table.borrowed_seconds)
        conditions = [times >= literal(first, Instant()), times < literal(last, Instant())]
        conditions += [table[name].in_([*values]) for name, values in self._where.items()]
        for *key, total, borrowed in await connection.execute(select(*by, *totals).where(*conditions).group_by(*by)):
            if self._period:
                key[0] = _label(key[0], self._period)
            self._add(tuple(key), total - borrowed, borrowed)

    def add_holdings(self, held: Sequence[Holding], quotas: Mapping[Pot, Steps], start: float, end: float) -> None:
        """Add what the rows of the ledger come to between two instants."""
        if held and self._period:
            start = max(start, min(one.begins for one in held) / MICROSECONDS)
        bounds = [usage_rows.micros(at) for at in (start, *_ends(start, end, self._period))] if held else []
        for begins, ends, rows in windows(held, bounds):
            period = (_label(begins / MICROSECONDS, self._period),) if self._period else ()
            for account, used in usage(rows, quotas, start=begins, end=ends).items():
                values = {**account.pot._asdict(), **dict(zip(self.holder, account.holder, strict=True))}
                if all(values[name] in wanted for name, wanted in self._where.items()):
                    key = (*period, *(values[name] for name in self._columns))
                    self._add(key, used.nominal / MICROSECONDS, used.borrowed / MICROSECONDS)

    def rows(self) -> Iterator[UsageRow]:
        """All sums, sorted by their groups."""
        names = ("period", *self._columns) if self._period else self._columns
        for key, (nominal, borrowed) in sorted(self._sums.items()):
            yield UsageRow(dict(zip(names, key, strict=True)), nominal, borrowed)

    def _add(self, key: Key, nominal: float, borrowed: float) -> None:
        seconds = self._sums[key]
        seconds[0] += nominal
        seconds[1] += borrowed


def _label(at: float, period: str) -> str:
    """The day or month of an instant, as ISO 8601 writes it: 2026-11-22, 2026-11."""
    day = datetime.fromtimestamp(at, UTC).date().isoformat()
    return day if period == "day" else day[:7]


def _ends(start: float, end: float, period: str) -> Iterator[float]:
    """The end of the part of the time from `start` to `end` in each period, in order."""
    while start < end:
        start = min(end, _next(start, period)) if period else end
        yield start


def _next(at: float, period: str) -> float:
    """When the period after that of an instant begins."""
    midnight = datetime.fromtimestamp(at, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "day":
        return (midnight + timedelta(days=1)).timestamp()
    return (midnight.replace(day=1) + timedelta(days=32)).replace(day=1).timestamp()
