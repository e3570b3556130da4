"""Histogram of review durations, as plain numbers that the gate's process sends to `serve` as JSON."""

from __future__ import annotations

import time
from bisect import bisect_left
from typing import Any, Final

BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds of the buckets, in seconds; a review should take at most 0.005 s."""


class ReviewTimes:
    """Histogram of review durations by outcome: allowed, denied, or malformed (the request is not a review)."""

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}
        self._exemplars: dict[str, dict[str, Any]] = {}

    def observe(self, outcome: str, seconds: float, exemplar: dict[str, str] | None = None) -> None:
        """Add one request of this duration; `exemplar` has the ids of its trace."""
        counts = self._counts.get(outcome)
        if counts is None:
            counts = self._counts[outcome] = [0] * (len(BOUNDS) + 1)
            self._sums[outcome] = 0.0
        bucket = bisect_left(BOUNDS, seconds)
        counts[bucket] += 1
        self._sums[outcome] += seconds
        if exemplar is not None:
            last = {"labels": exemplar, "value": seconds, "at": time.time()}
            self._exemplars.setdefault(outcome, {})[str(bucket)] = last

    def document(self) -> dict[str, Any]:
        """Return the histogram of each outcome as JSON.

        `counts`: requests in each bucket, not cumulative, the last bucket without upper bound. `sum`: seconds.
        `exemplars`: the most recent exemplar by bucket number.
        """
        return {
            outcome: {"counts": counts, "sum": self._sums[outcome], "exemplars": self._exemplars.get(outcome, {})}
            for outcome, counts in self._counts.items()
        }
