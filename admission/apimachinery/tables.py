"""Table and PartialObjectMetadata responses (`meta.k8s.io/v1`): what is the same for every kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Cell: TypeAlias = Callable[[dict[str, Any], float], object]
"""Returns the cell for an object's document at a Unix time (s)."""


class Column(NamedTuple):
    """A column of a table: header, accessor of the cell, description, type."""

    name: str
    cell: Cell
    description: str = ""
    type: str = "string"
    wide: int = False
    """Its priority; other than 0: it is shown by `-o wide` only."""

    def definition(self) -> dict[str, Any]:
        """Return its entry in `columnDefinitions` of a Table."""
        return {
            "name": self.name,
            "type": self.type,
            "format": "name" if self.name == "Name" else "",
            "description": self.description,
            "priority": int(self.wide),
        }


def table(
    metadata: Mapping[str, Any],
    columns: Sequence[Column],
    objects: Iterable[dict[str, Any]],
    *,
    now: float,
    include: str,
    with_columns: bool = True,
) -> dict[str, Any]:
    """Return a Table of objects.

    `include` is the parameter `includeObject`, the part of the object in each row: `None`, `Metadata` or `Object`.
    `with_columns`: in a watch only the first event contains the column definitions.
    """
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [column.definition() for column in columns] if with_columns else None,
        "rows": [
            {"cells": [column.cell(obj, now) for column in columns], "object": _included(obj, include)}
            for obj in objects
        ],
    }


def _included(obj: dict[str, Any], include: str) -> dict[str, Any] | None:
    if include == "Object":
        return obj
    return None if include == "None" else partial(obj)


def duration(seconds: float) -> str:
    """Format a duration as kubectl prints ages: `45s`, `5m30s`, `2h`, `3d4h`; two units at most."""
    total = max(0, int(seconds))
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if total < 120:
        return f"{total}s"
    if minutes < 10:
        return _two(minutes, "m", total % 60, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    return f"{days}d" if days < 730 else _two(days // 365, "y", days % 365, "d") if days < 2920 else f"{days // 365}y"


def spoken(seconds: float) -> str:
    """Format a duration in words, as the dashboard does: `45 s`, `17 min`, `2 h 10 min`, `3 d 4 h`."""
    total = max(0, round(seconds))
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if total < 60:
        return f"{total} s"
    if hours < 1:
        return f"{minutes} min"
    if days < 1:
        return f"{hours} h {minutes % 60} min" if minutes % 60 else f"{hours} h"
    return f"{days} d {hours % 24} h" if hours % 24 else f"{days} d"


def partial(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return the PartialObjectMetadata of an object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def _two(large: int, unit: str, small: int, small_unit: str) -> str:
    return f"{large}{unit}{small}{small_unit}" if small else f"{large}{unit}"
