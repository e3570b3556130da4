"""Calendar months and quarters of a time zone, for reports."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from datetime import tzinfo

_LAST: Final = "last"
_THIS: Final = "this"


@dataclass(frozen=True, slots=True)
class CalendarPeriod:
    """A whole month or quarter."""

    name: str
    """`2026-10` or `2026-Q4`."""
    start: datetime
    end: datetime
    """First instant behind it."""

    @property
    def parameters(self) -> tuple[str, str]:
        """Start and end as RFC 3339 times in UTC."""
        first, last = (at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for at in (self.start, self.end))
        return first, last


def calendar_month(text: str, zone: tzinfo, now: datetime) -> CalendarPeriod:
    """Return the month `2026-10`, `this` or `last`; of the latter two by `now`. Raises BadParameter."""
    today = now.astimezone(zone)
    number = today.year * 12 + today.month - 1
    if text in (_THIS, _LAST):
        number -= text == _LAST
    elif found := re.fullmatch(r"(\d{4})-(0[1-9]|1[0-2])", text, re.ASCII):
        number = int(found[1]) * 12 + int(found[2]) - 1
    else:
        raise click.BadParameter(f'"{text}" is not a month; give one such as {today:%Y-%m}, this or last')
    return CalendarPeriod(f"{number // 12:04}-{number % 12 + 1:02}", _first(number, zone), _first(number + 1, zone))


def calendar_quarter(text: str, zone: tzinfo, now: datetime) -> CalendarPeriod:
    """Return the quarter `2026-Q4`, `this` or `last`; of the latter two by `now`. Raises BadParameter."""
    today = now.astimezone(zone)
    number = today.year * 4 + (today.month - 1) // 3
    if text in (_THIS, _LAST):
        number -= text == _LAST
    elif found := re.fullmatch(r"(\d{4})-[Qq]([1-4])", text, re.ASCII):
        number = int(found[1]) * 4 + int(found[2]) - 1
    else:
        raise click.BadParameter(f'"{text}" is not a quarter; give one such as {today.year}-Q1, this or last')
    start, end = _first(number * 3, zone), _first(number * 3 + 3, zone)
    return CalendarPeriod(f"{number // 4:04}-Q{number % 4 + 1}", start, end)


def _first(month: int, zone: tzinfo) -> datetime:
    """Return the first instant of a month; `month` counts from year 0. Raises BadParameter for a year out of range."""
    try:
        return datetime(month // 12, month % 12 + 1, 1, tzinfo=zone)
    except ValueError as error:
        raise click.BadParameter("the year must be from 1 to 9999") from error
