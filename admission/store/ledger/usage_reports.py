"""Usage reports: full hours and days from the roll-ups, the rest from the rows of the ledger."""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from sqlalchemy import func, literal, select

from admission.store.database.instant import Instant
from admission.store.database.tables import head, usage_days, usage_rollups
from admission.store.errors import TooManyReports
from admission.store.ledger import places, usage_rows, violations
from admission.store.ledger.periods import label, period_ends
from admission.store.ledger.rollup import DAY, HOUR, hour_of
from admission.store.ledger.usage import MICROSECONDS, QuotaKey, usage, windows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from datetime import tzinfo

    from sqlalchemy import Column
    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.store.database.connection import Database
    from admission.store.ledger.places import DomainStay
    from admission.store.ledger.usage import Account, Holding, UsageSum
    from admission.store.ledger.usage_rows import Quotas
    from admission.store.ledger.violations import Violation

MAX_WAITING = 40
"""Most computations that wait; requests for others are refused."""
MAX_WAITING_OF_USER = 10
"""Most of them that one user may have requested."""
_MAX_RETRY_AFTER = 30

AccountSums: TypeAlias = "Sequence[tuple[str, Mapping[Account, UsageSum]]]"
"""By period, in order of time: its label (empty without periods), and the usage of each account."""


class LedgerSum(NamedTuple):
    """The usage by ledger rows until `end` (Unix time, s)."""

    end: float
    pruned_to: float | None
    """Up to when retention had deleted ledger rows."""
    accounts: AccountSums


class SumKey(NamedTuple):
    """What is summed up; equal ones share a computation."""

    start: float
    end: float | None
    """Unix times (s); None: now, the time at which the rows are read."""
    period: str
    """A period of PERIODS that sums are divided into; empty: none."""
    zone: tzinfo
    """Time zone of these periods."""
    holder: tuple[str, ...]
    """Columns of accounts besides those of QuotaKey."""
    where: tuple[tuple[str, tuple[str, ...]], ...]
    """Accepted values of columns of QuotaKey."""


def wanted(
    start: float,
    end: float | None,
    period: str,
    zone: tzinfo,
    holder: tuple[str, ...],
    where: Mapping[str, Collection[str]],
) -> SumKey:
    """Return a key; of `where` it has the filters that make the sum smaller, without a change of what is left."""
    narrowing = ((name, tuple(sorted(values))) for name, values in where.items() if name in QuotaKey._fields)
    return SumKey(start, end, period, zone, holder, tuple(sorted(narrowing)))


@dataclass(slots=True)
class _WaitingTimes:
    computation: asyncio.Task[LedgerSum | None]
    user: str
    requests: int = 0


