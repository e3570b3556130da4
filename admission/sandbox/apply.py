"""Server-side apply: who owns which field, and what follows when somebody applies less, more or something else.

Ownership is kept only for objects that were applied at least once; the writer of an object that nobody applied
is not remembered, so that ordinary writes stay cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from admission.sandbox.decoding import complete
from admission.sandbox.errors import ApiError, bad_request
from admission.sandbox.patch import merge_key, strategic_merge
from admission.sandbox.schema import DecodeError, ListOf, Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.sandbox.objects import Object
    from admission.sandbox.resources import Resource

# A field: `f:name` for a key of an object, `k:{...}` for the item of a list with that key.
Path = tuple[str, ...]

_NOT_OWNED = {("f:apiVersion",), ("f:kind",)}
_SYSTEM = ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields",
           "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generateName")  # fmt: skip


def apply_patch(
    resource: Resource, live: Object | None, body: Object, manager: str, now: str, *, force: bool
) -> Object:
    """The object after `manager` applied `body`. Raises ApiError (400, 409, 500)."""
    config = _config(resource, body)
    struct = resource.schema.struct()
    wanted = set(_leaves(config, struct))
    entry: Object = {"manager": manager, "operation": "Apply", "apiVersion": resource.api_version, "time": now}
    entry |= {"fieldsType": "FieldsV1", "fieldsV1": _nested(wanted)}
    if live is None:
        new = complete(resource, resource.schema.decode(config, None, []))
        return {**new, "metadata": {**new["metadata"], "managedFields": [entry]}}
    others, own = _entries(live, manager)
    _check_conflicts(config, live, others, wanted, force=force)
    new = strategic_merge(live, config, struct)
    others = [
        {
            **other,
            "fieldsV1": _nested(
                _paths(other["fieldsV1"]) - (wanted if _differs(config, live, wanted) and force else set())
            ),
        }
        for other in others
    ]
    kept = wanted.union(*(_paths(other["fieldsV1"]) for other in others))
    for path in sorted((_paths(own["fieldsV1"]) if own else set()) - kept, key=len, reverse=True):
        new = _without(new, path)
    if own is not None and own["fieldsV1"] == entry["fieldsV1"]:
        entry["time"] = own["time"]
    new["metadata"] = {**new["metadata"], "managedFields": [*(other for other in others if other["fieldsV1"]), entry]}
    resource.schema.decode(new, live, [])
    return complete(resource, new)


def _config(resource: Resource, body: Object) -> Object:
    """What was sent, decoded; strict, as apply is."""
    if not body.get("apiVersion") or not body.get("kind"):
        raise bad_request(f"invalid object type: {body.get('apiVersion', '/')}, Kind={body.get('kind', '')}")
    if body["metadata"].get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    if (body["apiVersion"], body["kind"]) != (resource.api_version, resource.kind):
        raise bad_request(f"the object's type {body['apiVersion']}, Kind={body['kind']} does not match the URL")
    config: Object = orjson.loads(orjson.dumps(body))
    unknown: list[str] = []
    try:
        resource.schema.parse(config, unknown)
    except DecodeError as error:
        raise ApiError(500, "", f"failed to create typed patch object: {error}") from error
    if unknown:
        raise ApiError(500, "", f"failed to create typed patch object: .{unknown[0]}: field not declared in schema")
    return config


def track_update(old: Object, new: Object, manager: str, resource: Resource, now: str) -> None:
    """Note in `new`, whose top level the caller owns, that an ordinary writer took over what changed."""
    entries = old["metadata"].get("managedFields")
    metadata = new["metadata"] = dict(new["metadata"])
    if not entries:
        metadata.pop("managedFields", None)
        return
    metadata["managedFields"] = entries
    struct = resource.schema.struct()
    before, after = dict(_values(old, struct)), dict(_values(new, struct))
    changed = {path for path, value in after.items() if path not in before or before[path] != value}
    gone = set(before) - set(after)
    if not changed and not gone:
        return
    name = manager or "unknown"
    mine: set[Path] = set()
    kept = []
    for entry in entries:
        paths = _paths(entry["fieldsV1"]) - changed - gone
        if (entry["manager"], entry["operation"]) == (name, "Update"):
            mine = paths
        elif paths:
            kept.append({**entry, "fieldsV1": _nested(paths)})
    update = {"manager": name, "operation": "Update", "apiVersion": resource.api_version, "time": now}
    fields = {"fieldsType": "FieldsV1", "fieldsV1": _nested(mine | changed)}
    metadata["managedFields"] = [*kept, update | fields] if mine | changed else kept


def _entries(live: Object, manager: str) -> tuple[list[Object], Object | None]:
    """The other managers' entries, and the one of this manager's applies."""
    own = None
    others = []
    for entry in live["metadata"].get("managedFields", ()):
        if (entry["manager"], entry["operation"]) == (manager, "Apply"):
            own = entry
        else:
            others.append(entry)
    return others, own


def _differs(config: Object, live: Object, wanted: set[Path]) -> bool:
    return any(_find(config, path) != _find(live, path) for path in wanted)


def _check_conflicts(config: Object, live: Object, others: list[Object], wanted: set[Path], *, force: bool) -> None:
    if force:
        return
    causes = []
    for entry in others:
        for path in sorted(_paths(entry["fieldsV1"]) & wanted):
            if _find(config, path) != _find(live, path):
                using = f" using {entry['apiVersion']}" if entry["operation"] == "Update" else ""
                text = f'conflict with "{entry["manager"]}"{using}'
                causes.append({"reason": "FieldManagerConflict", "message": text, "field": _shown(path)})
    if causes:
        plural = "s" if len(causes) > 1 else ""
        listed = ", ".join(f"{cause['message']}: {cause['field']}" for cause in causes)
        text = f"Apply failed with {len(causes)} conflict{plural}: {listed}"
        raise ApiError(409, "Conflict", text, details={"causes": causes})


# ---------------------------------------------------------------------- fields and sets of them


def _leaves(value: Object, struct: Struct | None) -> Iterator[Path]:
    return (path for path, _ in _values(value, struct))


def _values(value: Object, struct: Struct | None) -> Iterator[tuple[Path, Any]]:
    """All fields that can be owned, with their values."""
    for path, item in _walk(value, struct, ()):
        system = len(path) > 1 and path[0] == "f:metadata" and path[1][2:] in _SYSTEM
        if path not in _NOT_OWNED and not system:
            yield path, item


def _walk(value: Any, kind: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if type(value) is not dict:
        yield path, value
        return
    for key, item in value.items():
        here = (*path, f"f:{key}")
        inner = kind.fields.get(key) if isinstance(kind, Struct) else None
        name = merge_key(kind, key)
        if type(item) is list and name and isinstance(inner, ListOf):
            for element in item:
                yield from _walk(element, inner.item, (*here, _item_key(name, element)))
        else:
            yield from _walk(item, inner, here)


def _item_key(name: str, element: Object) -> str:
    return "k:" + orjson.dumps({name: element.get(name)}).decode()


def _nested(paths: set[Path]) -> Object:
    """A set of fields in the form of managedFields."""
    root: Object = {}
    for path in sorted(paths):
        level = root
        for part in path:
            level = level.setdefault(part, {})
    return root


def _paths(fields: Object) -> set[Path]:
    return {path for path, _ in _ends(fields, ())}


def _ends(fields: Object, path: Path) -> Iterator[tuple[Path, None]]:
    if not fields and path:
        yield path, None
    for key, inner in fields.items():
        yield from _ends(inner, (*path, key))


def _find(obj: Any, path: Path) -> Any:
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


def _without(obj: Any, path: Path) -> Any:
    """A copy of the object without a field; an item of a list goes with its key."""
    part, rest = path[0], path[1:]
    if part.startswith("k:"):
        ((name, value),) = orjson.loads(part[2:]).items()
        if rest == (f"f:{name}",):
            return [item for item in obj or () if item.get(name) != value]
        return [_without(item, rest) if item.get(name) == value else item for item in obj or ()]
    if type(obj) is not dict or part[2:] not in obj:
        return obj
    copy = dict(obj)
    if rest:
        copy[part[2:]] = _without(copy[part[2:]], rest)
    else:
        del copy[part[2:]]
    return copy


def _shown(path: Path) -> str:
    shown = ""
    for part in path:
        if part.startswith("k:"):
            ((name, value),) = orjson.loads(part[2:]).items()
            shown += f'[{name}="{value}"]'
        else:
            shown += f".{part[2:]}"
    return shown
