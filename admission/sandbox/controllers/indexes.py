"""Sets of completion indexes in the notation of a Job's status: `0-2,5`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def parse_indexes(text: str, limit: int) -> set[int]:
    """Return the indexes below `limit` of a text like `0-2,5`; it may be empty."""
    found: set[int] = set()
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        found.update(range(int(first), min(int(last or first), limit - 1) + 1))
    return found


def format_indexes(indexes: Iterable[int]) -> str:
    """Return the canonical text: ranges of three or more indexes have a dash, two consecutive ones a comma."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(_run(first, last) for first, last in runs)


def _run(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"