class LedgerSums:
    """Computes sums over rows of the ledger, one at a time in the order of their requests.

    A sum over the rows of a busy hour takes a second of Python. Several at the same time would be no faster, because of
    the GIL, and would hold database connections and delay decisions. So they take turns; and a report that needs a sum
    for which others wait already, such as that from the last roll-up until now, gets the same one. A sum is shared only
    before its rows are read, so that a report contains all that was committed before it was requested.

    `clock` returns the Unix time (s).
    """

    def __init__(self, database: Database, *, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock
        self.turn = asyncio.Lock()
        """Held by each computation."""
        self._waiting: dict[SumKey, _WaitingTimes] = {}
        self._seconds = 0.0
        """Duration of the last computation."""

    async def get(self, what: SumKey, *, user: str) -> LedgerSum:
        """Return a sum whose rows are read after this call. Raises TooManyReports if too many wait, or of the user."""
        one = self._waiting.get(what)
        if one is None:
            self._check(user)
            one = self._waiting[what] = _WaitingTimes(asyncio.ensure_future(self._compute(what)), user)
        one.requests += 1
        try:
            # Shielded: if this request is cancelled, the computation goes on for the others.
            found = await asyncio.shield(one.computation)
        finally:
            one.requests -= 1
        assert found is not None, "a computation that is requested is made"
        return found

    def _check(self, user: str) -> None:
        retry_after = min(max(1, math.ceil(len(self._waiting) * self._seconds)), _MAX_RETRY_AFTER)
        if len(self._waiting) >= MAX_WAITING:
            raise TooManyReports("too many usage reports are being computed; try again later", retry_after)
        if user and sum(one.user == user for one in self._waiting.values()) >= MAX_WAITING_OF_USER:
            raise TooManyReports(
                f'{MAX_WAITING_OF_USER} usage reports of user "{user}" wait already; request fewer at a time',
                retry_after,
            )

    async def _compute(self, what: SumKey) -> LedgerSum | None:
        async with self.turn:
            if not self._waiting.pop(what).requests:
                return None  # all clients have disconnected
            began = time.monotonic()
            try:
                async with self._database.read() as connection:
                    end = self._clock() if what.end is None else what.end
                    pruned_to = await connection.scalar(select(head.c.pruned_to))
                    held = await usage_rows.rows_in_force(
                        connection, what.start, end, holder=what.holder, where=dict(what.where)
                    )
                    quotas = await usage_rows.nominal_quotas(connection)
                accounts = await asyncio.to_thread(_sums, held, quotas, what, end)
            finally:
                self._seconds = time.monotonic() - began
        return LedgerSum(end, pruned_to, accounts)


def _sums(held: Sequence[Holding], quotas: Quotas, what: SumKey, end: float) -> AccountSums:
    if not held:
        return ()
    start, period, zone = what.start, what.period, what.zone
    if period:
        start = max(start, min(one.begins for one in held) / MICROSECONDS)
    bounds = [usage_rows.micros(at) for at in (start, *period_ends(start, end, period, zone))]
    return [
        (label(begins / MICROSECONDS, period, zone) if period else "", usage(rows, quotas, start=begins, end=ends))
        for begins, ends, rows in windows(held, bounds)
    ]


GROUPINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "queue": ("namespace", "local_queue"),
    "clusterqueue": ("cluster_queue",),
    "user": ("submitted_by",),
    "namespace": ("namespace",),
    "flavor": ("flavor",),
    "priority": ("priority",),
    "kind": ("kind",),
    "cluster": ("cluster",),
    "workload": ("namespace", "kind", "workload"),
    "resource": ("resource",),
}
"""Groupings of a report, with their columns. Kinds, clusters and workloads are only in ledger rows, not in the
roll-ups."""

FILTERS: Final[Mapping[str, str]] = {
    "queue": "local_queue",
    "clusterqueue": "cluster_queue",
    "user": "submitted_by",
    "namespace": "namespace",
    "flavor": "flavor",
    "kind": "kind",
    "cluster": "cluster",
    "resource": "resource",
}
"""Filters of a report, with their columns."""

Key: TypeAlias = "tuple[str | int, ...]"
"""Values of the columns that usage is grouped by, after the period if there is one."""


