"""Merge patches and JSON patches. What a patch does not touch is shared with the original."""

from __future__ import annotations

from typing import Any

import orjson

from admission.apimachinery.errors import PatchFailed

_MAX_OPERATIONS = 10_000
_MAX_COPIED = 3 * 2**20
"""Bytes; a few operations that copy what they have just copied would make an object of any size."""
_MAX_SHIFTED = 20_000_000
"""Items of lists that make room for an insertion, or close a gap, in all operations together."""


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
    """RFC 6902, as Kubernetes applies it: `replace` of a missing key adds it. Raises PatchFailed.

    The time is linear in the sizes of target and operations.
    """
    if type(operations) is not list or len(operations) > _MAX_OPERATIONS:
        raise PatchFailed(f"a JSON patch is a list of at most {_MAX_OPERATIONS} operations")
    patched = _Patched(target)
    for number, operation in enumerate(operations):
        try:
            patched.apply(operation)
        except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
            raise PatchFailed(f"operation {number} of the JSON patch cannot be done: {_said(operation)}") from error
    return patched.value


def _said(operation: Any) -> str:
    if type(operation) is not dict or not all(type(operation.get(key)) is str for key in ("op", "path")):
        return "it must be an object with op and path"
    return f'{operation["op"]} at "{operation["path"]}"'[:200]


class _Patched:
    """A document under a JSON patch. A container is copied when it is first changed, and only then."""

    def __init__(self, value: Any) -> None:
        self._root = {"": value}
        self._own: dict[int, Any] = {id(self._root): self._root}
        """The copies, which are in the document once and nowhere else, by identity."""
        self._copied = 0
        self._shifted = 0

    @property
    def value(self) -> Any:
        """The document as it is now."""
        return self._root[""]

    def apply(self, operation: dict[str, Any]) -> None:
        """Do one operation; the document is of no use after one that fails."""
        path = _pointer(operation["path"])
        match operation["op"]:
            case "add":
                self._put(path, operation["value"], insert=True)
            case "replace":
                self._put(path, operation["value"], insert=False)
            case "remove":
                self._drop(path)
            case "test":
                if self._find(path) != operation.get("value"):
                    raise ValueError(operation["path"])
            case "copy":
                self._put(path, self._copy(_pointer(operation["from"])), insert=True)
            case "move":
                source = _pointer(operation["from"])
                if len(path) > len(source) and path[: len(source)] == source:
                    raise ValueError(operation["path"])  # a value cannot be moved into itself
                self._put(path, self._drop(source), insert=True)
            case unknown:
                raise ValueError(unknown)

    def _find(self, path: list[str]) -> Any:
        found: Any = self._root
        for part in path:
            found = _item(found, part)
        return found

    def _copy(self, path: list[str]) -> Any:
        text = orjson.dumps(self._find(path))
        self._copied += len(text)
        if self._copied > _MAX_COPIED:
            raise PatchFailed(f"the JSON patch copies more than {_MAX_COPIED // 2**20} MiB")
        return orjson.loads(text)

    def _container(self, path: list[str]) -> Any:
        """What holds the value at a path, as our own copy, and so everything above it."""
        holder: Any = self._root
        for part in path[:-1]:
            inner = _item(holder, part)
            if id(inner) not in self._own:
                inner = {**inner} if type(inner) is not list else list(inner)
                self._own[id(inner)] = inner
                holder[part if type(holder) is dict else _index(part)] = inner
            holder = inner
        return holder

    def _put(self, path: list[str], value: Any, *, insert: bool) -> None:
        holder, part = self._container(path), path[-1]
        if type(holder) is dict:
            holder[part] = value
        elif part == "-" and insert:
            holder.append(value)
        elif insert and _index(part) <= len(holder):
            self._shift(holder, _index(part))
            holder.insert(_index(part), value)
        else:
            holder[_index(part)] = value

    def _drop(self, path: list[str]) -> Any:
        if len(path) == 1:
            raise ValueError("the whole document cannot be removed")
        holder, part = self._container(path), path[-1]
        if type(holder) is dict:
            return holder.pop(part)
        self._shift(holder, _index(part))
        return holder.pop(_index(part))

    def _shift(self, holder: list[Any], index: int) -> None:
        self._shifted += max(0, len(holder) - index)
        if self._shifted > _MAX_SHIFTED:
            raise PatchFailed("the JSON patch moves too many items of lists: replace the lists as a whole")


def _item(holder: Any, part: str) -> Any:
    return holder[_index(part)] if type(holder) is list else holder[part]


def _pointer(text: str) -> list[str]:
    """The keys and indices of a JSON pointer, after the empty one of the document itself."""
    if text and not text.startswith("/"):
        raise ValueError(text)
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")]


def _index(part: str) -> int:
    if not (part.isascii() and part.isdecimal()):
        raise ValueError(part)
    return int(part)
