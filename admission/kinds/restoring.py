"""Injection into one place of an object, and the operations that restore the place or a single field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from admission.kinds import paths, templates
from admission.kinds.patches import additions, merged, pointer
from admission.kinds.places import as_template, flattened

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from admission.kinds.base import Object
    from admission.kinds.places import Place


def inject_at(obj: Object, place: Place, added: Iterable[templates.Addition]) -> tuple[list[Object], Object]:
    """Return the operations that inject `added` at a place, and what `restore_at` needs.

    The second is stored in the object's `original`. `added`: node selectors, tolerations, labels and annotations.
    """
    added = tuple(added)
    present = paths.at(obj, place.target)
    template = as_template(present or {}, metadata=place.metadata) if place.flat else place.template
    # An injection beside a template must not contradict the template itself: raises Misconfigured.
    templates.inject(merged(place.template, template) if place.flat else template, added, path=place.path)
    wanted, original = templates.inject(template, added, path=place.path)
    wanted = flattened(wanted, metadata=place.metadata) if place.flat else wanted
    absent = [key for key in wanted if not isinstance((present or {}).get(key), dict | list)]
    record = {"given": wanted, "original": original, "absent": absent, "flat": place.flat}
    record |= {"metadata": place.metadata} if place.metadata else {}
    where = pointer(*place.target)
    if present is not None:
        return [*additions(present, wanted, where)], record
    if not place.flat:  # a template that only the kind's controller has, until now
        wanted = merged(place.template, wanted)
        return [{"op": "add", "path": where, "value": wanted}], {**record, "given": wanted, "whole": True}
    parent = place.target[:-1]
    is_first = paths.at(obj, parent) is None and place.target[-1] == "0"
    made = [{"op": "add", "path": pointer(*parent), "value": list[Any]()}] if is_first else []
    return [*made, {"op": "add", "path": where, "value": wanted}], {**record, "whole": True}


def restore_at(present: Object, injected: Mapping[str, Any], where: str) -> list[Object]:
    """Return the operations that restore one place; a part that was absent before is removed once it is empty.

    `injected` is what `inject_at` returned. `where`: the JSON pointer of the place.
    """
    patch, flat, metadata = injected["given"], injected["flat"], injected.get("metadata", "")
    template = as_template(present, metadata=metadata) if flat else present
    change = templates.restore(template, injected["original"], as_template(patch, metadata=metadata) if flat else patch)
    change = flattened(change, metadata=metadata) if flat else change
    after = merged(present, change)
    for part in injected["absent"]:
        if part in after and not after[part]:
            del after[part]
    return [
        {"op": "remove", "path": where + pointer(key)}
        if key not in after
        else {"op": "add", "path": where + pointer(key), "value": after[key]}
        for key in present
        if after.get(key) != present[key]
    ]


def revert_field(new: Object, old: Object, keys: tuple[str, ...]) -> Object | None:
    """Return the operation that sets the field at `keys` back to its old value; None if it has that value."""
    had, has = paths.at(old, keys), paths.at(new, keys)
    if had == has:
        return None
    path = pointer(*keys)
    return {"op": "remove", "path": path} if had is None else {"op": "add", "path": path, "value": had}


def pointer_keys(where: str) -> tuple[str, ...]:
    """Return the keys of a JSON pointer."""
    return tuple(key.replace("~1", "/").replace("~0", "~") for key in where.split("/")[1:])
