"""Label and field selectors as they stand in a query, parsed once and then asked of many objects."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from admission.apimachinery.errors import InvalidSelector
from admission.model.labels import requirement_holds
from admission.model.names import is_label_value, is_qualified_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from admission.model.labels import Operator

_REQUIREMENT = re.compile(
    r"\s*(?:(?P<not>!)\s*)?(?P<key>[^\s=!,()<>]+)\s*"
    r"(?:(?P<op>==|=|!=|\bin\b|\bnotin\b|<|>)\s*(?:\((?P<set>[^)]*)\)|(?P<value>[^\s,]*)))?\s*(?:,|$)"
)
_TERM = re.compile(r"(?P<path>[^=!]+)(?P<op>!=|==|=)(?P<value>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on labels. A label that is missing is not In, and is NotIn."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels meets it."""
        return requirement_holds(self.key, self.operator, self.values, labels)


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One condition on a field: equal to a text, or not."""

    path: str
    equal: bool
    value: str


@lru_cache(maxsize=1024)
def parse_label_selector(text: str) -> tuple[Requirement, ...]:
    """The query parameter `labelSelector`; all requirements must hold. Raises InvalidSelector."""
    requirements = []
    position = 0
    text = " ".join(text.split())  # two patterns of spaces in a row take time that grows with the square of many
    while position < len(text.rstrip()):
        match = _REQUIREMENT.match(text, position)
        if match is None or match.end() == position:
            raise InvalidSelector(f'unable to parse requirement: found "{text[position:]}"')
        requirements.append(_requirement(match))
        position = match.end()
    return tuple(requirements)


def parse_field_selector(text: str, supported: Collection[str]) -> tuple[FieldTerm, ...]:
    """The query parameter `fieldSelector`, which may name `supported` fields only. Raises InvalidSelector."""
    terms = []
    for part in re.split(r"(?<!\\),", text) if text.strip() else ():
        match = _TERM.fullmatch(part)
        if match is None:
            raise InvalidSelector(f"invalid selector: '{text}'; can't understand '{part}'")
        path = match["path"].strip()
        if path not in supported:
            listed = ", ".join(sorted(supported))
            raise InvalidSelector(f"field label not supported: {path}; these are: {listed}")
        value = re.sub(r"\\([\\,=])", r"\1", match["value"].strip())
        terms.append(FieldTerm(path, match["op"] != "!=", value))
    return tuple(terms)


def _requirement(match: re.Match[str]) -> Requirement:
    key, operator = match["key"], match["op"]
    if not is_qualified_name(key):
        raise InvalidSelector(f'unable to parse requirement: "{key}" is no label key such as team or example.com/team')
    if operator is None:
        return Requirement(key, "DoesNotExist" if match["not"] else "Exists")
    in_set = operator in ("in", "notin")
    if match["not"] or in_set != (match["set"] is not None) or operator in "<>":
        raise InvalidSelector(f'unable to parse requirement: found "{match[0]}"')
    values = [part.strip() for part in match["set"].split(",")] if in_set else [match["value"]]
    for value in values:
        if not is_label_value(value):
            raise InvalidSelector(f'unable to parse requirement: "{value}" is no label value, for the key {key}')
    return Requirement(key, "In" if operator in ("=", "==", "in") else "NotIn", frozenset(values))
