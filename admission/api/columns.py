"""The columns of tables, as `kubectl get` prints them: those of Kueue's kinds, then a few that answer more."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from admission.machinery.tables import duration, partial

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.api.replies import Document

Cell: TypeAlias = Callable[["Document"], object]

NO_COLUMNS = b'"columnDefinitions":null'
"""In a watch only the first table tells its columns; the others say so."""


class Column(NamedTuple):
    """A header and how its cell is read from an object. `wide` ones are shown by `-o wide` only."""

    name: str
    cell: Cell
    about: str
    type: str = "string"
    wide: bool = False

    def definition(self) -> Document:
        """As a Table describes it."""
        form = "name" if self.name == "Name" else ""
        return {
            "name": self.name,
            "type": self.type,
            "format": form,
            "description": self.about,
            "priority": int(self.wide),
        }


def table(kind: str, metadata: Document, objects: Iterable[Document], *, now: float, include: str) -> Document:
    """A Table of objects of a kind. `include` says what of each comes along: None, Metadata or Object."""
    columns = _COLUMNS[kind]
    rows = []
    for obj in objects:
        age = duration(now - datetime.fromisoformat(obj["metadata"]["creationTimestamp"]).timestamp())
        cells = [obj["metadata"]["name"], *(column.cell(obj) for column in columns), age]
        rows.append({"cells": cells, "object": _included(obj, include)})
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": definitions(kind),
        "rows": rows,
    }


def definitions(kind: str) -> list[Document]:
    """What a Table says about its columns."""
    return [column.definition() for column in (_NAME, *_COLUMNS[kind], _AGE)]


def _included(obj: Document, include: str) -> Document | None:
    if include == "Object":
        return obj
    return None if include == "None" else partial(obj)


def _at(*path: str) -> Cell:
    def read(document: Document) -> object:
        value: Any = document
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    return read


def _condition(kind: str) -> Cell:
    def read(document: Document) -> object:
        conditions = document["status"]["conditions"]
        return next((condition["status"] for condition in conditions if condition["type"] == kind), None)

    return read


def _labels(document: Document) -> object:
    return ",".join(f"{key}={value}" for key, value in document.get("spec", {}).get("nodeLabels", {}).items()) or None


def _why_pending(document: Document) -> object:
    conditions = document["status"]["conditions"]
    return next((c["reason"] for c in conditions if c["type"] == "QuotaReserved" and c["status"] == "False"), None)


_NAME = Column("Name", _at("metadata", "name"), "Name of the object, unique in its namespace")
_AGE = Column("Age", _at("metadata", "creationTimestamp"), "Time since the object was created")
_QUEUED = (
    Column("Pending Workloads", _at("status", "pendingWorkloads"), "Workloads that wait for quota", "integer"),
    Column(
        "Admitted Workloads", _at("status", "admittedWorkloads"), "Workloads that hold quota and may run", "integer"
    ),
)
_ACTIVE = Column("Active", _condition("Active"), "Whether it can be used as it is", wide=True)
_COLUMNS: dict[str, tuple[Column, ...]] = {
    "ClusterQueue": (
        Column("Cohort", _at("spec", "cohortName"), "Cohort that the ClusterQueue belongs to"),
        Column("Strategy", _at("spec", "queueingStrategy"), "Whether one that does not fit blocks the rest", wide=True),
        *_QUEUED,
        _ACTIVE,
    ),
    "Cohort": (Column("Parent", _at("spec", "parentName"), "Cohort that the Cohort belongs to"),),
    "LocalQueue": (
        Column("ClusterQueue", _at("spec", "clusterQueue"), "Backing ClusterQueue"),
        *_QUEUED,
        _ACTIVE,
    ),
    "ResourceFlavor": (Column("Node Labels", _labels, "Labels of the nodes of the flavor", wide=True),),
    "WorkloadPriorityClass": (Column("Value", _at("value"), "Priority of its workloads", "integer"),),
    "AdmissionCheck": (
        Column("Controller", _at("spec", "controllerName"), "Who answers the check", wide=True),
        _ACTIVE,
    ),
    "AuditRecord": (
        Column("User", _at("user"), "Who wrote"),
        Column("Verb", _at("verb"), "How"),
        Column("Kind", _at("object", "kind"), "Kind of what was written"),
        Column("Namespace", _at("object", "namespace"), "Namespace of what was written"),
        Column("Object", _at("object", "name"), "Name of what was written"),
        Column("Reason", _at("reason"), "Why, in the words of the user"),
    ),
    "Workload": (
        Column("Queue", _at("spec", "queueName"), "Name of the LocalQueue"),
        Column("Reserved in", _at("status", "admission", "clusterQueue"), "ClusterQueue where it has reserved quota"),
        Column("Admitted", _condition("Admitted"), "Whether it may run"),
        Column("Finished", _condition("Finished"), "Whether it has ended"),
        Column("Priority", _at("spec", "priority"), "Who comes first within a queue", "integer", wide=True),
        Column("User", _at("spec", "user"), "Who submitted it", wide=True),
        Column("Waits for", _why_pending, "Why it is not admitted", wide=True),
    ),
}
