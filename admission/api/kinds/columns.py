"""Columns of tables, and the ways in which their cells are read from an object's JSON document."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.api.http.responses import Document

Cell: TypeAlias = Callable[["Document", float], object]
"""Reads a cell from an object, as of a time in seconds since the epoch."""


class Column(NamedTuple):
    """A header and how its cell is read from an object. `wide` ones are shown by `-o wide` only."""

    name: str
    cell: Cell
    about: str
    type: str = "string"
    wide: bool = False

    def definition(self) -> Document:
        """An entry of `columnDefinitions` of a `meta.k8s.io/v1` Table."""
        form = "name" if self.name == "Name" else ""
        return {
            "name": self.name,
            "type": self.type,
            "format": form,
            "description": self.about,
            "priority": int(self.wide),
        }


def at(*path: str) -> Cell:
    """The value at a path, such as `("spec", "cohortName")`; None if it is not there."""

    def read(document: Document, now: float) -> object:
        del now
        value: Any = document
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    return read


def condition(type_: str) -> Cell:
    """The status (True, False, Unknown) of a condition."""

    def read(document: Document, now: float) -> object:
        del now
        return (condition_of(document, type_) or {}).get("status")

    return read


def condition_of(document: Document, type_: str) -> Document | None:
    """A condition of the object's status, by its type; None if there is none."""
    found: Iterable[Document] = document["status"]["conditions"]
    return next((condition for condition in found if condition["type"] == type_), None)


ACTIVE: Final = Column("Active", condition("Active"), "Whether it can be used as it is", wide=True)
WORKLOADS: Final = (
    Column("Pending Workloads", at("status", "pendingWorkloads"), "Workloads that wait for quota", "integer"),
    Column("Admitted Workloads", at("status", "admittedWorkloads"), "Workloads that hold quota and may run", "integer"),
)
