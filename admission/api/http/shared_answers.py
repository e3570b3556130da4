"""Answers that many ask for at the same time, as open pages do: made once for all of them."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

T = TypeVar("T")

MOST = 64
"""Answers that are kept; beyond that each is made for itself."""


class SharedAnswers(Generic[T]):
    """Keeps each answer for `seconds` after it was asked for."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._kept: dict[Hashable, tuple[float, asyncio.Task[T]]] = {}

    async def get(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """The answer of this `key`; what `make` raises is raised to all who wait for it, and not kept."""
        now = time.monotonic()
        self._kept = {other: kept for other, kept in self._kept.items() if not self._is_over(kept, now)}
        if key not in self._kept:
            if len(self._kept) >= MOST:
                return await make()
            self._kept[key] = now, asyncio.ensure_future(_made(make))
        # One who goes away while it is made leaves it to the others.
        return await asyncio.shield(self._kept[key][1])

    def _is_over(self, kept: tuple[float, asyncio.Task[T]], now: float) -> bool:
        at, task = kept
        return task.done() and (at + self._seconds <= now or task.cancelled() or task.exception() is not None)


async def _made(make: Callable[[], Awaitable[T]]) -> T:
    return await make()


class NewestAnswer(Generic[T]):
    """One answer about the whole database: made anew when it has changed, at most for a small part of the time."""

    SECONDS: Final = 1.0
    """For so long at least an answer counts, whatever has changed ..."""
    SHARE: Final = 0.01
    """... longer where to make it anew would take more than this part of the time ..."""
    SECONDS_AT_MOST: Final = 10.0
    """... though not longer than that. If nothing has changed, nothing is made anew."""

    def __init__(self, make: Callable[[], Awaitable[T]], *, revision: Callable[[], int]) -> None:
        """`revision` grows with each change."""
        self._make = make
        self._revision = revision
        self._made: tuple[int, float, T] | None = None
        """At which revision, until when it counts whatever has changed, and the answer."""
        self._making = asyncio.Lock()

    async def get(self) -> T:
        """The answer. Raises what `make` raises, and asks it again the next time."""
        async with self._making:
            if self._made is not None:
                revision, until, answer = self._made
                if revision == self._revision() or time.monotonic() < until:
                    return answer
            revision, began = self._revision(), time.monotonic()
            answer = await self._make()
            took = time.monotonic() - began
            lasts = min(max(self.SECONDS, took / self.SHARE), self.SECONDS_AT_MOST)
            self._made = revision, began + lasts, answer
            return answer
