"""When the next commit is due: at once in a quiet time, and after a batch of arrivals in a busy one."""

from __future__ import annotations

from typing import Final

BATCH_SIZE: Final = 25
"""Arrivals after which a commit is due at once."""

INTERVAL: Final = 0.2
"""Seconds between two commits, at most, while Jobs wait that have arrived."""

BUSY_INTERVAL: Final = 1.0
"""The same in a busy time, when the machine is slow and a batch is certain to fill up."""

BUSY_BATCH: Final = 5
"""A time is busy if a commit takes so many arrivals along: `BATCH_SIZE` arrive within `BUSY_INTERVAL`, at that rate."""

SHORTEST_INTERVAL: Final = 0.01
"""Seconds between two commits, at least, also when quota has become free that waiting workloads could use."""


class CommitBatching:
    """A stream of 25 Jobs a second or more is one commit for each `BATCH_SIZE` of them, however slow the machine is.

    A Job that comes alone does not wait. Times are in seconds, of a clock that never goes back.
    """

    def __init__(self) -> None:
        self.committed_at = -INTERVAL
        self._is_busy = False

    def due_in(self, now: float, *, arrived: int, wanted: bool) -> float:
        """Seconds until the next commit is due; zero or less: it is.

        `arrived`: the number of Jobs that arrived since the last one. `wanted`: whether quota has become free since
        then that waiting workloads could use.
        """
        longest = BUSY_INTERVAL if self._is_busy else INTERVAL
        at_once = wanted or arrived >= BATCH_SIZE
        return self.committed_at + (SHORTEST_INTERVAL if at_once else longest) - now

    def began(self, *, arrived: int) -> None:
        """Decisions are made that the next commit writes; `arrived` Jobs have come since the last one."""
        self._is_busy = arrived >= BUSY_BATCH

    def committed(self, now: float) -> None:
        """The commit is done."""
        self.committed_at = now
