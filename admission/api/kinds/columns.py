"""Columns of `kubectl get` tables, and accessors that read their cells from an object's document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from admission.apimachinery.tables import Column

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.api.http.responses import Document
    from admission.apimachinery.tables import Cell


def at(*path: str) -> Cell:
    """Return an accessor of the value at a path, such as `("spec", "cohortName")`; None if it is missing."""

    def read(document: Document, now: float) -> object:
        del now
        value: Any = document
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    return read


def condition(type_: str) -> Cell:
    """Return an accessor of a condition's status: True, False or Unknown."""

    def read(document: Document, now: float) -> object:
        del now
        return (condition_of(document, type_) or {}).get("status")

    return read


def condition_of(document: Document, type_: str) -> Document | None:
    """Return the condition of that type in the object's status; None if there is none."""
    found: Iterable[Document] = document["status"]["conditions"]
    return next((condition for condition in found if condition["type"] == type_), None)


ACTIVE: Final = Column("Active", condition("Active"), "Whether it can be used", wide=True)
WORKLOADS: Final = (
    Column("Pending Workloads", at("status", "pendingWorkloads"), "Workloads that wait for quota", "integer"),
    Column("Admitted Workloads", at("status", "admittedWorkloads"), "Workloads that hold quota and may run", "integer"),
)
