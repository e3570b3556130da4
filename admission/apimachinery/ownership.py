"""Sets of fields in the form of `metadata.managedFields` (FieldsV1), and objects seen through them.

A field is a path: `f:name` for a key of an object, `k:{...}` for the item of a list with that key. A list without
keys is one value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

Path: TypeAlias = tuple[str, ...]
Fields: TypeAlias = "dict[str, Any]"
Entry: TypeAlias = "dict[str, Any]"
"""One of `metadata.managedFields`: which fields a manager has set, by which operation."""

_OF_THE_SERVER = {"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields",
                  "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generateName"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Writer:
    """The writer of a request: field manager, apiVersion of its fields, time of the write (RFC 3339)."""

    manager: str
    api_version: str
    now: str

    def entry(self, operation: str, fields: AbstractSet[Path]) -> Entry:
        """That these fields are this manager's."""
        return {
            "manager": self.manager,
            "operation": operation,
            "apiVersion": self.api_version,
            "time": self.now,
            "fieldsType": "FieldsV1",
            "fieldsV1": nested(fields),
        }

    def wrote(self, entry: Entry, operation: str) -> bool:
        """Whether the entry is this manager's own."""
        return (entry["manager"], entry["operation"]) == (self.manager, operation)


def updated(
    entries: Iterable[Entry], before: Mapping[Path, Any], after: Mapping[Path, Any], writer: Writer
) -> list[Entry]:
    """The entries after an ordinary write that made one set of values into another: what changed is the writer's."""
    changed = {path for path, value in after.items() if path not in before or before[path] != value}
    gone = before.keys() - after.keys()
    if not changed and not gone:
        return [*entries]
    mine: set[Path] = set()
    kept = []
    for entry in entries:
        left = paths(entry["fieldsV1"]) - changed - gone
        if writer.wrote(entry, "Update"):
            mine = left
        elif left:
            kept.append({**entry, "fieldsV1": nested(left)})
    return [*kept, writer.entry("Update", mine | changed)] if mine | changed else kept


def conflicts(
    entries: Iterable[Entry], wanted: AbstractSet[Path], writer: Writer, *, differs: Callable[[Path], bool]
) -> list[tuple[Path, Entry]]:
    """The fields that an apply would change although somebody else has set them, and who."""
    return [
        (path, entry)
        for entry in entries
        if not writer.wrote(entry, "Apply")
        for path in sorted(paths(entry["fieldsV1"]) & wanted)
        if differs(path)
    ]


def conflict_causes(found: Iterable[tuple[Path, Entry]]) -> list[dict[str, str]]:
    """The conflicts as causes of a Status, in the API server's words."""
    causes = []
    for path, entry in found:
        using = f" using {entry['apiVersion']}" if entry["operation"] == "Update" else ""
        text = f'conflict with "{entry["manager"]}"{using}'
        causes.append({"reason": "FieldManagerConflict", "message": text, "field": shown(path)})
    return causes


def conflict_message(causes: list[dict[str, str]]) -> str:
    """The message of a conflict `Status`, as kubectl prints it."""
    listed = ", ".join(f"{cause['message']}: {cause['field']}" for cause in causes)
    return f"Apply failed with {len(causes)} conflict{'s' if len(causes) > 1 else ''}: {listed}"


def applied(
    entries: Iterable[Entry], wanted: AbstractSet[Path], taken: AbstractSet[Path], writer: Writer
) -> tuple[list[Entry], list[Path]]:
    """The entries after an apply of `wanted` that takes `taken` from others; the fields that nobody wants any more.

    The latter are those that this manager applied before and does not now, deeper ones first.
    """
    entry = writer.entry("Apply", wanted)
    kept, former = [], set[Path]()
    for other in entries:
        if writer.wrote(other, "Apply"):
            former = paths(other["fieldsV1"])
            if other["fieldsV1"] == entry["fieldsV1"]:
                entry["time"] = other["time"]
        elif left := paths(other["fieldsV1"]) - taken:
            kept.append({**other, "fieldsV1": nested(left)})
    needed = {
        path[:length]
        for path in set(wanted).union(*(paths(other["fieldsV1"]) for other in kept))
        for length in range(1, len(path) + 1)
    }
    return [*kept, entry], sorted(former - needed, key=len, reverse=True)


def can_be_owned(path: Path) -> bool:
    """Whether a field can have owners; apiVersion, kind and the identity in metadata cannot."""
    return path not in (("f:apiVersion",), ("f:kind",)) and not (
        len(path) > 1 and path[0] == "f:metadata" and path[1][2:] in _OF_THE_SERVER
    )


def nested(paths: Iterable[Path]) -> Fields:
    """A set of fields in the form of managedFields."""
    root: Fields = {}
    for path in sorted(paths):
        level = root
        for part in path:
            level = level.setdefault(part, {})
    return root


def paths(fields: Fields) -> set[Path]:
    """The fields of a set in that form."""
    return set(_ends(fields, ()))


def _ends(fields: Fields, path: Path) -> Iterator[Path]:
    if not fields and path:
        yield path
    for key, inner in fields.items():
        yield from _ends(inner, (*path, key))


def find(obj: Any, path: Path) -> Any:
    """What an object has in a field; None if it has it not."""
    for part in path:
        obj = _step(obj, part)
    return obj


def _step(obj: Any, part: str) -> Any:
    if part.startswith("k:"):
        if type(obj) is not list:
            return None
        ((name, value),) = orjson.loads(part[2:]).items()
        return next((item for item in obj if item.get(name) == value), None)
    return obj.get(part[2:]) if type(obj) is dict else None


def without(obj: Any, path: Path) -> Any:
    """A copy of the object without a field, nor an object or list that becomes empty; a list's item goes with its key.

    As upstream's `sigs.k8s.io/structured-merge-diff` prunes: a Deployment whose new strategy has no `rollingUpdate` may
    not keep an empty one.
    """
    part, rest = path[0], path[1:]
    if part.startswith("k:"):
        ((name, value),) = orjson.loads(part[2:]).items()
        if rest == (f"f:{name}",):
            return [item for item in obj or () if item.get(name) != value]
        return [without(item, rest) if item.get(name) == value else item for item in obj or ()]
    if type(obj) is not dict or part[2:] not in obj:
        return obj
    name = part[2:]
    kept = without(obj[name], rest) if rest else None
    return {key: kept if key == name else value for key, value in obj.items() if key != name or kept}


def shown(path: Path) -> str:
    """A field as people write it: `.spec.list[name="x"].field`."""
    text = ""
    for part in path:
        if part.startswith("k:"):
            ((name, value),) = orjson.loads(part[2:]).items()
            text += f'[{name}="{value}"]'
        else:
            text += f".{part[2:]}"
    return text
