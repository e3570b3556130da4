"""Clock of the sandbox, shared by API server and controllers, which can run faster than real time."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LATEST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()


class Clock:
    """A clock that starts at the current time and runs `speed` times as fast; it is monotonic.

    All times are seconds since the epoch, all durations seconds of this clock. `monotonic` is the real time that it
    follows, in seconds.
    """

    def __init__(self, speed: float = 1.0, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        if speed <= 0:
            raise ValueError(f"speed must be positive, not {speed}")
        self.speed = speed
        self._monotonic = monotonic
        self._epoch = time.time()
        self._started = monotonic()

    def now(self) -> float:
        """Return the clock's time, in seconds since the epoch."""
        return self._epoch + (self._monotonic() - self._started) * self.speed

    async def sleep(self, seconds: float) -> None:
        """Sleep for `seconds` of this clock."""
        await asyncio.sleep(max(0.0, seconds) / self.speed)

    async def sleep_until(self, instant: float) -> None:
        """Sleep until `now()` reaches `instant`; for one in the past, only yield to the event loop."""
        await self.sleep(instant - self.now())


def rfc3339(instant: float) -> str:
    """Format a Kubernetes `Time`: whole seconds, rounded down; instants after the year 9999 give its last second."""
    return _whole_seconds(int(min(instant, _LATEST)))


@lru_cache(maxsize=256)
def _whole_seconds(instant: int) -> str:
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(instant: float) -> str:
    """Format a Kubernetes `MicroTime`, which has exactly six fraction digits."""
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_rfc3339(text: str) -> float:
    """Return a Kubernetes `Time` or `MicroTime` in seconds since the epoch. Raises ValueError if it is neither."""
    return datetime.fromisoformat(text).timestamp()
