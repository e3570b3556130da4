"""Nominal and borrowed usage from rows of the ledger: a pure sweep through time, exact in integers.

At every moment the admissions in one flavor-resource of a ClusterQueue stand in a row, in the order in which they
began. What lies within the nominal quota of that moment is nominal, the rest is borrowed; an admission across the line
is split. Times are microseconds and usage is amount times microseconds, so that nothing is ever rounded: nominal and
borrowed usage add up to exactly what was held for exactly how long.
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


class Pot(NamedTuple):
    """What quota is given for."""

    cluster_queue: str
    flavor: str
    resource: str


Steps: TypeAlias = "Sequence[tuple[int, int]]"
"""(since, nominal quota) in order of time; no quota before the first."""


class Holding(NamedTuple):
    """One row of the ledger."""

    pot: Pot
    order: tuple[int, str, str]
    """Where its admission stands: since when, and by workload and pod set if several began at once."""
    begins: int
    ends: int | None
    """None: it is open."""
    amount: int
    holder: tuple[str | int, ...]
    """On whose account it is."""


class Account(NamedTuple):
    """Of whom, and of what."""

    pot: Pot
    holder: tuple[str | int, ...]


@dataclass(slots=True)
class Usage:
    """Amount times microseconds."""

    total: int = 0
    borrowed: int = 0

    @property
    def nominal(self) -> int:
        """The part within nominal quota."""
        return self.total - self.borrowed


def windows(holdings: Iterable[Holding], bounds: Sequence[int]) -> Iterator[tuple[int, int, list[Holding]]]:
    """The times between successive `bounds` (microseconds, in order), each with the rows in force in it."""
    within: list[list[Holding]] = [[] for _ in bounds[1:]]
    for row in holdings:
        first = max(0, bisect_right(bounds, row.begins) - 1)
        for number in range(first, len(within)):
            if row.ends is not None and row.ends <= bounds[number]:
                break
            within[number].append(row)
    yield from zip(bounds, bounds[1:], within, strict=False)


def usage(holdings: Iterable[Holding], quotas: Mapping[Pot, Steps], *, start: int, end: int) -> dict[Account, Usage]:
    """The usage from `start` until `end` (microseconds) by pot and holder; open rows count until `end`."""
    accounts: defaultdict[Account, Usage] = defaultdict(Usage)
    within = [h for h in holdings if max(start, h.begins) < (end if h.ends is None else min(h.ends, end))]
    for pot, rows in groupby(sorted(within, key=attrgetter("pot", "order", "begins")), key=attrgetter("pot")):
        _sweep(list(rows), quotas.get(pot, ()), start, end, accounts)
    return dict(accounts)


def _sweep(rows: list[Holding], steps: Steps, start: int, end: int, accounts: defaultdict[Account, Usage]) -> None:
    """Add the usage of one pot to `accounts`; `rows` are in order."""
    quota = next((nominal for at, nominal in reversed(steps) if at <= start), 0)
    events: list[tuple[int, int, int]] = []
    for place, row in enumerate(rows):
        begins, ends = max(row.begins, start), end if row.ends is None else min(row.ends, end)
        accounts[Account(row.pot, row.holder)].total += row.amount * (ends - begins)
        events += ((begins, _BEGIN, place), (ends, _END, place))
    most = sum(row.amount for row in rows)
    if all(nominal >= most for nominal in (quota, *(nominal for at, nominal in steps if start < at < end))):
        return  # Nothing can have been borrowed: this is how it is most of the time.
    events += ((at, _QUOTA, number) for number, (at, _) in enumerate(steps) if start < at < end)
    line = _Line(rows, quota, accounts)
    for now, what, value in sorted(events):
        if what == _BEGIN:
            line.begin(value, now)
        elif what == _END:
            line.end(value, now)
        else:
            line.change(steps[value][1], now)


# In this order if they happen at once, which is of no consequence but for the work that it saves.
_QUOTA, _END, _BEGIN = range(3)


class _Line:
    """The row of admissions of one pot at a moment, and the line across it where borrowing begins.

    Each change moves the line over few admissions, so a sweep takes about n log n steps.
    """

    def __init__(self, rows: Sequence[Holding], quota: int, accounts: Mapping[Account, Usage]) -> None:
        self._rows = rows
        self._accounts = accounts
        self._free = quota
        """Free nominal quota; never negative after a change."""
        self._quota = quota
        self._borrowed = [0] * len(rows)
        self._since = [0] * len(rows)
        self._here = [False] * len(rows)
        self._before: list[int] = []
        """A heap of places that hold some nominal quota, the last one on top (negated), and of some that do no more."""
        self._beyond: list[int] = []
        """A heap of places that borrow, the first one on top, and of some that do no more."""

    def begin(self, place: int, now: int) -> None:
        """It takes its part of the nominal quota, from those behind it if need be."""
        self._here[place] = True
        self._since[place] = now
        self._free -= self._rows[place].amount
        heappush(self._before, -place)
        self._settle(now)

    def end(self, place: int, now: int) -> None:
        """Its part of the nominal quota goes to those who borrow."""
        self._free += self._rows[place].amount - self._borrowed[place]
        self._note(place, 0, now)
        self._here[place] = False
        self._settle(now)

    def change(self, quota: int, now: int) -> None:
        """Set the nominal quota from now on."""
        self._free += quota - self._quota
        self._quota = quota
        self._settle(now)

    def _settle(self, now: int) -> None:
        while self._free < 0 and self._before:
            place = -self._before[0]
            nominal = self._rows[place].amount - self._borrowed[place] if self._here[place] else 0
            moved = min(nominal, -self._free)
            if moved == nominal:
                heappop(self._before)
            if moved:
                self._free += moved
                heappush(self._beyond, place)
                self._note(place, self._borrowed[place] + moved, now)
        while self._free > 0 and self._beyond:
            place = self._beyond[0]
            borrowed = self._borrowed[place] if self._here[place] else 0
            moved = min(borrowed, self._free)
            if moved == borrowed:
                heappop(self._beyond)
            if moved:
                self._free -= moved
                heappush(self._before, -place)
                self._note(place, borrowed - moved, now)

    def _note(self, place: int, borrowed: int, now: int) -> None:
        """From now on it borrows so much."""
        row = self._rows[place]
        self._accounts[Account(row.pot, row.holder)].borrowed += self._borrowed[place] * (now - self._since[place])
        self._borrowed[place] = borrowed
        self._since[place] = now
