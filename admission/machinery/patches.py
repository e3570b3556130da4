"""Merge patches and JSON patches. What a patch does not touch is shared with the original."""

from __future__ import annotations

from typing import Any

import orjson

from admission.machinery.errors import PatchFailed

_MAX_OPERATIONS = 10_000
_MAX_COPIED = 3 * 2**20
"""Bytes; a few operations that copy what they have just copied would make an object of any size."""


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if type(patch) is not dict:
        return patch
    result = dict(target) if type(target) is dict else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def json_patch(target: Any, operations: Any) -> Any:
    """RFC 6902, as Kubernetes applies it: `replace` of a missing key adds it. Raises PatchFailed."""
    if type(operations) is not list or len(operations) > _MAX_OPERATIONS:
        raise PatchFailed(f"a JSON patch is a list of at most {_MAX_OPERATIONS} operations")
    copied = 0
    for number, operation in enumerate(operations):
        try:
            if operation["op"] == "copy":
                copied += len(orjson.dumps(_find(target, _pointer(operation["from"]))))
            if copied > _MAX_COPIED:
                raise PatchFailed(f"the JSON patch copies more than {_MAX_COPIED // 2**20} MiB")
            target = _apply(target, operation)
        except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
            raise PatchFailed(f"operation {number} of the JSON patch cannot be done: {_said(operation)}") from error
    return target


def _said(operation: Any) -> str:
    if type(operation) is not dict or not all(type(operation.get(key)) is str for key in ("op", "path")):
        return "it must be an object with op and path"
    return f'{operation["op"]} at "{operation["path"]}"'[:200]


def _apply(target: Any, operation: dict[str, Any]) -> Any:
    path = _pointer(operation["path"])
    match operation["op"]:
        case "add":
            return _put(target, path, operation["value"], insert=True)
        case "replace":
            return _put(target, path, operation["value"], insert=False)
        case "remove":
            return _drop(target, path)
        case "test":
            if _find(target, path) != operation.get("value"):
                raise ValueError(operation["path"])
            return target
        case "copy":
            return _put(target, path, _find(target, _pointer(operation["from"])), insert=True)
        case "move":
            source = _pointer(operation["from"])
            return _put(_drop(target, source), path, _find(target, source), insert=True)
        case unknown:
            raise ValueError(unknown)


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise ValueError(text)
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _index(part: str) -> int:
    if not (part.isascii() and part.isdecimal()):
        raise ValueError(part)
    return int(part)


def _find(target: Any, path: list[str]) -> Any:
    for part in path:
        target = target[_index(part)] if type(target) is list else target[part]
    return target


def _put(target: Any, path: list[str], value: Any, *, insert: bool) -> Any:
    """A copy of the target with the value at the path; only the containers on the path are copied."""
    if not path:
        return value
    part, rest = path[0], path[1:]
    if type(target) is list:
        copy = list(target)
        if rest:
            copy[_index(part)] = _put(copy[_index(part)], rest, value, insert=insert)
        elif part == "-" and insert:
            copy.append(value)
        elif insert and _index(part) <= len(copy):
            copy.insert(_index(part), value)
        else:
            copy[_index(part)] = value
        return copy
    fields = {**target}
    fields[part] = _put(fields[part], rest, value, insert=insert) if rest else value
    return fields


def _drop(target: Any, path: list[str]) -> Any:
    part, rest = path[0], path[1:]
    if type(target) is list:
        copy = list(target)
        if rest:
            copy[_index(part)] = _drop(copy[_index(part)], rest)
        else:
            del copy[_index(part)]
        return copy
    fields = {**target}
    if rest:
        fields[part] = _drop(fields[part], rest)
    else:
        del fields[part]
    return fields
