"""Rate limiter: a token bucket for each client, in a table of bounded size."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

_CLIENTS = 10_000
"""Most clients with a bucket; the least recently seen is dropped first, and starts with a full bucket again."""


class RateLimiter:
    """Token buckets by key: `burst` requests at most, refilled by `per_second`. `clock`: monotonic, seconds."""

    def __init__(self, *, per_second: float, burst: float, clock: Callable[[], float]) -> None:
        self._rate = per_second
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()
        """Tokens left, and the time of that count, by key; the least recently seen first."""

    def retry_after(self, key: Hashable) -> int:
        """Take a token and return 0; if there is none, return the seconds, rounded up, until there is one."""
        now = self._clock()
        left, at = self._buckets.get(key, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._rate)
        passes = left >= 1
        self._buckets[key] = left - passes, now
        self._buckets.move_to_end(key)
        if len(self._buckets) > _CLIENTS:
            self._buckets.popitem(last=False)
        return 0 if passes else math.ceil((1 - left) / self._rate)