@dataclass(frozen=True, slots=True)
class UsageRow:
    """Usage of one resource by one group, in amount (milli-CPU, else base units) times seconds."""

    group: Mapping[str, str | int]
    """Values of the grouping columns: namespace, local_queue, cluster_queue, submitted_by, flavor, priority, kind,
    cluster, workload, resource.

    With periods also `period`: a day such as 2026-11-22, or a month such as 2026-11.
    """
    nominal_seconds: float
    """Usage within the nominal quota that the ClusterQueue had at that time."""
    borrowed_seconds: float
    """Usage beyond it."""
    others: int = 0
    """Number of groups that are added up in this row, which then has only `resource` (and `period`); 0: one group."""
    quota_seconds: float | None = None
    """Nominal quota of the group's ClusterQueues, times the time that it was that much; None: not asked for."""
    idle_seconds: float | None = None
    """The part of it that workloads of these ClusterQueues did not use; it may have been lent."""
    measured_seconds: float | None = None
    """The part of the amount of which the use is known; None: not asked for."""
    used_seconds: float | None = None
    """The part of that which was used."""

    @property
    def amount_seconds(self) -> float:
        """Nominal plus borrowed usage."""
        return self.nominal_seconds + self.borrowed_seconds


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Usage from `start` to `end` (Unix times, s), rounded to full hours where retention has deleted ledger rows."""

    start: float
    end: float
    rows: tuple[UsageRow, ...]
    """Sorted by group."""


class Reports:
    """Reports on the ledger: usage, quota violations."""

    def __init__(self, database: Database, *, clock: Callable[[], float]) -> None:
        self._database = database
        self.now = clock
        """Returns seconds since the epoch."""
        self._ledger_sums = LedgerSums(database, clock=clock)
        self.turn = self._ledger_sums.turn
        """Lock of the computations from rows of the ledger, of which there is one at a time."""

    async def usage(
        self,
        by: Sequence[str],
        *,
        start: float,
        end: float,
        period: str = "",
        zone: tzinfo = UTC,
        where: Mapping[str, Collection[str]] | None = None,
        user: str = "",
    ) -> UsageReport:
        """Return usage from `start` until `end` (now at most), grouped by some of GROUPINGS, and always by resource.

        With `usage_rows.LEVEL` and a node label instead of one of them, by the domains of a level of topologies.

        `period` (of PERIODS) groups by time, too. Where periods of a `zone` begin within an hour of UTC, that hour is
        divided by the ledger's rows, or counts for the period in which it began if retention has deleted them. `where`
        filters: for columns of FILTERS, the accepted values. `user`: who requests it. Raises TooManyReports (see
        `LedgerSums`).
        """
        columns, where = columns_of(by), where or {}
        while True:
            sums = _Sums(columns, period, zone, where)
            pruned_to, begins, ends, parts = await self._add_rollups(sums, start, end)
            read = [
                await self._ledger_sums.get(wanted(*part, period, zone, sums.holder, where), user=user)
                for part in parts
            ]
            if all(one.pruned_to == pruned_to for one in read):  # else retention has deleted rows in between
                break
        for one in read:
            await asyncio.to_thread(sums.add_accounts, one.accounts)
        if parts and parts[-1][1] is None:
            ends = read[-1].end
        return UsageReport(begins, max(begins, ends), tuple(row for row in sums.rows() if row.amount_seconds))

    async def _add_rollups(
        self, sums: _Sums, start: float, end: float
    ) -> tuple[float | None, float, float, list[tuple[float, float | None]]]:
        """Add the roll-ups to the sums of a report.

        Returns up to when ledger rows are deleted, the report's start and end, and the parts of it that have to be
        added from ledger rows.
        """
        now = self.now()
        until, end = (None, now) if end >= now else (end, end)
        async with self._database.read() as connection:
            rolled_up_to, pruned_to = (await connection.execute(select(head.c.rolled_up_to, head.c.pruned_to))).one()
            if sums.holder != usage_rows.HOLDER_COLUMNS:
                start, rolled_up_to = max(start, pruned_to or 0.0), None
            start = _hours_only(start, pruned_to, math.floor)
            if (rounded := _hours_only(end, pruned_to, math.ceil)) != end:
                until = end = rounded
            first, last = math.ceil(start / HOUR) * HOUR, min(hour_of(end), rolled_up_to or 0.0)
            divided: list[tuple[float, float | None]] = []
            for name, begins, ends in sums.spans(first, last):
                next_hour, full_hours = math.ceil(ends / HOUR) * HOUR, math.floor(ends / HOUR) * HOUR
                if ends < (pruned_to or 0.0):
                    full_hours = next_hour
                elif full_hours < ends:
                    divided.append((full_hours, next_hour))
                for times, *part in _summed_up(math.ceil(begins / HOUR) * HOUR, full_hours):
                    await sums.add_rollups(connection, times, *part, period=name)
        parts = [(start, first), *divided, (last, until)] if first < last else [(start, until)]
        return pruned_to, start, end, [(at, to) for at, to in parts if at < (end if to is None else to)]

    async def violations(self, *, since: float = 0.0) -> tuple[Violation, ...]:
        """Return quota violations by admissions that started at `since` (Unix time, s) or later.

        Empty, unless quota was over-committed.
        """
        async with self._database.read() as connection:
            rows, versions = await violations.read(connection, since=since)
        return await asyncio.to_thread(lambda: tuple(violations.violations(rows, versions, since=since)))

    async def stays(self, domain: str, *, start: float, end: float) -> list[DomainStay]:
        """Return who had pods in a domain of a topology, such as a node, in a period (see `places`)."""
        async with self.turn:
            return await places.stays(self._database, domain, start=start, end=end)


def columns_of(by: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of some of GROUPINGS or levels (`usage_rows.LEVEL`), and the resource."""
    return tuple(dict.fromkeys(column for name in (*by, "resource") for column in GROUPINGS.get(name, (name,))))


