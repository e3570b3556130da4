"""Paths into JSON objects, such as `spec.replicatedJobs[*].template`; `[*]`: each item of a list or value of a map."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from admission.model.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.kinds.base import Object

EACH: Final = "*"
_SEGMENT: Final = re.compile(r"([A-Za-z0-9_-]+)(\[\*\])?")

Path: TypeAlias = tuple[str, ...]


class FoundValue(NamedTuple):
    """A value and the keys that lead to it."""

    keys: tuple[str, ...]
    value: Any

    @property
    def text(self) -> str:
        """Path for messages, for example `spec.replicatedJobs[0].template`."""
        parts = (f"[{key}]" if key.isdecimal() else f".{key}" for key in self.keys)
        return "".join(parts).lstrip(".")


def parse(text: Any) -> Path:
    """Return the path that the text denotes, for example `("spec", "jobs", "*")` for `spec.jobs[*]`.

    Raises ValueError, with a message for users, for anything else.
    """
    keys: list[str] = []
    for part in text.split(".") if isinstance(text, str) else [""]:
        match = _SEGMENT.fullmatch(part)
        if match is None:
            raise ValueError(f'"{text}" is no path; write names with dots, and [*] for each item: spec.groups[*].name')
        keys.append(match[1])
        if match[2]:
            keys.append(EACH)
    return tuple(keys)


def find(obj: Any, path: Path, *, before: tuple[str, ...] = ()) -> Iterator[FoundValue]:
    """Yield all values at a path that are not null. `before`: the keys that lead to `obj`."""
    if obj is None:
        return
    if not path:
        yield FoundValue(before, obj)
        return
    key, rest = path[0], path[1:]
    if key == EACH:
        if isinstance(obj, list):
            for index, item in enumerate(obj):
                yield from find(item, rest, before=(*before, str(index)))
        elif isinstance(obj, dict):
            for name, item in obj.items():
                yield from find(item, rest, before=(*before, name))
    elif isinstance(obj, dict):
        yield from find(obj.get(key), rest, before=(*before, key))


def value(obj: Any, path: Path) -> Any:
    """Return the first value at a path; None if there is none."""
    return next((found.value for found in find(obj, path)), None)


def at(obj: Any, keys: tuple[str, ...]) -> Any:
    """Return the value that the keys lead to, an index of a list as its digits; None if there is none."""
    for key in keys:
        if isinstance(obj, dict):
            obj = obj.get(key)
        elif isinstance(obj, list) and key.isdecimal() and int(key) < len(obj):
            obj = obj[int(key)]
        else:
            return None
    return obj


def number(obj: Object, path: Path, default: int) -> int:
    """Return the whole number at a path; the default if there is none."""
    found = value(obj, path)
    return found if isinstance(found, int) and not isinstance(found, bool) else default


def count(obj: Any, path: Path, default: int, *, before: tuple[str, ...] = ()) -> int:
    """Return the count at a path, which a user has written; the default if there is none.

    `before`: the keys that lead to `obj`. Raises Misconfigured for a value that is no whole number, or negative.
    """
    found = next(find(obj, path, before=before), None)
    if found is None:
        return default
    is_number = isinstance(found.value, int | float) and not isinstance(found.value, bool)
    if not is_number or found.value < 0 or not isinstance(found.value, int):
        actual = f", but is {found.value}" if is_number else ""
        raise Misconfigured(f"{found.text}: must be a whole number that is not negative{actual}")
    return found.value


def number_fault(obj: Any, path: Path, *, before: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yield (field path, message) of the fault that `count` raises."""
    try:
        count(obj, path, 0, before=before)
    except Misconfigured as error:
        where, _, message = str(error).partition(": ")
        yield where, message
