"""Label and field selectors, parsed once and then asked of many objects."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from admission.sandbox.errors import bad_request
from admission.sandbox.metadata import key_fault, value_fault
from admission.sandbox.objects import labels_of

if TYPE_CHECKING:
    from admission.sandbox.objects import Object
    from admission.sandbox.resources import Resource

_REQUIREMENT = re.compile(
    r"\s*(?:(?P<not>!)\s*)?(?P<key>[^\s=!,()]+)\s*"
    r"(?:(?P<op>==|=|!=|\bin\b|\bnotin\b|<|>)\s*(?:\((?P<set>[^)]*)\)|(?P<value>[^\s,]*)))?\s*(?:,|$)"
)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on labels: `operator` is In, NotIn, Exists or DoesNotExist."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def holds(self, labels: dict[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return self.key in labels
            case _:
                return self.key not in labels


@lru_cache(maxsize=1024)
def parse_label_selector(text: str) -> tuple[Requirement, ...]:
    """The query parameter `labelSelector`. Raises ApiError (400)."""
    requirements = []
    position = 0
    while position < len(text.rstrip()):
        match = _REQUIREMENT.match(text, position)
        if match is None or match.end() == position:
            raise bad_request(f'unable to parse requirement: found "{text[position:]}"')
        requirements.append(_requirement(match))
        position = match.end()
    return tuple(requirements)


def _requirement(match: re.Match[str]) -> Requirement:
    key, operator = match["key"], match["op"]
    if fault := key_fault(key):
        raise bad_request(f'unable to parse requirement: invalid label key "{key}": {fault}')
    if operator is None:
        return Requirement(key, "DoesNotExist" if match["not"] else "Exists")
    in_set = operator in ("in", "notin")
    if match["not"] or in_set != (match["set"] is not None) or operator in "<>":
        raise bad_request(f'unable to parse requirement: found "{match[0]}"')
    values = [part.strip() for part in match["set"].split(",")] if in_set else [match["value"]]
    for value in values:
        if fault := value_fault(value):
            raise bad_request(f'unable to parse requirement: values[0][{key}]: Invalid value: "{value}": {fault}')
    return Requirement(key, "In" if operator in ("=", "==", "in") else "NotIn", frozenset(values))


def requirements_of(selector: Object) -> tuple[Requirement, ...]:
    """A LabelSelector as objects hold it; an empty one selects everything."""
    found = [Requirement(key, "In", frozenset((value,))) for key, value in selector.get("matchLabels", {}).items()]
    for expression in selector.get("matchExpressions", ()):
        values = frozenset(expression.get("values", ()))
        found.append(Requirement(expression["key"], expression["operator"], values))
    return tuple(found)


def matches_label_selector(selector: Object, labels: dict[str, str]) -> bool:
    """Whether a LabelSelector selects such labels."""
    return all(requirement.holds(labels) for requirement in requirements_of(selector))


@dataclass(frozen=True, slots=True)
class Selector:
    """What a list or watch asks for."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[tuple[str, bool, str], ...] = ()  # path, equal or not, value

    @property
    def is_empty(self) -> bool:
        return not self.labels and not self.fields

    def matches(self, obj: Object) -> bool:
        if self.labels:
            labels = labels_of(obj)
            if not all(requirement.holds(labels) for requirement in self.labels):
                return False
        return all((field_value(obj, path) == value) is equal for path, equal, value in self.fields)


# Fields that can be selected by, beside the name and namespace that every kind has.
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


def parse_selector(resource: Resource, labels: str, fields: str) -> Selector:
    """The query parameters of a list or watch. Raises ApiError (400)."""
    return Selector(parse_label_selector(labels) if labels else (), _parse_fields(resource, fields) if fields else ())


def _parse_fields(resource: Resource, text: str) -> tuple[tuple[str, bool, str], ...]:
    known = ("metadata.name", "metadata.namespace", *resource.selectable, *_FIELDS.get(resource.key, ()))
    terms = []
    for term in text.split(","):
        match = re.fullmatch(r"\s*([^=!]+?)\s*(!=|==|=)\s*(.*?)\s*", term)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        path, operator, value = match.groups()
        if path not in known:
            raise bad_request(f"field label not supported: {path}")
        terms.append((path, operator != "!=", value))
    return tuple(terms)


def field_value(obj: Object, path: str) -> str:
    """A field as a field selector sees it: a text, empty when it is missing."""
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
