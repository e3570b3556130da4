"""Plain tables for terminals: Kueue's columns, NAME first and AGE last."""

from __future__ import annotations

from datetime import datetime
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from admission.machinery.tables import duration

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
    conditions = document.get("status", {}).get("conditions", ())
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
    "AdmissionCheck": (
        Column("CONTROLLER", _at("spec", "controllerName")),
        Column("ACTIVE", _condition("Active")),
    ),
    "WorkloadPriorityClass": (Column("VALUE", _at("value")),),
    "Workload": (
        Column("QUEUE", _at("spec", "queueName")),
        Column("RESERVED-IN", _at("status", "admission", "clusterQueue")),
        Column("ADMITTED", _condition("Admitted")),
        Column("FINISHED", _condition("Finished")),
        Column("PRIORITY", _at("spec", "priority"), wide=True),
        Column("USER", _at("spec", "user"), wide=True),
        Column("WAITS-FOR", _why_pending, wide=True),
    ),
}
"""By kind, without NAMESPACE, NAME and AGE, which all have."""


class Table:
    """A table of objects of one kind, with a column of `namespaces` or not; when it grows, no column gets narrower."""

    def __init__(self, kind: str, *, namespaces: bool, wide: bool, headers: bool) -> None:
        self._columns = [
            *([Column("NAMESPACE", _at("metadata", "namespace"))] if namespaces else []),
            Column("NAME", _at("metadata", "name")),
            *(column for column in COLUMNS.get(kind, ()) if wide or not column.wide),
        ]
        self._headers = headers
        self._widths: list[int] = []

    def lines(self, objects: Iterable[Document], *, now: datetime) -> list[str]:
        """The objects, a line each; the first ones under the headers if they are wanted."""
        columns = [*self._columns, Column("AGE", lambda document: age(document["metadata"]["creationTimestamp"], now))]
        rows = [[_text(column.cell(document)) for column in columns] for document in objects]
        if self._headers:
            rows.insert(0, [column.header for column in columns])
            self._headers = False
        self._widths = column_widths(rows, self._widths)
        return aligned(rows, self._widths)


def age(created: str, now: datetime) -> str:
    """How long ago, as kubectl says it: `45s`, `5m30s`, `2h`, `3d4h`; `created` is an RFC 3339 time."""
    return duration((now - datetime.fromisoformat(created)).total_seconds())


def _text(value: object) -> str:
    return _NONE if value is None or value == "" else str(value)


def column_widths(rows: Iterable[Sequence[str]], least: Iterable[int] = ()) -> list[int]:
    """How wide each column must be."""
    widths = [[len(cell) for cell in row] for row in rows]
    return [max(column) for column in zip_longest(*widths, least, fillvalue=0)]


def aligned(rows: Sequence[Sequence[str]], widths: Sequence[int] | None = None) -> list[str]:
    """The rows, a line each, in columns."""
    widths = column_widths(rows) if widths is None else widths
    return [_GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
