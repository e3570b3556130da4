"""Merge patches (RFC 7386), JSON patches (RFC 6902), and the differences between two documents.

Unchanged parts of the result of a patch are shared with the original.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from admission.apimachinery.errors import PatchFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_OPERATIONS = 10_000
_MAX_COPIED = 3 * 2**20
"""Bytes that `copy` operations may copy in total: repeated copies would otherwise double an object each time."""
_MAX_SHIFTED = 20_000_000
"""List items that may be shifted in total by insertions and removals: their time grows with the square otherwise."""


def merge_patch(target: Any, patch: Any) -> Any:
    """Return `target` after a merge patch (RFC 7386)."""
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
    """Return `target` after a JSON patch (RFC 6902). Raises PatchFailed.

    As in Kubernetes, `replace` of a missing key adds it. The time is linear in the sizes of target and operations.
    """
    if type(operations) is not list or len(operations) > _MAX_OPERATIONS:
        raise PatchFailed(f"a JSON patch is a list of at most {_MAX_OPERATIONS} operations")
    patched = _Patched(target)
    for number, operation in enumerate(operations):
        try:
            patched.apply(operation)
        except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
            raise PatchFailed(f"operation {number} of the JSON patch cannot be done: {_describe(operation)}") from error
    return patched.value


def _describe(operation: Any) -> str:
    if type(operation) is not dict or not all(type(operation.get(key)) is str for key in ("op", "path")):
        return "it must be an object with op and path"
    return f'{operation["op"]} at "{operation["path"]}"'[:200]


class _Patched:
    """A document to which operations are applied. Containers are copied on their first change."""

    def __init__(self, value: Any) -> None:
        self._root = {"": value}
        self._own: dict[int, Any] = {id(self._root): self._root}
        """Containers that were copied already, by `id`: they may be changed in place."""
        self._copied = 0
        self._shifted = 0

    @property
    def value(self) -> Any:
        """The current document."""
        return self._root[""]

    def apply(self, operation: dict[str, Any]) -> None:
        """Apply one operation. If it fails, the document must not be used any more."""
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
        """Return the container of the value at a path; it and all containers above are copies that may be changed."""
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
    """Parse a JSON pointer into keys and indices; the first is an empty one, for the document itself."""
    if text and not text.startswith("/"):
        raise ValueError(text)
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")]


def _index(part: str) -> int:
    if not (part.isascii() and part.isdecimal()):
        raise ValueError(part)
    return int(part)


def differences(before: Any, after: Any, path: str = "") -> Iterator[dict[str, Any]]:
    """Yield the differences between two documents.

    Each has `op` (add, remove or replace), `path` such as `spec.resourceGroups[0].flavors[1].name`, `before` and
    `after`. Lists of different lengths are replaced as a whole.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted({**before, **after}):
            inner = f"{path}.{name}" if path else name
            if name not in after:
                yield {"op": "remove", "path": inner, "before": before[name]}
            elif name not in before:
                yield {"op": "add", "path": inner, "after": after[name]}
            else:
                yield from differences(before[name], after[name], inner)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif before != after:
        yield {"op": "replace", "path": path, "before": before, "after": after}
