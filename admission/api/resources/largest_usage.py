"""The parameter `top` of usage reports: the groups with the largest usage of each resource, and a sum of the others."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from admission.store.ledger.usage_reports import UsageRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_Group = tuple[tuple[str, str | int], ...]
"""Fields of a row that identify its group, with their values: `(("namespace", "a"), ("resource", "cpu"))`."""


def largest(parts: Sequence[Sequence[UsageRow]], most: int) -> list[list[UsageRow]]:
    """Return the rows of the `most` groups with the largest usage of each resource, summed over all intervals `parts`.

    The rows of all other groups are summed up in one row for each resource and period, at the end of each interval; its
    `others` is the number of these groups in all intervals.
    """
    totals: defaultdict[str | int, defaultdict[_Group, float]] = defaultdict(lambda: defaultdict(float))
    for row in (row for part in parts for row in part):
        totals[row.group["resource"]][_group(row)] += row.amount_seconds
    kept = {resource: set(_first(groups, most)) for resource, groups in totals.items()}
    left_out = {resource: len(groups) - len(kept[resource]) for resource, groups in totals.items()}
    return [
        [*(row for row in part if _group(row) in kept[row.group["resource"]]), *_others(part, kept, left_out)]
        for part in parts
    ]


def _group(row: UsageRow) -> _Group:
    return tuple(item for item in row.group.items() if item[0] != "period")


def _first(groups: dict[_Group, float], most: int) -> Iterator[_Group]:
    for group, _ in sorted(groups.items(), key=lambda item: (-item[1], item[0]))[:most]:
        yield group


def _others(
    part: Sequence[UsageRow], kept: dict[str | int, set[_Group]], left_out: dict[str | int, int]
) -> Iterator[UsageRow]:
    sums: defaultdict[_Group, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in part:
        if _group(row) not in kept[row.group["resource"]]:
            seconds = sums[tuple((name, row.group[name]) for name in ("period", "resource") if name in row.group)]
            seconds[0] += row.nominal_seconds
            seconds[1] += row.borrowed_seconds
    for of, (nominal, borrowed) in sorted(sums.items()):
        yield UsageRow(dict(of), nominal, borrowed, left_out[dict(of)["resource"]])
