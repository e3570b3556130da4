"""Cron schedules of CronJobs: five fields, or a macro like @hourly (github.com/robfig/cron)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from admission.model.errors import SluiceError

if TYPE_CHECKING:
    from datetime import tzinfo

_WORDS = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}  # fmt: skip
_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12), ("day of week", 0, 7))
_NAMES = {
    "month": ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
    "day of week": ("sun", "mon", "tue", "wed", "thu", "fri", "sat"),
}
# A schedule without a match within this time has none: 29 February recurs within eight years.
_HORIZON = timedelta(days=366 * 9)


class InvalidSchedule(SluiceError):
    """The text is not a valid schedule."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The minutes, hours, days, months and weekdays (0 is Sunday) at which a job is due."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool
    """Days and weekdays are both restricted: then a date matches if either of them does."""

    def next_after(self, instant: float, zone: tzinfo = UTC) -> float | None:
        """Return the first due minute after an instant, both in seconds since the epoch; None if there is none."""
        moment = datetime.fromtimestamp(instant, zone).replace(second=0, microsecond=0) + timedelta(minutes=1)
        last = moment + _HORIZON
        while moment < last:
            if not self._has_day(moment):
                moment = (moment + timedelta(days=1)).replace(hour=0, minute=0)
            elif moment.hour not in self.hours:
                moment = moment.replace(minute=0) + timedelta(hours=1)
            elif moment.minute not in self.minutes:
                moment += timedelta(minutes=1)
            else:
                return moment.timestamp()
        return None

    def _has_day(self, moment: datetime) -> bool:
        day, weekday = moment.day in self.days, moment.isoweekday() % 7 in self.weekdays
        return moment.month in self.months and (day or weekday if self.either_day else day and weekday)


def parse_schedule(text: str) -> Schedule:
    """Parse a cron expression. Raises InvalidSchedule."""
    fields = _WORDS.get(text, text).split()
    if len(fields) != len(_FIELDS):
        raise InvalidSchedule(f"expected exactly 5 fields, found {len(fields)}: {text}")
    minutes, hours, days, months, weekdays = (
        _values(field, *limits) for field, limits in zip(fields, _FIELDS, strict=True)
    )
    either = not any(field.startswith(("*", "?")) for field in (fields[2], fields[4]))
    return Schedule(minutes, hours, days, months, frozenset(day % 7 for day in weekdays), either)


def _values(field: str, what: str, least: int, most: int) -> frozenset[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, dash, last = ("0", "-", "0") if span in ("*", "?") else span.partition("-")
        low, high = _number(first, what), _number(last, what) if dash else None
        if span in ("*", "?"):
            low, high = least, min(most, 6) if what == "day of week" else most
        elif high is None:
            high = most if step else low
        every = _number(step, what) if step else 1
        if not least <= low <= high <= most or not every:
            raise InvalidSchedule(f"{part} is out of the range of {what}, {least} to {most}")
        found.update(range(low, high + 1, every))
    return frozenset(found)


def _number(text: str, what: str) -> int:
    names = _NAMES.get(what, ())
    if text.lower() in names:
        return names.index(text.lower()) + (what == "month")
    if not text.isdecimal() or len(text) > 4:
        raise InvalidSchedule(f"failed to parse {what}: {text} is no number")
    return int(text)
