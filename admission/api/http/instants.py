"""Times in requests: RFC 3339, dates, and durations before now."""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from typing import Final

from admission.api.errors import BadRequest

UNITS: Final = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
"""Seconds of each unit of a duration."""


def instant(text: str, now: float, *, field: str, zone: tzinfo = UTC) -> float:
    """Return the Unix time (s) of an RFC 3339 time, a date (midnight of `zone`), or a duration before now (`30d`)."""
    if relative := re.fullmatch(r"(\d{1,6})([mhdw])", text, re.ASCII):
        return max(0.0, now - int(relative[1]) * UNITS[relative[2]])
    try:
        at = datetime.fromisoformat(text.upper())
        return max(0.0, (at if at.tzinfo else at.replace(tzinfo=zone)).timestamp())
    except (ValueError, OverflowError) as error:
        raise BadRequest(
            f'{field}: "{text}" is not a time; give one such as 2025-06-01T08:00:00Z, 2025-06-01, or 7d (7 days ago)'
        ) from error
