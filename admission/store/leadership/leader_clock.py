"""The leader's time: levels small differences between replicas' clocks, and limits what a clock that is set can delete.

Nothing is decided by times; what came first is told by revisions. But the ledger counts seconds, and retention deletes
by age. So a new leader's times do not fall behind those of its predecessor by what clocks ordinarily differ, and a
clock that has jumped ahead is no reason to delete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

LEVELLED: Final = 60.0
"""Seconds by which a clock may be behind the former leader's and waits for its time. By more, one of the two was set;
which one cannot be known, and to wait for the later time would be to count no usage until then."""

BELIEVED: Final = 86_400.0
"""Seconds that a clock may be ahead of what has provably passed since the former leader's last commit."""


class LeadersClock:
    """`clock` gives seconds since the epoch, `elapsed` seconds that nobody can set."""

    def __init__(self, clock: Callable[[], float], elapsed: Callable[[], float]) -> None:
        self._clock = clock
        self._elapsed = elapsed
        self._last: float | None = None
        self._since = 0.0

    def succeed(self, last: float | None) -> None:
        """Start a lead; `last` is the time of the former leader's last write (Unix time, s), None if there was none."""
        self._last = last
        self._since = self._elapsed()

    def __call__(self) -> float:
        """Seconds since the epoch."""
        now = self._clock()
        return self._last if self._last is not None and now < self._last <= now + LEVELLED else now

    def believed(self) -> float:
        """The time by which rows may be deleted: at most BELIEVED ahead of the time that has provably passed.

        A time further ahead is approached at twice the pace: rows that were due while no Sluice ran are deleted in the
        end, and an admin has time to notice a wrong clock before it has cost history.
        """
        now = self()
        if self._last is None:
            return now
        return min(now, self._last + BELIEVED + 2 * (self._elapsed() - self._since))
