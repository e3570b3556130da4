"""More pods for what runs: the annotation in which the webhook keeps what was asked for until there is quota for it.

A controller that sees a raised number makes the pods at once, without quota. So the webhook takes the number back and
notes it; Sluice writes it into the object, and takes the note away, once it has admitted it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson

from admission.apimachinery.patches import json_patch
from admission.kinds import paths, templates
from admission.kinds.base import ASKS_FOR
from admission.kinds.limits import NamespaceContext
from admission.kinds.patches import pointer
from admission.kinds.restoring import set_back
from admission.model.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from admission.kinds.base import Object
    from admission.kinds.places import Place

AsksFor: TypeAlias = "dict[str, dict[str, Any]]"
"""By pod set: the fields of which the number of its pods follows, with the values that they are to have."""

_NO_LIMITS: Final = NamespaceContext()
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


def has_others(before: Mapping[str, Place], after: Iterable[Place]) -> bool:
    """Whether there are pods now of which numbers alone do not tell: of a pod set that is new, or of another form."""
    return any(
        place.pods > 0
        and (
            (had := before.get(place.name)) is None
            or (place.into != had.into and place.pods > had.pods)
            or _is_other(had, place)
        )
        for place in after
    )


def _is_other(one: Place, other: Place) -> bool:
    """Whether a pod of one asks for something else than a pod of the other."""
    if templates.digest_parts(one.template) == templates.digest_parts(other.template):
        return False
    try:
        had, has = (templates.pod_set("", each.template, _NO_LIMITS, path=each.path, count=1) for each in (one, other))
    except Misconfigured:
        return True
    return had != has


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


def affordable(obj: Object, places: Iterable[Place], larger: Iterable[Place], held: Mapping[str, int]) -> list[Object]:
    """The JSON patch that writes what is asked for into the object, of each pod set for which so many are `held`.

    What is asked for of others stays noted. Empty where there is nothing to write.
    """
    wishes = asked_for(obj)
    now = {place.name: wishes.get(place.name, {}) for place in larger if place.pods <= held.get(place.name, 0)}
    if not (patch := _written(obj, places, now)):
        return []
    known = {place.name for place in places}
    return [*patch, *noted(obj, {name: each for name, each in wishes.items() if name in known - now.keys()})]


def _written(obj: Object, places: Iterable[Place], wishes: AsksFor) -> list[Object]:
    patch: list[Object] = []
    for place in places if wishes else ():
        for keys in place.numbers:
            value = wishes.get(place.name, {}).get(keys[-1], _UNSAID)
            if value is not _UNSAID and paths.at(obj, keys) != value:
                op = {"op": "remove"} if value is None else {"op": "add", "value": value}
                patch.append({**op, "path": pointer(*keys)})
    return patch


def enlarged(obj: Object, places: Iterable[Place]) -> Object:
    """The object with what is asked for."""
    patch = _written(obj, places, asked_for(obj))
    larger: Object = json_patch(obj, patch) if patch else obj
    return larger


def _changed(new: Object, old: Object, place: Place) -> list[tuple[str, ...]]:
    return [keys for keys in place.numbers if paths.at(old, keys) != paths.at(new, keys)]


def _is_number(value: object) -> bool:
    """Or a flag by which a pod set has no pods, or what is to be absent."""
    return value is None or (isinstance(value, int) and 0 <= value < 1_000_000)
