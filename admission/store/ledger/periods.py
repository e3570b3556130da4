"""Days and months of usage reports; they start at midnight of a time zone."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import tzinfo

PERIODS: Final = ("day", "month")
"""Periods of a report."""


def label(at: float, period: str, zone: tzinfo = UTC) -> str:
    """Return the day or month of an instant (Unix time, s) in ISO 8601: 2026-11-22, 2026-11."""
    day = datetime.fromtimestamp(at, zone).date().isoformat()
    return day if period == "day" else day[:7]


def bounds(name: str, zone: tzinfo = UTC) -> tuple[float, float]:
    """Return start and end (Unix times, s) of the day or month that `label` returned."""
    period = "day" if name.count("-") > 1 else "month"
    first = date.fromisoformat(name if period == "day" else f"{name}-01")
    return _midnight(first, zone), _midnight(_following(first, period), zone)


def period_ends(start: float, end: float, period: str, zone: tzinfo = UTC) -> Iterator[float]:
    """Yield the ends of the periods between `start` and `end`, the last one being `end` itself."""
    while start < end:
        start = min(end, _next(start, period, zone)) if period else end
        yield start


def _next(at: float, period: str, zone: tzinfo) -> float:
    """Return the start of the period that follows that of an instant."""
    return _midnight(_following(datetime.fromtimestamp(at, zone).date(), period), zone)


def _following(day: date, period: str) -> date:
    return day + timedelta(days=1) if period == "day" else (day.replace(day=1) + timedelta(days=32)).replace(day=1)


def _midnight(day: date, zone: tzinfo) -> float:
    """Return the first instant of a day: if clocks skip midnight, that at which they do."""
    return datetime.combine(day, time(), zone).timestamp()
