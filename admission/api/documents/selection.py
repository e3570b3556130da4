"""Which objects a list or watch is about: a namespace, labels, and the fields that each resource can be asked by."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from admission.api.documents.workload_documents import object_name, workload_name
from admission.api.kinds.all_kinds import KINDS
from admission.apimachinery.errors import InvalidSelector
from admission.apimachinery.selectors import parse_field_selector, parse_label_selector
from admission.model.queues import QueueObject
from admission.store.records import State, WorkloadRecord
from admission.store.workloads.queries import Condition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aiohttp import web

    from admission.apimachinery.selectors import FieldTerm, Requirement

Subject: TypeAlias = QueueObject | WorkloadRecord
"""What can be selected."""
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_OF_ALL: Final = ("metadata.name", "metadata.namespace")


@dataclass(frozen=True, slots=True)
class QueueSelection:
    """Some objects of one kind."""

    namespace: str | None = None
    labels: tuple[Requirement, ...] = ()
    fields: tuple[FieldTerm, ...] = ()

    @classmethod
    def of(cls, request: web.Request, kind: str) -> QueueSelection:
        """From the path and the query. Raises InvalidSelector."""
        fields = request.query.get("fieldSelector", "")
        return cls(
            request.match_info.get("namespace"),
            parse_label_selector(request.query.get("labelSelector", "")),
            parse_field_selector(fields, (*_OF_ALL, *KINDS[kind].selectable)),
        )

    @property
    def is_narrow(self) -> bool:
        """Whether it is less than a whole namespace or all."""
        return bool(self.labels or self.fields)

    @property
    def is_lasting(self) -> bool:
        """Whether an object that is selected stays so for ever, and the other way round."""
        return not self.is_narrow

    def matches(self, obj: Subject) -> bool:
        """Whether the object is one of them."""
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
            return KINDS[obj.kind].selectable[path](obj)


WORKLOAD_FIELDS: Final[Mapping[str, str]] = {
    "metadata.namespace": "namespace",
    "metadata.uid": "uid",
    "spec.queueName": "local_queue",
    "spec.priority": "priority",
    "spec.user": "submitted_by",
    "status.clusterQueue": "cluster_queue",
    "status.state": "state",
}
"""What workloads can be selected by beside their name, and in which column it is."""
_LABELS: Final[Mapping[str, str]] = {"kueue.x-k8s.io/job-uid": "uid", "kueue.x-k8s.io/queue-name": "local_queue"}


@dataclass(frozen=True, slots=True)
class WorkloadSelection:
    """Some workloads: by what the database can find, and by their names, which it does not know."""

    namespace: str | None = None
    conditions: tuple[Condition, ...] = ()
    names: tuple[FieldTerm, ...] = ()
    is_nothing: bool = False

    @classmethod
    def of(cls, request: web.Request) -> WorkloadSelection:
        """From the path and the query. Raises InvalidSelector."""
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
    def is_narrow(self) -> bool:
        """Whether it is less than a whole namespace or all."""
        return bool(self.conditions or self.names or self.is_nothing)

    @property
    def is_lasting(self) -> bool:
        """Whether a workload that is selected stays so for ever, and the other way round."""
        return all(condition.is_lasting for condition in self.conditions)

    def matches(self, record: Subject) -> bool:
        """Whether the workload is one of them."""
        if not isinstance(record, WorkloadRecord) or self.is_nothing:
            return False
        if self.namespace is not None and record.workload.namespace != self.namespace:
            return False
        return all(condition.holds(record) for condition in self.conditions) and self.completes(record)

    def completes(self, record: WorkloadRecord) -> bool:
        """Whether a workload that the database has found is one of them indeed."""
        return all((workload_name(record.workload) == term.value) is term.equal for term in self.names)

    def _with_field(self, term: FieldTerm) -> WorkloadSelection:
        if term.path == "metadata.name":
            return self._with("name", [object_name(term.value)], negated=False) if term.equal else self
        value: str | int = term.value
        if term.path == "spec.priority":
            if _NUMBER.fullmatch(term.value) is None or not -(2**31) <= int(term.value) < 2**31:  # no priority is so
                return replace(self, is_nothing=True) if term.equal else self
            value = int(term.value)
        if term.path == "status.state" and term.value not in [*State]:
            raise InvalidSelector(f'status.state: "{term.value}" is no state; there are {", ".join(State)}')
        return self._with(WORKLOAD_FIELDS[term.path], [value], negated=not term.equal)

    def _with_label(self, requirement: Requirement) -> WorkloadSelection:
        column = _LABELS.get(requirement.key)
        if column is None:  # a label that no workload has
            return replace(self, is_nothing=True) if requirement.operator in ("In", "Exists") else self
        if requirement.operator in ("In", "NotIn"):
            return self._with(column, requirement.values, negated=requirement.operator == "NotIn")
        return replace(self, is_nothing=True) if requirement.operator == "DoesNotExist" else self

    def _with(self, column: str, values: Iterable[str | int], *, negated: bool) -> WorkloadSelection:
        return replace(self, conditions=(*self.conditions, Condition(column, frozenset(values), negated)))


Selection: TypeAlias = QueueSelection | WorkloadSelection
