"""The time that a usage report is about: its parameters, and the fields of responses that say what figures cover."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from admission.api.errors import BadRequest
from admission.api.http.calendar_periods import calendar_period, time_zone
from admission.api.http.request_options import UNITS, instant
from admission.store.ledger.periods import PERIODS, bounds, label, period_ends
from admission.store.ledger.quota_history import Span
from admission.store.ledger.rollup import HOUR

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import tzinfo

    from aiohttp import web

    from admission.api.http.calendar_periods import CalendarPeriod
    from admission.api.http.responses import Document
    from admission.store.ledger.usage_reports import UsageReport, UsageRow

_DEFAULT_FROM: Final = "30d"
_MOST_INTERVALS: Final = 1000
"""Most intervals of a report with `interval`, and most periods in a time zone other than UTC."""
_MOST_PERIODS_WITH_QUOTA: Final = 400


@dataclass(frozen=True, slots=True)
class ReportTimes:
    """The time that a report is about (Unix times, s), and the zone of its dates, months and periods."""

    start: float
    end: float
    """Infinite: until the report has its turn."""
    zone: tzinfo
    calendar: CalendarPeriod | None
    """The whole month or quarter that was asked for."""

    def full_hours(self) -> ReportTimes:
        """Return the time of all hours of which it has a part."""
        start = math.floor(self.start / HOUR) * HOUR
        return replace(self, start=start, end=self.end if math.isinf(self.end) else math.ceil(self.end / HOUR) * HOUR)

    def fields(self, start: float, end: float) -> Document:
        """Return the fields of a report with figures from `start` to `end`; `partial` is of the month or quarter."""
        found = {"from": format_time(start), "to": format_time(end), "timezone": str(self.zone)}
        if self.calendar is None:
            return found
        whole = self.calendar.start, self.calendar.end
        return {**found, "calendarPeriod": self.calendar.name, "partial": (start, end) != whole}


def report_times(query: Mapping[str, str], now: float) -> ReportTimes:
    """Return the time that a report is about; `query`: the parameters of the request. Raises BadRequest."""
    zone = time_zone(query.get("timezone", ""))
    month, quarter = query.get("month", ""), query.get("quarter", "")
    if month or quarter:
        if (month and quarter) or query.get("from") or query.get("to"):
            raise BadRequest("month, quarter: give one of these two, or from and to")
        calendar = calendar_period(month, quarter, zone, now)
        return ReportTimes(calendar.start, math.inf if calendar.end > now else calendar.end, zone, calendar)
    start = instant(query.get("from") or _DEFAULT_FROM, now, field="from", zone=zone)
    end = instant(query.get("to") or "0m", now, field="to", zone=zone)
    if start >= end:
        raise BadRequest(f"from ({format_time(start)}) must be before to ({format_time(end)})")
    return ReportTimes(start, end if query.get("to") else math.inf, zone, None)


def checked_period(period: str, times: ReportTimes, now: float, *, quota: bool) -> str:
    """Return a period of PERIODS, or empty. Raises BadRequest, also if they are too many."""
    if period and period not in PERIODS:
        raise BadRequest(f'period: "{period}" is not one of {", ".join(PERIODS)}')
    if not period or (times.zone is UTC and not quota):
        return period
    end, most = min(times.end, now), _MOST_PERIODS_WITH_QUOTA if quota else _MOST_INTERVALS
    for number, _ in enumerate(period_ends(times.start, end, period, times.zone)):
        if number >= most:
            raise BadRequest(f"period: more than {most} of them; give a later `from`")
    return period


def step_of(request: web.Request, seconds: float) -> float | None:
    """Return the parameter `interval` in seconds; 0: it is missing; None: it is to be chosen. Raises BadRequest."""
    text = request.query.get("interval", "")
    if not text:
        return 0.0
    if text == "auto":
        return None
    found = re.fullmatch(r"(\d{1,6})([mhdw])", text, re.ASCII)
    step = float(int(found[1]) * UNITS[found[2]]) if found else 0.0
    if not step:
        raise BadRequest(f'interval: "{text}" is not a duration; give one such as 5m, 1h or 1d, or auto')
    if seconds / step > _MOST_INTERVALS:
        raise BadRequest(
            f"interval: {text} divides the report into more than {_MOST_INTERVALS} parts; give a longer interval, or a "
            "shorter time from `from` to `to`"
        )
    return step


def spans(report: UsageReport, period: str, zone: tzinfo) -> Iterator[Span]:
    """Yield the periods of a report; without periods, the whole."""
    start = report.start
    for end in period_ends(report.start, report.end, period, zone):
        yield Span(label(start, period, zone) if period else "", start, end)
        start = end


def covered_part(row: UsageRow, report: UsageReport, zone: tzinfo) -> Document:
    """Return the fields that say which part of its period the figures of a row cover."""
    if "period" not in row.group:
        return {}
    start, end = bounds(str(row.group["period"]), zone)
    covered = max(start, report.start), min(end, report.end)
    times = {"from": format_time(covered[0]), "to": format_time(covered[1])}
    return {**times, "partial": covered != (start, end)}


def format_time(at: float) -> str:
    micros = round((at - math.floor(at)) * 1_000_000)
    moment = datetime.fromtimestamp(math.floor(at), UTC) + timedelta(microseconds=micros)
    return moment.isoformat(timespec="microseconds" if moment.microsecond else "seconds").replace("+00:00", "Z")
