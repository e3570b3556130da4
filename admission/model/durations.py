"""Durations as users write them: Go's syntax, as in Kueue, and days."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST: Final = 10 * 365 * 86400.0
"""Seconds of the longest duration that is accepted."""
_PART: Final = r"(\d+(?:\.\d+)?)(ms|s|m|h|d)"


def parse_duration(value: object) -> float:
    """Return the seconds of a duration such as `90s`, `1h30m` or `7d` (Go's syntax, and days). Raises ValueError."""
    expected = "expected a duration such as 90s, 1h30m or 7d"
    if value == 0 and not isinstance(value, bool):
        return 0.0
    if not isinstance(value, str):
        raise ValueError(f"{expected}, in quotes")  # noqa: TRY004  pydantic reports ValueErrors only
    parts = re.findall(_PART, value)
    if "".join(number + unit for number, unit in parts) != value or not parts:
        if value == "0":
            return 0.0
        raise ValueError(f'"{value}" is not a duration; {expected}')
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if seconds > _LONGEST:
        raise ValueError(f'"{value}" is longer than ten years')
    return seconds


def format_duration(seconds: float) -> str:
    """Return a duration as text that `parse_duration` accepts."""
    return f"{seconds:.6f}".rstrip("0").rstrip(".") + "s"
