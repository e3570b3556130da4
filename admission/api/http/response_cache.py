"""Caches for responses that many clients request at the same time, such as open dashboard pages.

A cached value lives longer the more it costs to compute, so that computing it takes a bounded share of the time.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

T = TypeVar("T")

MAX_ENTRIES = 64
"""Most entries of a ResponseCache; while it is full, other keys are computed for each request."""


class ResponseCache(Generic[T]):
    """Cache with a time to live by key; concurrent requests for a key share one computation.

    An entry lives for `seconds`, counted from its first request; longer if it was expensive (SHARE, MAX_FACTOR).
    """

    SHARE: Final = 0.005
    """Share of one processor that recomputing an entry may take: 50 ms of processor time let it live for 10 s."""
    MAX_FACTOR: Final = 6.0
    """Longest life of an entry, as a multiple of `seconds`."""

    def __init__(self, seconds: float, *, used: Callable[[], float] = time.process_time) -> None:
        """`seconds`: shortest life of an entry. `used`: clock of processor time, seconds."""
        self._seconds = seconds
        self._used = used
        self._entries: dict[Hashable, tuple[float, asyncio.Task[tuple[T, float]]]] = {}
        """By key: time of the first request (monotonic), and the task, whose result has the entry's seconds to live."""

    async def get(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """Return the cached value, or that of `make`. Its exceptions are raised to all waiting callers, not cached."""
        now = time.monotonic()
        self._entries = {other: entry for other, entry in self._entries.items() if not self._has_expired(entry, now)}
        if key not in self._entries:
            if len(self._entries) >= MAX_ENTRIES:
                return await make()
            self._entries[key] = now, asyncio.ensure_future(self._compute(make))
        # Shielded: if the first caller is cancelled, the computation goes on for the others.
        value, _ = await asyncio.shield(self._entries[key][1])
        return value

    async def _compute(self, make: Callable[[], Awaitable[T]]) -> tuple[T, float]:
        """Return the value, and its seconds to live."""
        began = self._used()
        value = await make()
        lifetime = (self._used() - began) / self.SHARE
        return value, min(max(self._seconds, lifetime), self._seconds * self.MAX_FACTOR)

    def _has_expired(self, entry: tuple[float, asyncio.Task[tuple[T, float]]], now: float) -> bool:
        at, task = entry
        if not task.done():
            return False
        return task.cancelled() or task.exception() is not None or at + task.result()[1] <= now


class RevisionCache(Generic[T]):
    """Cache of one value that depends on the whole database; recomputed only after the revision has changed.

    After a change the old value may be served for its lifetime: MIN_SECONDS to `max_seconds`, by its cost.
    """

    MIN_SECONDS: Final = 1.0
    """Shortest life of a value after which a change is noticed."""

    def __init__(
        self,
        make: Callable[[], Awaitable[T]],
        *,
        revision: Callable[[], int],
        share: float = 0.01,
        max_seconds: float = 10.0,
    ) -> None:
        """`make` computes the value; `revision` returns a number that grows with each change.

        `share`: of the time, that recomputing may take: with 0.01, 20 ms let the value live for 2 s. `max_seconds`:
        longest life of a value that has become outdated.
        """
        self._make = make
        self._revision = revision
        self._share = share
        self._max_seconds = max_seconds
        self._entry: tuple[int, float, T] | None = None
        """Revision of the value, monotonic time until which it is served even if outdated, and the value."""
        self._lock = asyncio.Lock()

    async def get(self) -> T:
        """Return the value. Raises what `make` raises; the next call then computes it again."""
        async with self._lock:
            if self._entry is not None:
                revision, until, value = self._entry
                if revision == self._revision() or time.monotonic() < until:
                    return value
            revision, began = self._revision(), time.monotonic()
            value = await self._make()
            took = time.monotonic() - began
            lifetime = min(max(self.MIN_SECONDS, took / self._share), self._max_seconds)
            self._entry = revision, began + lifetime, value
            return value
