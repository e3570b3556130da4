"""Label and field selectors: parsing of query parameters, and matching."""

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
    """One requirement of a label selector. A missing label does not satisfy In, and satisfies NotIn."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Return whether an object with these labels satisfies it."""
        return requirement_holds(self.key, self.operator, self.values, labels)


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One term of a field selector: the field equals a value, or does not."""

    path: str
    equal: bool
    value: str


@lru_cache(maxsize=1024)
def parse_label_selector(text: str) -> tuple[Requirement, ...]:
    """Parse the query parameter `labelSelector`; all requirements must hold. Raises InvalidSelector."""
    requirements = []
    position = 0
    text = " ".join(text.split())  # long runs of spaces would take the regular expression quadratic time
    while position < len(text.rstrip()):
        match = _REQUIREMENT.match(text, position)
        if match is None or match.end() == position:
            raise InvalidSelector(f'unable to parse requirement: found "{text[position:]}"')
        requirements.append(_requirement(match))
        position = match.end()
    return tuple(requirements)


def parse_field_selector(text: str, supported: Collection[str]) -> tuple[FieldTerm, ...]:
    """Parse the query parameter `fieldSelector`, which may name `supported` fields only. Raises InvalidSelector."""
    terms = []
    for part in re.split(r"(?<!\\),", text) if text.strip() else ():
        match = _TERM.fullmatch(part)
        if match is None:
            raise InvalidSelector(f"invalid selector: '{text}'; can't understand '{part}'")
        path = match["path"].strip()
        if path not in supported:
            listed = ", ".join(sorted(supported))
            raise InvalidSelector(f"field label not supported: {path}; supported are {listed}")
        value = re.sub(r"\\([\\,=])", r"\1", match["value"].strip())
        terms.append(FieldTerm(path, match["op"] != "!=", value))
    return tuple(terms)


def _requirement(match: re.Match[str]) -> Requirement:
    key, operator = match["key"], match["op"]
    if not is_qualified_name(key):
        raise InvalidSelector(
            f'unable to parse requirement: "{key}" is not a label key such as team or example.com/team'
        )
    if operator is None:
        return Requirement(key, "DoesNotExist" if match["not"] else "Exists")
    in_set = operator in ("in", "notin")
    if match["not"] or in_set != (match["set"] is not None) or operator in "<>":
        raise InvalidSelector(f'unable to parse requirement: found "{match[0]}"')
    values = [part.strip() for part in match["set"].split(",")] if in_set else [match["value"]]
    for value in values:
        if not is_label_value(value):
            raise InvalidSelector(f'unable to parse requirement: "{value}" is not a label value, for the key {key}')
    return Requirement(key, "In" if operator in ("=", "==", "in") else "NotIn", frozenset(values))
