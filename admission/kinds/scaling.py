"""Scale-up of running objects: the annotation with a requested scale-up, kept until quota is reserved for it.

A controller that sees a raised count creates the pods immediately, without quota. So the webhook sets the count back
and notes the request in an annotation. Once it is admitted, Sluice writes the count into the object and removes the
annotation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson

from admission.apimachinery.patches import json_patch
from admission.kinds import paths, templates
from admission.kinds.base import SCALE_REQUEST
from admission.kinds.limits import NamespaceContext
from admission.kinds.patches import pointer
from admission.kinds.restoring import revert_field
from admission.model.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from admission.kinds.base import Object
    from admission.kinds.places import Place

ScaleRequest: TypeAlias = "dict[str, dict[str, Any]]"
"""By pod set: the requested values of the fields that its pod count is computed from.

Example: `{"workers": {"replicas": 5}}`. None as a value: the field is to be absent.
"""

_NO_LIMITS: Final = NamespaceContext()
_NOT_REQUESTED: Final = object()
_LONGEST: Final = 4096
"""Maximum length of the annotation, in characters; a longer one was not written by the webhook."""


def scale_request(obj: Object) -> ScaleRequest:
    """Return the request in the annotation; empty if it cannot be parsed, as users may write it, too."""
    text = (obj["metadata"].get("annotations") or {}).get(SCALE_REQUEST, "")
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


def annotation_patch(obj: Object, request: ScaleRequest) -> list[Object]:
    """Return the JSON patch that sets the annotation to this request, or removes it if the request is empty."""
    if request == scale_request(obj):
        return []
    metadata, path = obj["metadata"], pointer("metadata", "annotations", SCALE_REQUEST)
    if not request:
        return [{"op": "remove", "path": path}]
    parent = [] if metadata.get("annotations") else [{"op": "add", "path": "/metadata/annotations", "value": {}}]
    return [*parent, {"op": "add", "path": path, "value": orjson.dumps(request, option=orjson.OPT_SORT_KEYS).decode()}]


def limit_patch(new: Object, old: Object, before: Mapping[str, Place], after: Iterable[Place]) -> list[Object]:
    """Return the JSON patch that leaves each pod set of `new` no more pods than it has in `old`."""
    patch: list[Object] = []
    for place in after:
        if (had := before.get(place.name)) and place.pods > had.pods and place.target == had.target:
            patch += filter(None, (revert_field(new, old, keys) for keys in place.count_fields))
    return patch


def has_other_pods(before: Mapping[str, Place], after: Iterable[Place]) -> bool:
    """Whether there are new pods beyond a changed count: of a new pod set, or of another form."""
    return any(
        place.pods > 0
        and (
            (had := before.get(place.name)) is None
            or (place.target != had.target and place.pods > had.pods)
            or _is_other(had, place)
        )
        for place in after
    )


def _is_other(one: Place, other: Place) -> bool:
    """Whether a pod of one pod set requests something else than a pod of the other."""
    if templates.digest_parts(one.template) == templates.digest_parts(other.template):
        return False
    try:
        had, has = (templates.pod_set("", each.template, _NO_LIMITS, path=each.path, count=1) for each in (one, other))
    except Misconfigured:
        return True
    return had != has


def updated_request(new: Object, old: Object, before: Mapping[str, Place], after: Iterable[Place]) -> ScaleRequest:
    """Return the request after an update; a changed count that is no larger withdraws an earlier request."""
    request = scale_request(new)
    for place in after:
        if (had := before.get(place.name)) and place.target == had.target and (changed := _changed(new, old, place)):
            if place.pods > had.pods:
                request[place.name] = {keys[-1]: paths.at(new, keys) for keys in changed}
            else:
                request.pop(place.name, None)
    return request


def granted_patch(
    obj: Object, places: Iterable[Place], larger: Iterable[Place], held: Mapping[str, int]
) -> list[Object]:
    """Return the JSON patch that writes requested counts into the object, for pod sets with enough reserved quota.

    `larger`: the pod sets with the requested counts. `held`: number of pods with reserved quota, by pod set. Requests
    of other pod sets stay in the annotation. Empty if there is nothing to write.
    """
    request = scale_request(obj)
    granted = {place.name: request.get(place.name, {}) for place in larger if place.pods <= held.get(place.name, 0)}
    if not (patch := _written(obj, places, granted)):
        return []
    known = {place.name for place in places}
    return [
        *patch,
        *annotation_patch(obj, {name: each for name, each in request.items() if name in known - granted.keys()}),
    ]


def _written(obj: Object, places: Iterable[Place], request: ScaleRequest) -> list[Object]:
    patch: list[Object] = []
    for place in places if request else ():
        for keys in place.count_fields:
            value = request.get(place.name, {}).get(keys[-1], _NOT_REQUESTED)
            if value is not _NOT_REQUESTED and paths.at(obj, keys) != value:
                op = {"op": "remove"} if value is None else {"op": "add", "value": value}
                patch.append({**op, "path": pointer(*keys)})
    return patch


def scaled_up(obj: Object, places: Iterable[Place]) -> Object:
    """Return the object with the requested counts."""
    patch = _written(obj, places, scale_request(obj))
    larger: Object = json_patch(obj, patch) if patch else obj
    return larger


def _changed(new: Object, old: Object, place: Place) -> list[tuple[str, ...]]:
    return [keys for keys in place.count_fields if paths.at(old, keys) != paths.at(new, keys)]


def _is_number(value: object) -> bool:
    """Whether it is a count, a boolean (a flag that disables a pod set), or None (the field is to be absent)."""
    return value is None or (isinstance(value, int) and 0 <= value < 1_000_000)
