"""Selections of lists and watches: namespace, label selector, and field selector on the fields of each resource."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from admission.api.documents.workload_names import object_name, workload_name
from admission.api.kinds.all_kinds import KINDS
from admission.apimachinery.errors import InvalidSelector
from admission.apimachinery.selectors import parse_field_selector, parse_label_selector
from admission.model.queues import QueueObject
from admission.store.records import State, WorkloadRecord
from admission.store.workloads.queries import ColumnFilter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aiohttp import web

    from admission.apimachinery.selectors import FieldTerm, Requirement

Subject: TypeAlias = QueueObject | WorkloadRecord
"""Objects that can be selected."""
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_COMMON_FIELDS: Final = ("metadata.name", "metadata.namespace")
"""Selectable fields of every kind of queue object."""


@dataclass(frozen=True, slots=True)
class QueueSelection:
    """A selection of queue objects of one kind, evaluated in memory."""

    namespace: str | None = None
    """None: all namespaces."""
    labels: tuple[Requirement, ...] = ()
    fields: tuple[FieldTerm, ...] = ()

    @classmethod
    def of(cls, request: web.Request, kind: str) -> QueueSelection:
        """Parse a request's path and query. Raises InvalidSelector."""
        fields = request.query.get("fieldSelector", "")
        return cls(
            request.match_info.get("namespace"),
            parse_label_selector(request.query.get("labelSelector", "")),
            parse_field_selector(fields, (*_COMMON_FIELDS, *KINDS[kind].selectable_fields)),
        )

    def can_have(self, obj: Subject) -> bool:
        """Return whether the object can ever be selected, by what of it never changes."""
        return isinstance(obj, WorkloadRecord) or self.namespace in (None, obj.metadata.namespace)

    @property
    def is_narrow(self) -> bool:
        """Whether a selector restricts it to less than a namespace, or than all objects."""
        return bool(self.labels or self.fields)

    @property
    def is_immutable(self) -> bool:
        """Whether membership of an object can never change: it depends on immutable fields only."""
        return not self.is_narrow

    @property
    def name(self) -> str | None:
        """The only name that objects of the selection can have; None: any."""
        return next((term.value for term in self.fields if term.path == "metadata.name" and term.equal), None)

    def matches(self, obj: Subject) -> bool:
        """Return whether the object is selected."""
        if isinstance(obj, WorkloadRecord):
            return False
        if self.namespace is not None and obj.metadata.namespace != self.namespace:
            return False
        return all(requirement.holds(obj.metadata.labels) for requirement in self.labels) and all(
            (_value(obj, term.path) == term.value) is term.equal for term in self.fields
        )


def _value(obj: QueueObject, path: str) -> str:
    match path:
        case "metadata.name":
            return obj.name
        case "metadata.namespace":
            return obj.metadata.namespace
        case _:
            return KINDS[obj.kind].selectable_fields[path](obj)


WORKLOAD_FIELDS: Final[Mapping[str, str]] = {
    "metadata.namespace": "namespace",
    "metadata.uid": "uid",
    "spec.queueName": "local_queue",
    "spec.priority": "priority",
    "spec.user": "submitted_by",
    "spec.cluster": "cluster",
    "status.clusterName": "runs_in",
    "status.clusterQueue": "cluster_queue",
    "status.state": "state",
}
"""Selectable fields of workloads beside their name, with the column of each."""
_LABELS: Final[Mapping[str, str]] = {"kueue.x-k8s.io/job-uid": "uid", "kueue.x-k8s.io/queue-name": "local_queue"}


