"""Sums over rows of the ledger for usage reports: one computation at a time, shared by the reports that wait for it.

A sum over the rows of a busy hour takes a second of Python. Several at the same time would be no faster, because of the
GIL, and would hold database connections and delay decisions. So they take turns; and a report that needs a sum for
which others wait already, such as that from the last roll-up until now, gets the same one. A sum is shared only before
its rows are read, so that a report contains all that was committed before it was requested.
"""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from sqlalchemy import select

from admission.store.database.tables import head
from admission.store.errors import TooManyReports
from admission.store.ledger import usage_rows
from admission.store.ledger.periods import label, period_ends
from admission.store.ledger.usage import MICROSECONDS, QuotaKey, usage, windows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import tzinfo

    from admission.store.database.connection import Database
    from admission.store.ledger.usage import Account, Holding, UsageSum
    from admission.store.ledger.usage_rows import Quotas

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
    """Computes sums, one at a time in the order of their requests. `clock` returns the Unix time (s)."""

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
