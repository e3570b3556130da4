"""JSON patch, merge patch and strategic merge patch. The result shares unchanged parts with the original."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from admission.apimachinery import patches
from admission.apimachinery.errors import PatchFailed
from admission.apimachinery.patches import merge_patch
from admission.sandbox.apiserver.errors import ApiError
from admission.sandbox.apiserver.schema import ListOf, Struct

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object

__all__ = ["json_patch", "merge_key", "merge_patch", "strategic_merge"]

_MISSING = object()


def merge_key(struct: Struct | None, field: str) -> str | None:
    """Return the patchMergeKey of a list field; empty for a set of values, None for a list that is replaced."""
    return struct.merge_keys.get(field) if isinstance(struct, Struct) else None


def json_patch(target: Any, operations: list[Object]) -> Any:
    """Apply a JSON patch (RFC 6902). Raises ApiError (422); as in Kubernetes it does not name the failed operation."""
    try:
        return patches.json_patch(target, operations)
    except PatchFailed as error:
        text = "the server rejected our request due to an error in our request"
        raise ApiError(422, "Invalid", text, details={}) from error


# ---------------------------------------------------------------------- strategic merge patch


def strategic_merge(target: Any, patch: Object, struct: Struct | None) -> Object:
    """Apply a strategic merge patch: lists are merged by their merge key, `$` directives are obeyed.

    Raises ApiError (500) for an item without its merge key.
    """
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    result: Object = dict(target) if type(target) is dict else {}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            result[field] = [item for item in result.get(field, ()) if item not in value]
        elif key.startswith("$setElementOrder/"):
            continue
        elif value is None:
            result.pop(key, None)
        elif key == "$retainKeys":
            result = {name: item for name, item in result.items() if name in value}
        else:
            result[key] = _merge_field(result.get(key, _MISSING), value, struct, key)
    return _reordered(result, patch, struct)


def _merge_field(current: Any, value: Any, struct: Struct | None, key: str) -> Any:
    kind = struct.fields.get(key) if struct else None
    if type(value) is dict:
        inner = kind if isinstance(kind, Struct) else None
        return strategic_merge(None if current is _MISSING else current, value, inner)
    by = merge_key(struct, key)
    if type(value) is not list or by is None:
        return value
    existing = current if type(current) is list else []
    if by == "":
        return [*value, *(item for item in existing if item not in value)]
    inner = kind.item if isinstance(kind, ListOf) and isinstance(kind.item, Struct) else None
    return _merge_list(existing, value, by, inner)


def _merge_list(existing: list[Object], changes: list[Object], key: str, struct: Struct | None) -> list[Object]:
    """Merge two lists of objects by `key`: new items come first, in the patch's order; changed ones stay in place."""
    if any(item == {"$patch": "replace"} for item in changes):
        return [item for item in changes if "$patch" not in item]
    places = {item.get(key): index for index, item in enumerate(existing)}
    result, new, deleted = list(existing), [], set()
    for item in changes:
        if key not in item:
            shown = " ".join(f"{name}:{value}" for name, value in item.items())
            raise ApiError(500, "", f"map: map[{shown}] does not contain declared merge key: {key}")
        place = places.get(item[key])
        if item.get("$patch") == "delete":
            deleted.add(item[key])
        elif place is None:
            new.append(strategic_merge({}, item, struct))
        else:
            result[place] = strategic_merge(result[place], item, struct)
    return [item for item in [*new, *result] if item[key] not in deleted]


def _reordered(result: Object, patch: Object, struct: Struct | None) -> Object:
    """Sort the lists for which the patch has a $setElementOrder; items that it does not name come last."""
    for directive, order in patch.items():
        if not directive.startswith("$setElementOrder/"):
            continue
        field = directive.partition("/")[2]
        key = merge_key(struct, field)
        if not key or type(result.get(field)) is not list:
            continue
        result[field] = _sorted_like(result[field], order, key)
    return result


def _sorted_like(items: list[Object], order: list[Object], key: str) -> list[Object]:
    ranks = {item.get(key): rank for rank, item in enumerate(order)}
    return sorted(items, key=lambda item: ranks.get(item.get(key), len(ranks)))
