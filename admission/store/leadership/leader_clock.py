"""The leader's clock: compensates small skew between replicas' clocks, and limits deletions by a clock that is wrong.

The order of events is given by revisions, never by times. But the ledger counts seconds, and retention deletes by age.
So a new leader's time does not fall behind its predecessor's by ordinary clock skew, and a clock that has jumped ahead
does not make retention delete rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_LAG: Final = 60.0
"""Seconds that the clock may be behind the former leader's last write: until it has caught up, the time of that write
is used. A larger lag means that one of the clocks was set. Which one is unknown, so the clock is used as it is: to wait
for the later time would leave usage uncounted until then."""

MAX_LEAD: Final = 86_400.0
"""Seconds that the clock may be ahead of the time that has provably passed since the former leader's last commit."""


class LeaderClock:
    """Clock of the leader; a call returns its time. `clock` returns Unix time (s), `elapsed` monotonic seconds."""

    def __init__(self, clock: Callable[[], float], elapsed: Callable[[], float]) -> None:
        self._clock = clock
        self._elapsed = elapsed
        self._last: float | None = None
        """Time of the former leader's last write (Unix time, s)."""
        self._since = 0.0
        """When this leader took over, by `elapsed`."""

    def take_over(self, last: float | None) -> None:
        """Note the start of a lead. `last`: time of the former leader's last write (Unix time, s); None: no write."""
        self._last = last
        self._since = self._elapsed()

    def __call__(self) -> float:
        """Return the leader's time in seconds since the epoch."""
        now = self._clock()
        return self._last if self._last is not None and now < self._last <= now + MAX_LAG else now

    def deletion_time(self) -> float:
        """Return the time for retention: at most MAX_LEAD ahead of the time that has provably passed.

        A clock that is further ahead is approached at twice the pace of time: rows that came due while no Sluice ran
        are deleted eventually, and an admin has time to notice a wrong clock before history is lost.
        """
        now = self()
        if self._last is None:
            return now
        return min(now, self._last + MAX_LEAD + 2 * (self._elapsed() - self._since))
