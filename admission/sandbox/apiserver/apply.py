"""Server-side apply: field managers, conflicts, and removal of fields that a manager no longer applies.

`metadata.managedFields` is kept only for objects that were applied at least once. The writer of an object before its
first apply is not recorded, so that ordinary writes stay cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from admission.apimachinery.ownership import (
    FieldWriter,
    Path,
    applied,
    can_be_owned,
    conflict_causes,
    conflict_message,
    conflicts,
    find,
    updated,
    without,
)
from admission.sandbox.apiserver.decoding import complete
from admission.sandbox.apiserver.errors import ApiError, bad_request
from admission.sandbox.apiserver.patch import merge_key, strategic_merge
from admission.sandbox.apiserver.schema import DecodeError, ListOf, Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.resources import ServedResource


def apply_patch(
    resource: ServedResource, live: Object | None, body: Object, manager: str, now: str, *, force: bool
) -> Object:
    """Return the object after field manager `manager` applied `body`.

    `now` is the timestamp of the managedFields entry (RFC 3339); with `force` conflicting fields are taken over.
    Raises ApiError: 400 (invalid body), 409 (conflict with another manager), 500 (undeclared field or wrong type).
    """
    config = _config(resource, body)
    struct = resource.schema.struct()
    wanted = {path for path, _ in _values(config, struct)}
    writer = FieldWriter(manager, resource.api_version, now)
    if live is None:
        new = complete(resource, resource.schema.decode(config, None, []))
        return {**new, "metadata": {**new["metadata"], "managedFields": [writer.entry("Apply", wanted)]}}
    entries = live["metadata"].get("managedFields", [])
    found = conflicts(entries, wanted, writer, differs=lambda path: find(config, path) != find(live, path))
    if found and not force:
        causes = conflict_causes(found)
        raise ApiError(409, "Conflict", conflict_message(causes), details={"causes": causes})
    new = strategic_merge(live, config, struct)
    entries, dropped = applied(entries, wanted, {path for path, _ in found}, writer)
    for path in dropped:
        new = without(new, path)
    new["metadata"] = {**new["metadata"], "managedFields": entries}
    resource.schema.decode(new, live, [])
    return complete(resource, new)


def _config(resource: ServedResource, body: Object) -> Object:
    """Return the apply configuration, decoded. Unknown fields are errors: upstream's typed conversion is strict."""
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


def track_update(old: Object, new: Object, manager: str, resource: ServedResource, now: str) -> None:
    """Update managedFields in `new` after a write other than apply: `manager` takes over the changed fields.

    The caller owns the top level of `new`. Nothing is recorded for an object that was never applied.
    """
    entries = old["metadata"].get("managedFields")
    metadata = new["metadata"] = dict(new["metadata"])
    if not entries:
        metadata.pop("managedFields", None)
        return
    struct = resource.schema.struct()
    before, after = dict(_values(old, struct)), dict(_values(new, struct))
    metadata["managedFields"] = updated(
        entries, before, after, FieldWriter(manager or "unknown", resource.api_version, now)
    )


# ---------------------------------------------------------------------- field paths


def _values(value: Object, struct: Struct | None) -> Iterator[tuple[Path, Any]]:
    """Yield the path and value of each field that can have an owner in managedFields."""
    for path, item in _walk(value, struct, ()):
        if can_be_owned(path):
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
