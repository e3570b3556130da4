"""The parameters `month`, `quarter` and `timezone` of reports: calendar months and quarters of a time zone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from admission.api.errors import BadRequest

if TYPE_CHECKING:
    from datetime import tzinfo

_LAST: Final = "last"
_THIS: Final = "this"


@dataclass(frozen=True, slots=True)
class CalendarPeriod:
    """A whole month or quarter, from `start` to `end` (Unix times, s; `end` is the first instant behind it)."""

    name: str
    """`2026-10` or `2026-Q4`."""
    start: float
    end: float


def time_zone(name: str) -> tzinfo:
    """Return the time zone of the IANA's database; UTC if the name is empty. Raises BadRequest."""
    if name in ("", "UTC"):
        return UTC  # which needs no database
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:  # OSError: such as a directory of zones
        raise BadRequest(f'timezone: "{name}" is not a time zone; give one such as Europe/Berlin') from error


def calendar_period(month: str, quarter: str, zone: tzinfo, now: float) -> CalendarPeriod:
    """Return the month `2026-10`, or the quarter `2026-Q4`; `this` and `last` are those of `now` (Unix time, s).

    Raises BadRequest, also if it has not begun.
    """
    today = datetime.fromtimestamp(now, zone)
    found = _quarter(quarter, zone, today) if quarter else _month(month, zone, today)
    if found.start > now:
        raise BadRequest(f"{'quarter' if quarter else 'month'}: {found.name} is in the future")
    return found


def _month(text: str, zone: tzinfo, today: datetime) -> CalendarPeriod:
    number = today.year * 12 + today.month - 1
    if text in (_THIS, _LAST):
        number -= text == _LAST
    elif found := re.fullmatch(r"(\d{4})-(0[1-9]|1[0-2])", text, re.ASCII):
        number = int(found[1]) * 12 + int(found[2]) - 1
    else:
        raise BadRequest(f'month: "{text}" is not a month; give one such as {today:%Y-%m}, this or last')
    name = f"{number // 12:04}-{number % 12 + 1:02}"
    return CalendarPeriod(name, _first(number, zone), _first(number + 1, zone))


def _quarter(text: str, zone: tzinfo, today: datetime) -> CalendarPeriod:
    number = today.year * 4 + (today.month - 1) // 3
    if text in (_THIS, _LAST):
        number -= text == _LAST
    elif found := re.fullmatch(r"(\d{4})-[Qq]([1-4])", text, re.ASCII):
        number = int(found[1]) * 4 + int(found[2]) - 1
    else:
        raise BadRequest(f'quarter: "{text}" is not a quarter; give one such as {today.year}-Q1, this or last')
    name = f"{number // 4:04}-Q{number % 4 + 1}"
    return CalendarPeriod(name, _first(number * 3, zone), _first(number * 3 + 3, zone))


def _first(month: int, zone: tzinfo) -> float:
    """Return the first instant of a month; `month` counts from year 0. Raises BadRequest for a year out of range."""
    year = month // 12
    if not 1970 <= year <= 9998:
        raise BadRequest(f"{year:04}: the year must be from 1970 to 9998")
    return datetime(year, month % 12 + 1, 1, tzinfo=zone).timestamp()
