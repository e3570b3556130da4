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
    """Keeps each answer for `seconds` after it was asked for, longer where it takes more than a small part of that."""

    SHARE: Final = 0.005
    """An answer is kept for so long that to make it anew takes this part of a processor ..."""
    TIMES_AT_MOST: Final = 6.0
    """... though not for more than so many times `seconds`."""

    def __init__(self, seconds: float, *, used: Callable[[], float] = time.process_time) -> None:
        """`used` gives seconds of processor time."""
        self._seconds = seconds
        self._used = used
        self._kept: dict[Hashable, tuple[float, asyncio.Task[tuple[T, float]]]] = {}

    async def get(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """The answer of this `key`; what `make` raises is raised to all who wait for it, and not kept."""
        now = time.monotonic()
        self._kept = {other: kept for other, kept in self._kept.items() if not self._is_over(kept, now)}
        if key not in self._kept:
            if len(self._kept) >= MOST:
                return await make()
            self._kept[key] = now, asyncio.ensure_future(self._made(make))
        # One who goes away while it is made leaves it to the others.
        answer, _ = await asyncio.shield(self._kept[key][1])
        return answer

    async def _made(self, make: Callable[[], Awaitable[T]]) -> tuple[T, float]:
        """The answer, and for how many seconds it is kept."""
        began = self._used()
        answer = await make()
        lasts = (self._used() - began) / self.SHARE
        return answer, min(max(self._seconds, lasts), self._seconds * self.TIMES_AT_MOST)

    def _is_over(self, kept: tuple[float, asyncio.Task[tuple[T, float]]], now: float) -> bool:
        at, task = kept
        if not task.done():
            return False
        return task.cancelled() or task.exception() is not None or at + task.result()[1] <= now


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