def _hours_only(at: float, pruned_to: float | None, rounding: Callable[[float], int]) -> float:
    """Round an instant to a full hour if ledger rows of its time were deleted, so that only roll-ups remain."""
    return at if pruned_to is None or at >= pruned_to else rounding(at / HOUR) * HOUR


def _summed_up(first: float, last: float) -> Iterator[tuple[Column[float], float, float]]:
    """Yield the parts of a period by roll-up table, as (time column, start, end): full days, and hours around them."""
    days = math.ceil(first / DAY) * DAY, math.floor(last / DAY) * DAY
    if days[0] >= days[1]:
        yield usage_rollups.c.hour, first, last
        return
    yield usage_rollups.c.hour, first, days[0]
    yield usage_days.c.day, *days
    yield usage_rollups.c.hour, days[1], last


class _Sums:
    """Sums of nominal and borrowed seconds by period, if there is one, and by the values of `columns`."""

    def __init__(
        self, columns: tuple[str, ...], period: str, zone: tzinfo, where: Mapping[str, Collection[str]]
    ) -> None:
        self._columns = columns
        self._period = period
        self._zone = zone
        self._where = where
        self.holder = usage_rows.holder_columns({*columns, *where})
        """Columns that ledger rows have to be read with, for grouping and filtering."""
        self._sums: defaultdict[Key, list[float]] = defaultdict(lambda: [0.0, 0.0])

    def spans(self, first: float, last: float) -> Iterator[tuple[str, float, float]]:
        """Yield the parts of a time whose roll-ups are summed up at once, as (period, start, end).

        The days of roll-ups are those of UTC, which tell the period of each: that is one part without a name.
        """
        if not self._period or self._zone is UTC:
            yield "", first, last
            return
        for end in period_ends(first, last, self._period, self._zone):
            yield label(first, self._period, self._zone), first, end
            first = end

    async def add_rollups(
        self, connection: AsyncConnection, times: Column[float], first: float, last: float, *, period: str
    ) -> None:
        """Add the hours or days from `first` to `last` of a roll-up table; `times` is its time column.

        `period`: the one that they belong to; empty: each belongs to that of its time, if there are periods.
        """
        if first >= last:
            return
        table = times.table.c
        by_time = self._period and not period
        by = [*([times] if by_time else []), *(table[name] for name in self._columns)]
        totals = func.sum(table.amount_seconds), func.sum(table.borrowed_seconds)
        conditions = [times >= literal(first, Instant()), times < literal(last, Instant())]
        conditions += [table[name].in_([*values]) for name, values in self._where.items()]
        for *key, total, borrowed in await connection.execute(select(*by, *totals).where(*conditions).group_by(*by)):
            if by_time:
                key[0] = label(key[0], self._period)
            elif period:
                key.insert(0, period)
            self._add(tuple(key), total - borrowed, borrowed)

    def add_accounts(self, accounts: AccountSums) -> None:
        """Add the usage by rows of the ledger."""
        for period, used_by in accounts:
            first = (period,) if self._period else ()
            for account, used in used_by.items():
                values = {**account.quota_key._asdict(), **dict(zip(self.holder, account.holder, strict=True))}
                if all(values[name] in accepted for name, accepted in self._where.items()):
                    key = (*first, *(values[name] for name in self._columns))
                    self._add(key, used.nominal / MICROSECONDS, used.borrowed / MICROSECONDS)

    def rows(self) -> Iterator[UsageRow]:
        """Yield all sums, sorted by group."""
        names = ("period", *self._columns) if self._period else self._columns
        for key, (nominal, borrowed) in sorted(self._sums.items()):
            yield UsageRow(dict(zip(names, key, strict=True)), nominal, borrowed)

    def _add(self, key: Key, nominal: float, borrowed: float) -> None:
        seconds = self._sums[key]
        seconds[0] += nominal
        seconds[1] += borrowed
