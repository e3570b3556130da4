"""The leader's clock: compensates small skew between replicas' clocks, and limits deletions by a clock that is wrong.

The order of events is given by revisions, never by times. But the ledger counts seconds, and retention deletes by age.
So a new leader's time does not fall behind its predecessor's by ordinary clock skew, and a clock that has jumped ahead
does not make retention delete rows. A clock that is obviously wrong is reported in the log.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

MAX_LAG: Final = 60.0
"""Seconds that the clock may be behind the former leader's last write: until it has caught up, the time of that write
is used. A larger lag means that one of the clocks was set. Which one is unknown, so the clock is used as it is: to wait
for the later time would leave usage uncounted until then."""

MAX_LEAD: Final = 86_400.0
"""Seconds that the clock may be ahead of the time that has provably passed since the former leader's last commit."""

MAX_JUMP: Final = 60.0
"""Seconds between two calls by which the clock may deviate from the monotonic clock without a warning."""

_REMEDY: Final = (
    "this clock counts the usage in the ledger, which is wrong for what runs meanwhile if the clock is: "
    "synchronize the clocks of all machines (NTP)"
)


class LeaderClock:
    """Clock of the leader; a call returns its time. `clock` returns Unix time (s), `elapsed` monotonic seconds."""

    def __init__(self, clock: Callable[[], float], elapsed: Callable[[], float]) -> None:
        self._clock = clock
        self.elapsed = elapsed
        self._last: float | None = None
        """Time of the former leader's last write (Unix time, s)."""
        self._since = 0.0
        """When this leader took over, by `elapsed`."""
        self._offset: float | None = None
        """Difference between the two clocks at the last call; None: it does not lead yet."""

    def take_over(self, last: float | None) -> None:
        """Note the start of a lead. `last`: time of the former leader's last write (Unix time, s); None: no write."""
        self._last = last
        self._since = self.elapsed()
        now = self._clock()
        self._offset = now - self._since
        if last is not None and now < last - MAX_LAG:
            commit = "the last commit, by another leader or before the clock was set"
            log.warning("the clock of this machine is %.0f s behind the time of %s; %s", last - now, commit, _REMEDY)

    def __call__(self) -> float:
        """Return the leader's time in seconds since the epoch."""
        now = self._clock()
        if self._offset is not None:
            self._watch_offset(now - self.elapsed(), self._offset)
        return self._last if self._last is not None and now < self._last <= now + MAX_LAG else now

    def deletion_time(self) -> float:
        """Return the time for retention: at most MAX_LEAD ahead of the time that has provably passed.

        A clock that is further ahead is approached at twice the pace of time: rows that came due while no Sluice ran
        are deleted eventually, and an admin has time to notice a wrong clock before history is lost.
        """
        now = self()
        if self._last is None:
            return now
        return min(now, self._last + MAX_LEAD + 2 * (self.elapsed() - self._since))

    def _watch_offset(self, offset: float, before: float) -> None:
        """Warn of a jump. The last offset is compared, not the first one, as clocks may be slewed for months."""
        self._offset = offset
        if abs(jump := offset - before) <= MAX_JUMP:
            return
        how = f"set back by {-jump:.0f} s" if jump < 0 else f"set ahead by {jump:.0f} s, or this machine was suspended"
        log.warning("the clock of this machine was %s; %s", how, _REMEDY)
