"""Nominal and borrowed usage from rows of the ledger: a pure sweep through time, exact in integers.

At any time the admissions in one flavor and resource of a ClusterQueue are sorted by their start, and their amounts are
added up in that order. The part of the sum within the nominal quota of that time is nominal usage, the rest is
borrowed; an admission at the boundary is split. Times are in microseconds and usage is amount times microseconds, so
that nothing is rounded: nominal plus borrowed usage is exactly amount held times time held.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

MICROSECONDS = 1_000_000
"""Microseconds in a second."""


class QuotaKey(NamedTuple):
    """Key of a nominal quota: ClusterQueue, flavor and resource."""

    cluster_queue: str
    flavor: str
    resource: str


QuotaSteps: TypeAlias = "Sequence[tuple[int, int]]"
"""Nominal quota over time: (from when in microseconds, quota) in order of time; no quota before the first."""


class Holding(NamedTuple):
    """One row of the ledger: an amount of quota held from `begins` to `ends` (microseconds since the epoch)."""

    quota_key: QuotaKey
    order: tuple[int, str, str]
    """Sort key: start of its admission (microseconds), workload uid, pod set."""
    begins: int
    ends: int | None
    """None: the row is open."""
    amount: int
    holder: tuple[str | int, ...]
    """Values of the columns by which usage is accounted, such as LocalQueue, namespace, user and priority."""


class Account(NamedTuple):
    """Key of a usage sum: the quota, and the holder as in `Holding`."""

    quota_key: QuotaKey
    holder: tuple[str | int, ...]


@dataclass(slots=True)
class UsageSum:
    """A usage sum, in amount times microseconds."""

    total: int = 0
    borrowed: int = 0

    @property
    def nominal(self) -> int:
        """The part within the nominal quota."""
        return self.total - self.borrowed


def windows(holdings: Iterable[Holding], bounds: Sequence[int]) -> Iterator[tuple[int, int, list[Holding]]]:
    """Yield each window between successive `bounds` (microseconds, sorted) as (start, end, rows in force during it)."""
    within: list[list[Holding]] = [[] for _ in bounds[1:]]
    for row in holdings:
        first = max(0, bisect_right(bounds, row.begins) - 1)
        for number in range(first, len(within)):
            if row.ends is not None and row.ends <= bounds[number]:
                break
            within[number].append(row)
    yield from zip(bounds, bounds[1:], within, strict=False)


def usage(
    holdings: Iterable[Holding], quotas: Mapping[QuotaKey, QuotaSteps], *, start: int, end: int
) -> dict[Account, UsageSum]:
    """Return the usage from `start` until `end` (microseconds) by account; open rows count until `end`."""
    accounts: defaultdict[Account, UsageSum] = defaultdict(UsageSum)
    within = [h for h in holdings if max(start, h.begins) < (end if h.ends is None else min(h.ends, end))]
    for quota_key, rows in groupby(
        sorted(within, key=attrgetter("quota_key", "order", "begins")), key=attrgetter("quota_key")
    ):
        _add_usage(list(rows), quotas.get(quota_key, ()), start, end, accounts)
    return dict(accounts)


def _add_usage(
    rows: list[Holding], steps: QuotaSteps, start: int, end: int, accounts: defaultdict[Account, UsageSum]
) -> None:
    """Add the usage of one quota key to `accounts`; `rows` are sorted by `Holding.order`."""
    quota = next((nominal for at, nominal in reversed(steps) if at <= start), 0)
    events: list[tuple[int, int, int]] = []
    for index, row in enumerate(rows):
        begins, ends = max(row.begins, start), end if row.ends is None else min(row.ends, end)
        accounts[Account(row.quota_key, row.holder)].total += row.amount * (ends - begins)
        events += ((begins, _BEGIN, index), (ends, _END, index))
    total = sum(row.amount for row in rows)
    if all(nominal >= total for nominal in (quota, *(nominal for at, nominal in steps if start < at < end))):
        return  # The usual case: nothing can have been borrowed, so the sweep is not needed.
    events += ((at, _QUOTA, number) for number, (at, _) in enumerate(steps) if start < at < end)
    sweep = _Sweep(rows, quota, accounts)
    for now, kind, value in sorted(events):
        if kind == _BEGIN:
            sweep.begin(value, now)
        elif kind == _END:
            sweep.end(value, now)
        else:
            sweep.change(steps[value][1], now)


# Kinds of events, in the order for those at the same time. The order does not change the result; this one saves work.
_QUOTA, _END, _BEGIN = range(3)


class _Sweep:
    """State of the sweep for one quota key: active admissions in order, and the boundary between nominal and borrowed.

    Admissions are identified by their index in `rows`. Each event moves the boundary over few admissions, so a sweep
    takes about n log n steps.
    """

    def __init__(self, rows: Sequence[Holding], quota: int, accounts: Mapping[Account, UsageSum]) -> None:
        self._rows = rows
        self._accounts = accounts
        self._free = quota
        """Free nominal quota; never negative after a change."""
        self._quota = quota
        self._borrowed = [0] * len(rows)
        self._since = [0] * len(rows)
        self._is_active = [False] * len(rows)
        self._within_nominal: list[int] = []
        """Heap of negated indexes, the highest on top: rows that have nominal quota, and stale entries of others."""
        self._borrowing: list[int] = []
        """Heap of indexes, the lowest on top: rows that borrow, and stale entries of others."""

    def begin(self, index: int, now: int) -> None:
        """Start an admission: it takes nominal quota, if need be from admissions that are later in the order."""
        self._is_active[index] = True
        self._since[index] = now
        self._free -= self._rows[index].amount
        heappush(self._within_nominal, -index)
        self._rebalance(now)

    def end(self, index: int, now: int) -> None:
        """End an admission: its nominal quota goes to admissions that borrow."""
        self._free += self._rows[index].amount - self._borrowed[index]
        self._set_borrowed(index, 0, now)
        self._is_active[index] = False
        self._rebalance(now)

    def change(self, quota: int, now: int) -> None:
        """Change the nominal quota."""
        self._free += quota - self._quota
        self._quota = quota
        self._rebalance(now)

    def _rebalance(self, now: int) -> None:
        while self._free < 0 and self._within_nominal:
            index = -self._within_nominal[0]
            nominal = self._rows[index].amount - self._borrowed[index] if self._is_active[index] else 0
            moved = min(nominal, -self._free)
            if moved == nominal:
                heappop(self._within_nominal)
            if moved:
                self._free += moved
                heappush(self._borrowing, index)
                self._set_borrowed(index, self._borrowed[index] + moved, now)
        while self._free > 0 and self._borrowing:
            index = self._borrowing[0]
            borrowed = self._borrowed[index] if self._is_active[index] else 0
            moved = min(borrowed, self._free)
            if moved == borrowed:
                heappop(self._borrowing)
            if moved:
                self._free -= moved
                heappush(self._within_nominal, -index)
                self._set_borrowed(index, borrowed - moved, now)

    def _set_borrowed(self, index: int, borrowed: int, now: int) -> None:
        """Change the amount that an admission borrows from `now` on, and account for the time until then."""
        row = self._rows[index]
        self._accounts[Account(row.quota_key, row.holder)].borrowed += self._borrowed[index] * (
            now - self._since[index]
        )
        self._borrowed[index] = borrowed
        self._since[index] = now
