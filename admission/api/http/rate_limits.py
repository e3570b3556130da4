"""How much one client may ask for: a bucket of tokens for each, in a table that cannot grow."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

_CLIENTS = 10_000


class Limits:
    """`at_once` requests in a burst, `per_second` in the long run, for each key. `clock` gives seconds.

    Of more than 10,000 clients those that were not heard of for longest begin anew.
    """

    def __init__(self, *, per_second: float, at_once: float, clock: Callable[[], float]) -> None:
        self._rate = per_second
        self._size = at_once
        self._clock = clock
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def wait(self, key: Hashable) -> int:
        """0 if the request may pass, and is counted; else the whole seconds after which the next one may."""
        now = self._clock()
        left, at = self._buckets.get(key, (self._size, now))
        left = min(self._size, left + (now - at) * self._rate)
        passes = left >= 1
        self._buckets[key] = left - passes, now
        self._buckets.move_to_end(key)
        if len(self._buckets) > _CLIENTS:
            self._buckets.popitem(last=False)
        return 0 if passes else math.ceil((1 - left) / self._rate)
