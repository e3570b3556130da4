"""Detection of duplicate fields in the JSON text of a request body, for `fieldValidation`."""

from __future__ import annotations

import json
from typing import Any

import orjson

_MOST = 20
"""Most duplicate fields that are reported."""


def duplicate_fields(raw: bytes, value: Any) -> list[str]:
    """Return the paths of fields that occur twice in one object of the JSON text `raw`; `value` is the parsed text.

    Raises RecursionError for a deeply nested value that is overwritten by a later field of the same name.
    """
    # A duplicate field has quotes that the parsed value has not: a cheap test, which most bodies pass.
    if raw.count(b'"') == orjson.dumps(value).count(b'"'):
        return []
    found: list[str] = []
    _collect(json.loads(raw, object_pairs_hook=_Pairs, parse_int=_number, parse_float=_number), "", found)
    return found


def _number(text: str) -> None:
    """Ignore a number: its value does not matter, and parsing very many digits takes long."""


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as a list of all its fields, including duplicate ones."""


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
