"""More pods for what runs: the annotation in which the webhook keeps what was asked for until there is quota for it.

A controller that sees a raised number makes the pods at once, without quota. So the webhook takes the number back and
notes it; Sluice writes it into the object, and takes the note away, once it has admitted it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson

from admission.apimachinery.patches import json_patch
from admission.kinds import paths
from admission.kinds.base import ASKS_FOR
from admission.kinds.patches import pointer
from admission.kinds.restoring import set_back

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from admission.kinds.base import Object
    from admission.kinds.places import Place

AsksFor: TypeAlias = "dict[str, dict[str, Any]]"
"""By pod set: the fields of which the number of its pods follows, with the values that they are to have."""

_UNSAID: Final = object()
_LONGEST: Final = 4096
"""Characters of the annotation; what is longer was not written by the webhook."""


def asked_for(obj: Object) -> AsksFor:
    """What the annotation says; nothing where it says nothing that can be understood, for users may write it, too."""
    text = (obj["metadata"].get("annotations") or {}).get(ASKS_FOR, "")
    try:
        found = orjson.loads(text) if isinstance(text, str) and 0 < len(text) < _LONGEST else {}
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {
        name: fields
        for name, fields in found.items()
        if isinstance(fields, dict) and all(map(_is_number, fields.values()))
    }


def noted(obj: Object, asks_for: AsksFor) -> list[Object]:
    """The JSON patch by which the annotation says that."""
    if asks_for == asked_for(obj):
        return []
    metadata, path = obj["metadata"], pointer("metadata", "annotations", ASKS_FOR)
    if not asks_for:
        return [{"op": "remove", "path": path}]
    parent = [] if metadata.get("annotations") else [{"op": "add", "path": "/metadata/annotations", "value": {}}]
    return [*parent, {"op": "add", "path": path, "value": orjson.dumps(asks_for, option=orjson.OPT_SORT_KEYS).decode()}]


def limited(new: Object, old: Object, before: Mapping[str, Place], after: Iterable[Place]) -> list[Object]:
    """The JSON patch that leaves each pod set of `new` no more pods than it has in `old`."""
    patch: list[Object] = []
    for place in after:
        if (had := before.get(place.name)) and place.pods > had.pods and place.into == had.into:
            patch += filter(None, (set_back(new, old, keys) for keys in place.numbers))
    return patch


def asks_for(new: Object, old: Object, before: Mapping[str, Place], after: Iterable[Place]) -> AsksFor:
    """What is asked for from now on; another number that is no larger takes an earlier wish back."""
    wishes = asked_for(new)
    for place in after:
        if (had := before.get(place.name)) and place.into == had.into and (changed := _changed(new, old, place)):
            if place.pods > had.pods:
                wishes[place.name] = {keys[-1]: paths.at(new, keys) for keys in changed}
            else:
                wishes.pop(place.name, None)
    return wishes


def given(obj: Object, places: Iterable[Place]) -> list[Object]:
    """The JSON patch that writes what is asked for into the object."""
    wishes, patch = asked_for(obj), []
    for place in places if wishes else ():
        for keys in place.numbers:
            value = wishes.get(place.name, {}).get(keys[-1], _UNSAID)
            if value is not _UNSAID and paths.at(obj, keys) != value:
                op = {"op": "remove"} if value is None else {"op": "add", "value": value}
                patch.append({**op, "path": pointer(*keys)})
    return patch


def enlarged(obj: Object, places: Iterable[Place]) -> Object:
    """The object with what is asked for."""
    patch = given(obj, places)
    larger: Object = json_patch(obj, patch) if patch else obj
    return larger


def _changed(new: Object, old: Object, place: Place) -> list[tuple[str, ...]]:
    return [keys for keys in place.numbers if paths.at(old, keys) != paths.at(new, keys)]


def _is_number(value: object) -> bool:
    """Or a flag by which a pod set has no pods, or what is to be absent."""
    return value is None or (isinstance(value, int) and 0 <= value < 1_000_000)
