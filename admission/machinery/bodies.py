"""What is to be seen in a request's body beyond its value: fields that were written twice."""

from __future__ import annotations

import json
from typing import Any

import orjson


def duplicate_fields(raw: bytes, value: Any) -> list[str]:
    """The paths of fields that occur twice in one object of the JSON text `raw`, which says `value`."""
    # A doubled field leaves quotes behind that the decoded value has not: cheap to see for the many bodies without.
    if raw.count(b'"') == orjson.dumps(value).count(b'"'):
        return []
    found: list[str] = []
    _collect(json.loads(raw, object_pairs_hook=_Pairs), "", found)
    return found


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with all that was written in it."""


def _collect(value: Any, path: str, found: list[str]) -> None:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, item in value:
            here = f"{path}.{key}" if path else key
            if key in seen:
                found.append(here)
            seen.add(key)
            _collect(item, here, found)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _collect(item, f"{path}[{index}]", found)
