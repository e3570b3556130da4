"""Sandbox time: one clock for the API server and its controllers, that can run faster than the wall's."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from functools import lru_cache

_LATEST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()


class Clock:
    """Starts at the present and from then on runs `speed` times as fast; it never jumps or goes back.

    All times are seconds since the epoch, all durations seconds of this clock.
    """

    def __init__(self, speed: float = 1.0) -> None:
        if speed <= 0:
            raise ValueError(f"speed must be positive, not {speed}")
        self.speed = speed
        self._epoch = time.time()
        self._started = time.monotonic()

    def now(self) -> float:
        """The present, in seconds since the epoch."""
        return self._epoch + (time.monotonic() - self._started) * self.speed

    async def sleep(self, seconds: float) -> None:
        """Pause for so many seconds of this clock."""
        await asyncio.sleep(max(0.0, seconds) / self.speed)

    async def sleep_until(self, instant: float) -> None:
        """Pause until `now()` has reached `instant`; an instant in the past only yields."""
        await self.sleep(instant - self.now())


def rfc3339(instant: float) -> str:
    """A Kubernetes `Time`: whole seconds, rounded down, the last one of the year 9999 for all that is later."""
    return _whole_seconds(int(min(instant, _LATEST)))


@lru_cache(maxsize=256)
def _whole_seconds(instant: int) -> str:
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(instant: float) -> str:
    """A Kubernetes `MicroTime`: exactly six fraction digits."""
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_rfc3339(text: str) -> float:
    """Seconds since the epoch of a Kubernetes `Time` or `MicroTime`. ValueError if it is neither."""
    return datetime.fromisoformat(text).timestamp()
