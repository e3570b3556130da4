"""What a start puts into a place of an object, and the operations that take it out again, or set a field back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from admission.kinds import paths, templates
from admission.kinds.patches import additions, merged, pointer
from admission.kinds.places import as_template, flattened

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from admission.kinds.base import Object
    from admission.kinds.places import Place


def injected_place(obj: Object, place: Place, added: Iterable[templates.Addition]) -> tuple[list[Object], Object]:
    """The operations that put labels, node selectors and tolerations there, and what `restored_place` needs."""
    added = tuple(added)
    present = paths.at(obj, place.into)
    template = as_template(present or {}, metadata=place.metadata) if place.flat else place.template
    # What is put beside a template must not contradict what is in it.
    templates.inject(merged(place.template, template) if place.flat else template, added, path=place.path)
    wanted, original = templates.inject(template, added, path=place.path)
    wanted = flattened(wanted, metadata=place.metadata) if place.flat else wanted
    absent = [key for key in wanted if not isinstance((present or {}).get(key), dict | list)]
    noted = {"given": wanted, "original": original, "absent": absent, "flat": place.flat}
    noted |= {"metadata": place.metadata} if place.metadata else {}
    where = pointer(*place.into)
    if present is not None:
        return [*additions(present, wanted, where)], noted
    parent = place.into[:-1]
    is_first = paths.at(obj, parent) is None and place.into[-1] == "0"
    made = [{"op": "add", "path": pointer(*parent), "value": list[Any]()}] if is_first else []
    return [*made, {"op": "add", "path": where, "value": wanted}], {**noted, "whole": True}


def restored_place(present: Object, put_in: Mapping[str, Any], where: str) -> list[Object]:
    """The operations at one place; a part that was not there before is removed once nothing is left in it."""
    given, flat, metadata = put_in["given"], put_in["flat"], put_in.get("metadata", "")
    template = as_template(present, metadata=metadata) if flat else present
    change = templates.restore(template, put_in["original"], as_template(given, metadata=metadata) if flat else given)
    change = flattened(change, metadata=metadata) if flat else change
    after = merged(present, change)
    for part in put_in["absent"]:
        if part in after and not after[part]:
            del after[part]
    return [
        {"op": "remove", "path": where + pointer(key)}
        if key not in after
        else {"op": "add", "path": where + pointer(key), "value": after[key]}
        for key in present
        if after.get(key) != present[key]
    ]


def set_back(new: Object, old: Object, keys: tuple[str, ...]) -> Object | None:
    """The operation that makes what the keys lead to as it was; None: it is."""
    had, has = paths.at(old, keys), paths.at(new, keys)
    if had == has:
        return None
    path = pointer(*keys)
    return {"op": "remove", "path": path} if had is None else {"op": "add", "path": path, "value": had}


def keys_of(where: str) -> tuple[str, ...]:
    """The keys of a JSON pointer."""
    return tuple(key.replace("~1", "/").replace("~0", "~") for key in where.split("/")[1:])
