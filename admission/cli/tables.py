"""Plain tables for terminals: Kueue's columns, NAME first and AGE last."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Document: TypeAlias = "dict[str, Any]"

_NONE = "<none>"
_GAP = "  "


class Column(NamedTuple):
    """A header and how its cell is read from an object. `wide` ones are shown with `-o wide` only."""

    header: str
    cell: Callable[[Document], object]
    wide: bool = False


def _at(*path: str) -> Callable[[Document], object]:
    def read(document: Document) -> object:
        value: Any = document
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    return read


def _condition(kind: str) -> Callable[[Document], object]:
    def read(document: Document) -> object:
        conditions = document.get("status", {}).get("conditions", ())
        return next((condition["status"] for condition in conditions if condition["type"] == kind), None)

    return read


def _labels(document: Document) -> object:
    labels = document.get("spec", {}).get("nodeLabels", {})
    return ",".join(f"{key}={value}" for key, value in labels.items())


def _why_pending(document: Document) -> object:
    conditions = document["status"]["conditions"]
    return next((c["reason"] for c in conditions if c["type"] == "QuotaReserved" and c["status"] == "False"), None)


_QUEUED = (
    Column("PENDING", _at("status", "pendingWorkloads")),
    Column("ADMITTED", _at("status", "admittedWorkloads")),
    Column("ACTIVE", _condition("Active")),
)
COLUMNS: dict[str, tuple[Column, ...]] = {
    "ClusterQueue": (
        Column("COHORT", _at("spec", "cohortName")),
        Column("STRATEGY", _at("spec", "queueingStrategy"), wide=True),
        *_QUEUED,
    ),
    "Cohort": (Column("PARENT", _at("spec", "parentName")),),
    "LocalQueue": (Column("CLUSTERQUEUE", _at("spec", "clusterQueue")), *_QUEUED),
    "ResourceFlavor": (Column("NODE-LABELS", _labels, wide=True),),
    "WorkloadPriorityClass": (Column("VALUE", _at("value")),),
    "Workload": (
        Column("QUEUE", _at("spec", "queueName")),
        Column("RESERVED-IN", _at("status", "admission", "clusterQueue")),
        Column("ADMITTED", _condition("Admitted")),
        Column("FINISHED", _condition("Finished")),
        Column("PRIORITY", _at("spec", "priority"), wide=True),
        Column("USER", _at("metadata", "annotations", "sluice.dev/submitted-by"), wide=True),
        Column("WAITS-FOR", _why_pending, wide=True),
    ),
}
"""By kind, without NAMESPACE, NAME and AGE, which all have."""


def table(
    kind: str, objects: Iterable[Document], *, now: datetime, namespaces: bool, wide: bool, headers: bool
) -> list[str]:
    """The lines of a table of objects of one kind. `namespaces`: with a column for them."""
    columns = [
        *([Column("NAMESPACE", _at("metadata", "namespace"))] if namespaces else []),
        Column("NAME", _at("metadata", "name")),
        *(column for column in COLUMNS[kind] if wide or not column.wide),
        Column("AGE", lambda document: age(document["metadata"]["creationTimestamp"], now)),
    ]
    rows = [[_text(column.cell(document)) for column in columns] for document in objects]
    if headers:
        rows.insert(0, [column.header for column in columns])
    return _aligned(rows)


def age(created: str, now: datetime) -> str:
    """How long ago, as kubectl says it: `45s`, `5m30s`, `2h`, `3d4h`; `created` is an RFC 3339 time."""
    seconds = max(0, int((now - datetime.fromisoformat(created)).total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 2 * 365:
        return f"{days}d"
    return _two(days // 365, "y", days % 365, "d")


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}" + (f"{small}{small_unit}" if small else "")


def _text(value: object) -> str:
    return _NONE if value is None or value == "" else str(value)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [_GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
