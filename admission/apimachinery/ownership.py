"""Field ownership for server-side apply: `metadata.managedFields`, its sets of fields (FieldsV1), conflicts.

A field is a path of parts: `f:name` for a key of an object, `k:{...}` for the item of a list with that key, such as
`("f:spec", "f:containers", 'k:{"name":"main"}', "f:image")`. A list without keys is one value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

Path: TypeAlias = tuple[str, ...]
"""A field; see the module."""
Fields: TypeAlias = "dict[str, Any]"
"""A set of fields in the form of FieldsV1: `{"f:spec": {"f:replicas": {}}}`."""
Entry: TypeAlias = "dict[str, Any]"
"""An entry of `metadata.managedFields`: the fields that a manager has set by one operation."""

_OF_THE_SERVER = {"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields",
                  "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generateName"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FieldWriter:
    """The writer of a request: field manager, apiVersion of its fields, time of the write (RFC 3339)."""

    manager: str
    api_version: str
    now: str

    def entry(self, operation: str, fields: AbstractSet[Path]) -> Entry:
        """Return an entry that makes this manager the owner of fields."""
        return {
            "manager": self.manager,
            "operation": operation,
            "apiVersion": self.api_version,
            "time": self.now,
            "fieldsType": "FieldsV1",
            "fieldsV1": to_fields_v1(fields),
        }

    def wrote(self, entry: Entry, operation: str) -> bool:
        """Return whether the entry is this manager's, for that operation."""
        return (entry["manager"], entry["operation"]) == (self.manager, operation)


def updated(
    entries: Iterable[Entry], before: Mapping[Path, Any], after: Mapping[Path, Any], writer: FieldWriter
) -> list[Entry]:
    """Return the entries after an update (not an apply) of the values `before` to `after`.

    The writer becomes the owner of all changed fields; removed fields lose their owners.
    """
    changed = {path for path, value in after.items() if path not in before or before[path] != value}
    removed = before.keys() - after.keys()
    if not changed and not removed:
        return [*entries]
    mine: set[Path] = set()
    kept = []
    for entry in entries:
        left = from_fields_v1(entry["fieldsV1"]) - changed - removed
        if writer.wrote(entry, "Update"):
            mine = left
        elif left:
            kept.append({**entry, "fieldsV1": to_fields_v1(left)})
    return [*kept, writer.entry("Update", mine | changed)] if mine | changed else kept


def conflicts(
    entries: Iterable[Entry], wanted: AbstractSet[Path], writer: FieldWriter, *, differs: Callable[[Path], bool]
) -> list[tuple[Path, Entry]]:
    """Return the fields that an apply of `wanted` would change although others own them, with the owner's entry.

    `differs`: whether the apply would change the value of a field.
    """
    return [
        (path, entry)
        for entry in entries
        if not writer.wrote(entry, "Apply")
        for path in sorted(from_fields_v1(entry["fieldsV1"]) & wanted)
        if differs(path)
    ]


def conflict_causes(found: Iterable[tuple[Path, Entry]]) -> list[dict[str, str]]:
    """Return the conflicts as causes of a Status, with the messages of kube-apiserver."""
    causes = []
    for path, entry in found:
        using = f" using {entry['apiVersion']}" if entry["operation"] == "Update" else ""
        text = f'conflict with "{entry["manager"]}"{using}'
        causes.append({"reason": "FieldManagerConflict", "message": text, "field": format_path(path)})
    return causes


def conflict_message(causes: list[dict[str, str]]) -> str:
    """Return the message of a Status for conflicts, as that of kube-apiserver."""
    listed = ", ".join(f"{cause['message']}: {cause['field']}" for cause in causes)
    return f"Apply failed with {len(causes)} conflict{'s' if len(causes) > 1 else ''}: {listed}"


def applied(
    entries: Iterable[Entry], wanted: AbstractSet[Path], taken: AbstractSet[Path], writer: FieldWriter
) -> tuple[list[Entry], list[Path]]:
    """Return the entries after an apply of `wanted` that takes the fields `taken` from others, and fields to remove.

    To be removed are the fields that this manager applied before, does not apply now, and that have no other owner;
    deeper ones come first.
    """
    entry = writer.entry("Apply", wanted)
    kept, former = [], set[Path]()
    for other in entries:
        if writer.wrote(other, "Apply"):
            former = from_fields_v1(other["fieldsV1"])
            if other["fieldsV1"] == entry["fieldsV1"]:
                entry["time"] = other["time"]
        elif left := from_fields_v1(other["fieldsV1"]) - taken:
            kept.append({**other, "fieldsV1": to_fields_v1(left)})
    needed = {
        path[:length]
        for path in set(wanted).union(*(from_fields_v1(other["fieldsV1"]) for other in kept))
        for length in range(1, len(path) + 1)
    }
    return [*kept, entry], sorted(former - needed, key=len, reverse=True)


def can_be_owned(path: Path) -> bool:
    """Return whether a field can have owners: apiVersion, kind and the server's fields in metadata cannot."""
    return path not in (("f:apiVersion",), ("f:kind",)) and not (
        len(path) > 1 and path[0] == "f:metadata" and path[1][2:] in _OF_THE_SERVER
    )


def to_fields_v1(paths: Iterable[Path]) -> Fields:
    """Convert a set of fields to FieldsV1."""
    root: Fields = {}
    for path in sorted(paths):
        level = root
        for part in path:
            level = level.setdefault(part, {})
    return root


def from_fields_v1(fields: Fields) -> set[Path]:
    """Convert FieldsV1 to a set of fields."""
    return set(_ends(fields, ()))


def _ends(fields: Fields, path: Path) -> Iterator[Path]:
    if not fields and path:
        yield path
    for key, inner in fields.items():
        yield from _ends(inner, (*path, key))


def find(obj: Any, path: Path) -> Any:
    """Return the value of a field in an object; None if it is missing."""
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
    """Return a copy of an object without a field, and without objects and lists that become empty by that.

    The item of a list is removed with its key field. `sigs.k8s.io/structured-merge-diff` prunes in the same way: a
    Deployment whose new strategy has no `rollingUpdate` must not keep an empty one.
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


def format_path(path: Path) -> str:
    """Format a field for people: `.spec.list[name="x"].field`."""
    text = ""
    for part in path:
        if part.startswith("k:"):
            ((name, value),) = orjson.loads(part[2:]).items()
            text += f'[{name}="{value}"]'
        else:
            text += f".{part[2:]}"
    return text
