"""Duplicate fields in the JSON text of a request body, for field validation."""

from __future__ import annotations

import json
from typing import Any

import orjson

_MOST = 20
"""Duplicate fields reported at most."""


def duplicate_fields(raw: bytes, value: Any) -> list[str]:
    """The paths of the first fields that occur twice in one object of the JSON text `raw`, which says `value`.

    Raises RecursionError for values that are nested deep and hidden by a later field of the same name.
    """
    # A doubled field leaves quotes behind that the decoded value has not: cheap to see for the many bodies without.
    if raw.count(b'"') == orjson.dumps(value).count(b'"'):
        return []
    found: list[str] = []
    _collect(json.loads(raw, object_pairs_hook=_Pairs, parse_int=_number, parse_float=_number), "", found)
    return found


def _number(text: str) -> None:
    """Nothing: the value of a number does not matter, and one of many digits takes long to compute."""


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with all that was written in it."""


def _collect(value: Any, path: str, found: list[str]) -> None:
    if len(found) >= _MOST:
        return
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, item in value:
            here = f"{path}.{key}" if path else key
            if key in seen and len(found) < _MOST:
                found.append(here)
            seen.add(key)
            _collect(item, here, found)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _collect(item, f"{path}[{index}]", found)
