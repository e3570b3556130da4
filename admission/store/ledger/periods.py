"""Days and months of usage reports; they start at midnight, UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

PERIODS: Final = ("day", "month")
"""Periods of a report."""


def label(at: float, period: str) -> str:
    """Return the day or month of an instant (Unix time, s) in ISO 8601: 2026-11-22, 2026-11."""
    day = datetime.fromtimestamp(at, UTC).date().isoformat()
    return day if period == "day" else day[:7]


def period_ends(start: float, end: float, period: str) -> Iterator[float]:
    """Yield the ends of the periods between `start` and `end`, the last one being `end` itself."""
    while start < end:
        start = min(end, _next(start, period)) if period else end
        yield start


def _next(at: float, period: str) -> float:
    """Return the start of the period that follows that of an instant."""
    midnight = datetime.fromtimestamp(at, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "day":
        return (midnight + timedelta(days=1)).timestamp()
    return (midnight.replace(day=1) + timedelta(days=32)).replace(day=1).timestamp()