@dataclass(frozen=True, slots=True)
class WorkloadSelection:
    """A selection of workloads, evaluated in SQL except for their names."""

    namespace: str | None = None
    """None: all namespaces."""
    conditions: tuple[ColumnFilter, ...] = ()
    """Conditions on columns, for SQL."""
    names: tuple[FieldTerm, ...] = ()
    """Terms on `metadata.name`, which no column has: it is computed from kind, name and uid of the object."""
    is_empty: bool = False
    """Whether no workload can match, such as for a label that workloads do not have."""

    @classmethod
    def of(cls, request: web.Request) -> WorkloadSelection:
        """Parse a request's path and query. Raises InvalidSelector."""
        fields = parse_field_selector(request.query.get("fieldSelector", ""), ("metadata.name", *WORKLOAD_FIELDS))
        selection = cls(
            request.match_info.get("namespace"),
            names=tuple(term for term in fields if term.path == "metadata.name"),
        )
        for term in fields:
            selection = selection._with_field(term)
        for requirement in parse_label_selector(request.query.get("labelSelector", "")):
            selection = selection._with_label(requirement)
        return selection

    @property
    def clusters(self) -> frozenset[str]:
        """The clusters that its conditions name as those where the workloads are, or run."""
        named = (each for each in self.conditions if each.column in ("cluster", "runs_in") and not each.negated)
        return frozenset(str(value) for each in named for value in each.values)

    def without(self, clusters: frozenset[str]) -> WorkloadSelection:
        """Return the selection of the same workloads, but for those of these clusters."""
        return self._with("cluster", clusters, negated=True) if clusters else self

    def can_have(self, record: Subject) -> bool:
        """Return whether the workload can ever be selected, by what of it never changes."""
        return (
            isinstance(record, WorkloadRecord)
            and self.namespace in (None, record.workload.namespace)
            and all(condition.holds(record) for condition in self.conditions if condition.is_immutable)
        )

    @property
    def is_narrow(self) -> bool:
        """Whether a selector restricts it to less than a namespace, or than all workloads."""
        return bool(self.conditions or self.names or self.is_empty)

    @property
    def is_immutable(self) -> bool:
        """Whether membership of a workload can never change: it depends on immutable columns only."""
        return all(condition.is_immutable for condition in self.conditions)

    def matches(self, record: Subject) -> bool:
        """Return whether the workload is selected."""
        if not isinstance(record, WorkloadRecord) or self.is_empty:
            return False
        if self.namespace is not None and record.workload.namespace != self.namespace:
            return False
        return all(condition.holds(record) for condition in self.conditions) and self.matches_name(record)

    def matches_name(self, record: WorkloadRecord) -> bool:
        """Return whether a workload that satisfies the SQL conditions matches the terms on the name, too."""
        return all((workload_name(record.workload) == term.value) is term.equal for term in self.names)

    def _with_field(self, term: FieldTerm) -> WorkloadSelection:
        if term.path == "metadata.name":
            return self._with("name", [object_name(term.value)], negated=False) if term.equal else self
        value: str | int = term.value
        if term.path == "spec.priority":
            if (
                _NUMBER.fullmatch(term.value) is None or not -(2**31) <= int(term.value) < 2**31
            ):  # out of the range of priorities
                return replace(self, is_empty=True) if term.equal else self
            value = int(term.value)
        if term.path == "status.state" and term.value not in [*State]:
            raise InvalidSelector(f'status.state: "{term.value}" is not one of {", ".join(State)}')
        return self._with(WORKLOAD_FIELDS[term.path], [value], negated=not term.equal)

    def _with_label(self, requirement: Requirement) -> WorkloadSelection:
        column = _LABELS.get(requirement.key)
        if column is None:  # a label that no workload has
            return replace(self, is_empty=True) if requirement.operator in ("In", "Exists") else self
        if requirement.operator in ("In", "NotIn"):
            return self._with(column, requirement.values, negated=requirement.operator == "NotIn")
        return replace(self, is_empty=True) if requirement.operator == "DoesNotExist" else self

    def _with(self, column: str, values: Iterable[str | int], *, negated: bool) -> WorkloadSelection:
        return replace(self, conditions=(*self.conditions, ColumnFilter(column, frozenset(values), negated)))


Selection: TypeAlias = QueueSelection | WorkloadSelection
