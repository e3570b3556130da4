"""When the next commit is due: at once in a quiet time, seldom in a busy one, so that a burst is few transactions."""

from __future__ import annotations

from typing import Final

COMPANY: Final = 25
"""In a busy time a Job that arrives waits for so many others, but not for ever."""

INTERVAL: Final = 0.2
"""Seconds since the last commit, at most, that it waits for company."""

LONGEST: Final = 1.0
"""The same while Jobs come fast enough that company is certain: then the machine is slow, and few of them come late."""

LIVELY: Final = 5
"""They do if a commit takes so many along: `COMPANY` arrive within `LONGEST`, if it goes on like that."""

QUICK: Final = 0.01
"""Seconds between two commits when quota has become free that somebody waits for: idle quota is worth more."""


class Pace:
    """However slow the machine, a stream of 25 Jobs a second or more is one commit for each `COMPANY` of them.

    A Job that comes alone does not wait. Times are of a clock that never goes back.
    """

    def __init__(self) -> None:
        self.committed_at = -INTERVAL
        self._flood = False

    def pause(self, now: float, *, arrived: int, wanted: bool) -> float:
        """Seconds until the next step, not positive if it is due.

        `arrived`: how many Jobs have, since the last one. `wanted`: whether quota is free that somebody waits for.
        """
        patience = LONGEST if self._flood else INTERVAL
        return self.committed_at + (QUICK if wanted or arrived >= COMPANY else patience) - now

    def stepped(self, *, arrived: int) -> None:
        """A step takes `arrived` Jobs along."""
        self._flood = arrived >= LIVELY

    def committed(self, now: float) -> None:
        """Its commit is done."""
        self.committed_at = now
