"""Days, times and time zones as users write them: `2026-11-30`, `2026-11-30T20:00`, `Europe/Berlin`."""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Final, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field, WithJsonSchema

_FIRST_YEAR: Final = 1971
_LAST_YEAR: Final = 9000
_DAY: Final = r"^\d{4}-\d\d-\d\d$"
_LOCAL_TIME: Final = r"^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?$"


def _time_zone(text: str) -> str:
    try:
        ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f'"{text}" is no time zone; write a name such as Europe/Berlin or UTC') from None
    return text


def _day(text: str) -> str:
    return _checked(text, _DAY, f'"{text}" is no day; write it as 2026-11-30')


def _local_time(text: str) -> str:
    expected = f'"{text}" is no time on a wall clock; write it as 2026-11-30T20:00, without a zone'
    return _checked(text, _LOCAL_TIME, expected)


def _checked(text: str, pattern: str, expected: str) -> str:
    """Return a text of this pattern that is a day or a time, with a year that can be calculated with."""
    if not re.fullmatch(pattern, text):
        raise ValueError(expected)
    try:
        year = datetime.fromisoformat(text).year
    except ValueError:
        raise ValueError(expected) from None
    if not _FIRST_YEAR <= year < _LAST_YEAR:
        raise ValueError(f"must be from {_FIRST_YEAR} to {_LAST_YEAR - 1}, but is {text}")
    return text


Day: TypeAlias = Annotated[
    str, AfterValidator(_day), WithJsonSchema({"type": "string", "pattern": _DAY, "maxLength": 10})
]
LocalTime: TypeAlias = Annotated[
    str,
    AfterValidator(_local_time),
    WithJsonSchema({"type": "string", "pattern": _LOCAL_TIME, "maxLength": 19}),
]
"""A time on the wall clock of a time zone that is given beside it."""
TimeZone: TypeAlias = Annotated[str, Field(max_length=64), AfterValidator(_time_zone)]


@lru_cache(maxsize=256)
def zone(name: str) -> ZoneInfo:
    """Return a time zone by its name."""
    return ZoneInfo(name)
