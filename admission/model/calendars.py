"""Calendars of quota: entries that give a ClusterQueue or Cohort other nominal quotas for a time. Kueue has none.

What applies is a function of the clock alone: nothing is lost while no leader runs. Times are those of the wall clock
of the calendar's time zone, so that `20:00` is 20:00 on both sides of a change of daylight saving. A time that a change
skips is as much later on the clock as the change; of a time that comes twice the first is meant (RFC 5545, 3.3.5).
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple, Protocol, Self

from pydantic import Field, model_validator

from admission.model.base import FieldFaultsError, Model, Name, QualifiedName, Quantity
from admission.model.local_times import Day, LocalTime, TimeZone, zone

if TYPE_CHECKING:
    from collections.abc import Iterator

_DAY: Final = timedelta(days=1)
_WEEKDAY: Final = "(?:MO|TU|WE|TH|FR|SA|SU)"
_COMMON: Final = {
    "INTERVAL": r"[1-9]\d{0,2}",
    "COUNT": r"[1-9]\d{0,3}",
    "UNTIL": r"\d{8}(?:T\d{6})?",
    "WKST": _WEEKDAY,
}
_MONTH_DAYS: Final = {
    "BYDAY": rf"(?:[+-]?[1-5])?{_WEEKDAY}(?:,(?:[+-]?[1-5])?{_WEEKDAY})*",
    "BYMONTHDAY": r"-?(?:[1-9]|[12]\d|3[01])(?:,-?(?:[1-9]|[12]\d|3[01]))*",
    "BYSETPOS": r"-?[1-4]",
}
_PARTS: Final = {
    "DAILY": _COMMON,
    "WEEKLY": {**_COMMON, "BYDAY": rf"{_WEEKDAY}(?:,{_WEEKDAY})*"},
    "MONTHLY": {**_COMMON, **_MONTH_DAYS},
    "YEARLY": {**_COMMON, **_MONTH_DAYS, "BYMONTH": r"(?:[1-9]|1[0-2])(?:,(?:[1-9]|1[0-2]))*"},
}
"""The parts of a recurrence rule by frequency, with their values: no rule starts twice in a day, and of nearly all it
is certain that they match some day, which is expensive to find out."""


class _Rule(Protocol):
    """What is used of `dateutil.rrule.rrule`."""

    def before(self, dt: datetime, inc: bool = ...) -> datetime | None: ...

    def after(self, dt: datetime, inc: bool = ...) -> datetime | None: ...


class CalendarQuota(Model):
    """The nominal quota of one resource in one flavor."""

    flavor: Name
    """The ResourceFlavor."""
    resource: QualifiedName
    """The resource, such as nvidia.com/gpu."""
    nominal_quota: Quantity
    """The nominal quota while the entry applies."""


class CalendarEntry(Model):
    """Other quotas for a time, once or again and again."""

    name: Name
    """Its name, unique in the calendar."""
    start: LocalTime
    """When it first applies; of a recurrence the earliest start."""
    end: LocalTime
    """When it ends; of a recurrence each occurrence takes as long on the wall clock as from `start` to `end`."""
    recurrence: str = Field(default="", max_length=256)
    """A recurrence rule of iCalendar, such as `FREQ=WEEKLY;BYDAY=SA`; empty: it applies once."""
    except_days: Annotated[tuple[Day, ...], Field(max_length=366)] = ()
    """Days on which it does not start."""
    quotas: Annotated[tuple[CalendarQuota, ...], Field(min_length=1, max_length=256)]
    """The quotas that are other than usual; all others stay."""
    reason: str = Field(default="", max_length=1024)
    """Why, for those who read the history of the queue."""

    @model_validator(mode="after")
    def _occurs(self) -> Self:
        if datetime.fromisoformat(self.end) <= datetime.fromisoformat(self.start):
            raise FieldFaultsError([("end", f"is not after start, {self.start}")])
        if fault := _rule_fault(self.recurrence):
            raise FieldFaultsError([("recurrence", fault)])
        known: set[tuple[str, str]] = set()
        for position, each in enumerate(self.quotas):
            if (each.flavor, each.resource) in known:
                text = f"{each.resource} of {each.flavor} has a quota in this entry already"
                raise FieldFaultsError([(f"quotas[{position}]", text)])
            known.add((each.flavor, each.resource))
        starts = _Starts.of(self)
        if starts.following(starts.first - _DAY) is None:
            text = "the rule matches no day" if not self.except_days else "no day is left that is not excepted"
            raise FieldFaultsError([("recurrence", f"{text} from {self.start} on")])
        return self


class Calendar(Model):
    """Entries that give other quotas for a time. Where two entries give the same quota, the first in the list counts.

    Without an entry that applies, the quota is the nominalQuota.
    """

    time_zone: TimeZone = "UTC"
    """The time zone of all times, such as Europe/Berlin."""
    entries: Annotated[tuple[CalendarEntry, ...], Field(min_length=1, max_length=64)]
    """The entries."""

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [each.name for each in self.entries]
        for position, name in enumerate(names):
            if name in names[:position]:
                raise FieldFaultsError([(f"entries[{position}].name", f'"{name}" is used already')])
        return self

    def at(self, now: float) -> dict[tuple[str, str], Applied]:
        """Return the quotas that entries give at an instant (s since the epoch), by flavor and resource."""
        found: dict[tuple[str, str], Applied] = {}
        for entry in self.entries:
            if (ends := _Starts.of(entry).applies_until(now, self.time_zone)) is None:
                continue
            for quota in entry.quotas:
                found.setdefault((quota.flavor, quota.resource), Applied(quota.nominal_quota, entry, ends))
        return found

    def next_change(self, now: float) -> float | None:
        """Return the first instant after `now` at which an entry begins or ends; None: never again."""
        found = (_Starts.of(entry).next_change(now, self.time_zone) for entry in self.entries)
        return min((at for at in found if at is not None), default=None)

    def changes(self, now: float, until: float = inf, *, most: int = 1000) -> Iterator[float]:
        """Yield the instants after `now` and before `until` at which an entry begins or ends; `most` of them only."""
        for _ in range(most):
            following = self.next_change(now)
            if following is None or following >= until:
                return
            yield following
            now = following


class Applied(NamedTuple):
    """A quota that an entry gives."""

    nominal_quota: str
    entry: CalendarEntry
    until: float
    """When this occurrence of the entry ends, in seconds since the epoch."""


class _Starts:
    """The starts of an entry on the wall clock, and how long each occurrence takes there."""

    def __init__(self, entry: CalendarEntry) -> None:
        self.first = datetime.fromisoformat(entry.start)
        self._takes = datetime.fromisoformat(entry.end) - self.first
        self._excepted = frozenset(entry.except_days)
        self._rule = _rule(entry.recurrence, self.first) if entry.recurrence else None

    @staticmethod
    def of(entry: CalendarEntry) -> _Starts:
        """Return the starts of an entry; those of the same entry are computed once."""
        return _starts(entry)

    def _preceding(self, at: datetime) -> datetime | None:
        """Return the last start at `at` or before."""
        if self._rule is None:
            return self.first if self.first <= at and not self._is_excepted(self.first) else None
        found = self._rule.before(at, inc=True)
        while found is not None and self._is_excepted(found):
            found = self._rule.before(found)
        return found

    def following(self, at: datetime) -> datetime | None:
        """Return the first start after `at`."""
        if self._rule is None:
            return self.first if self.first > at and not self._is_excepted(self.first) else None
        found = self._rule.after(at)
        while found is not None and self._is_excepted(found):
            found = self._rule.after(found)
        return found

    def _is_excepted(self, start: datetime) -> bool:
        return bool(self._excepted) and start.date().isoformat() in self._excepted

    def _near(self, now: float, zone_name: str) -> Iterator[tuple[float, float]]:
        """Yield start and end of the occurrences near an instant, and of the last before and the first after these."""
        # Where clocks are changed, the order of wall clocks is not that of time: by a day at most.
        local = datetime.fromtimestamp(now, zone(zone_name)).replace(tzinfo=None)
        start = self._preceding(local - _DAY) or self.following(local - _DAY)
        while start is not None:
            yield _instant(start, zone_name), _instant(start + self._takes, zone_name)
            if start > local + _DAY:
                return
            start = self.following(start)

    def applies_until(self, now: float, zone_name: str) -> float | None:
        """Return when the occurrence ends that applies now; None: none does."""
        return max((end for start, end in self._near(now, zone_name) if start <= now < end), default=None)

    def next_change(self, now: float, zone_name: str) -> float | None:
        """Return the first start or end after `now`."""
        return min((at for both in self._near(now, zone_name) for at in both if at > now), default=None)


@lru_cache(maxsize=1024)
def _starts(entry: CalendarEntry) -> _Starts:
    return _Starts(entry)


def _instant(local: datetime, zone_name: str) -> float:
    return local.replace(tzinfo=zone(zone_name)).timestamp()


def _rule_fault(text: str) -> str:
    """Return what is wrong with a recurrence rule; empty: nothing."""
    if not text:
        return ""
    parts = [part.partition("=") for part in text.split(";")]
    keys = [key for key, _, _ in parts]
    given = {key: value for key, _, value in parts}
    permitted = _PARTS.get(given.get("FREQ", ""))
    if permitted is None:
        return f'"{text}" needs FREQ=DAILY, WEEKLY, MONTHLY or YEARLY, such as FREQ=WEEKLY;BYDAY=SA,SU'
    for key in keys:
        if key == "FREQ" and keys.count(key) == 1:
            continue
        if keys.count(key) > 1:
            return f"{key} is given twice"
        if key not in permitted:
            return f'"{key}" cannot be used with FREQ={given["FREQ"]}; use {", ".join(permitted)}'
        if not re.fullmatch(permitted[key], given[key]):
            local = " (a day or a local time, such as 20261231)" if key == "UNTIL" else ""
            return f"{key}={given[key]} is no valid value{local}"
    if "COUNT" in given and "UNTIL" in given:
        return "give COUNT or UNTIL, not both"
    try:
        _rule(text, datetime(2026, 1, 1))  # noqa: DTZ001  a time on a wall clock
    except (ValueError, TypeError, OverflowError) as error:
        return f'"{text}" is no recurrence rule: {error}'
    return ""


def _rule(text: str, first: datetime) -> _Rule:
    from dateutil.rrule import rrulestr  # not on the way of commands that have no calendar

    # A day as UNTIL includes the start on that day.
    rule: _Rule = rrulestr(re.sub(r"(UNTIL=\d{8})(?!\d|T)", r"\1T235959", text), dtstart=first, cache=True)
    return rule


def instant_text(at: float, zone_name: str) -> str:
    """Return an instant for users, in a time zone: `2026-11-30 20:00 CET`."""
    local = datetime.fromtimestamp(at, zone(zone_name))
    return f"{local:%Y-%m-%d %H:%M:%S}".removesuffix(":00") + f" {local.tzname()}"
