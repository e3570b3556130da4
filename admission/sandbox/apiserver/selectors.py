"""Label and field selectors of lists and watches, parsed once and evaluated on many objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from admission.apimachinery.errors import InvalidSelector
from admission.apimachinery.selectors import FieldTerm, Requirement, parse_field_selector, parse_label_selector
from admission.sandbox.apiserver.errors import bad_request
from admission.sandbox.apiserver.objects import labels_of

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.resources import ServedResource


def requirements_of(selector: Object) -> tuple[Requirement, ...]:
    """Return the requirements of a LabelSelector object; an empty one selects everything."""
    found = [Requirement(key, "In", frozenset((value,))) for key, value in selector.get("matchLabels", {}).items()]
    for expression in selector.get("matchExpressions", ()):
        values = frozenset(expression.get("values", ()))
        found.append(Requirement(expression["key"], expression["operator"], values))
    return tuple(found)


def matches_label_selector(selector: Object, labels: dict[str, str]) -> bool:
    """Return whether a LabelSelector selects objects with these labels."""
    return all(requirement.holds(labels) for requirement in requirements_of(selector))


@dataclass(frozen=True, slots=True)
class ObjectSelector:
    """Label and field selector of a list or watch."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[FieldTerm, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.labels and not self.fields

    def matches(self, obj: Object) -> bool:
        if self.labels:
            labels = labels_of(obj)
            if not all(requirement.holds(labels) for requirement in self.labels):
                return False
        return all((field_value(obj, term.path) == term.value) is term.equal for term in self.fields)


# Supported field selectors by (group, plural), beside name and namespace, which all kinds have.
_FIELDS: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "pods"): (
        "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
        "status.phase", "status.podIP", "status.nominatedNodeName",
    ),
    ("batch", "jobs"): ("status.successful",),
    ("", "events"): (
        "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
        "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath",
        "reason", "reportingComponent", "source", "type",
    ),
    ("", "namespaces"): ("status.phase",),
    ("", "nodes"): ("spec.unschedulable",),
    ("", "secrets"): ("type",),
}  # fmt: skip


def parse_selector(resource: ServedResource, labels: str, fields: str) -> ObjectSelector:
    """Parse the `labelSelector` and `fieldSelector` of a list or watch. Raises ApiError (400)."""
    known = ("metadata.name", "metadata.namespace", *resource.selectable, *_FIELDS.get(resource.key, ()))
    try:
        return ObjectSelector(parse_label_selector(labels), parse_field_selector(fields, known))
    except InvalidSelector as error:
        raise bad_request(str(error)) from error


def field_value(obj: Object, path: str) -> str:
    """Return the value that a field selector compares: a string, empty if the field is missing."""
    if path == "status.successful":
        return str(obj.get("status", {}).get("succeeded", 0))
    found: object = obj
    for part in path.split("."):
        if not isinstance(found, dict):
            return ""
        found = found.get(part, "")
    if path == "source" and isinstance(found, dict):
        found = found.get("component", "")
    return str(found).lower() if isinstance(found, bool) else str(found or "")
