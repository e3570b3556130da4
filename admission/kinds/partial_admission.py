"""Partial admission of declared kinds: minimum counts of pod sets, and the count fields that such a start lowers.

An object starts with fewer pods only if its user allows it: by the annotation, or by a field of its kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from admission.kinds import paths
from admission.kinds.base import MIN_COUNT, MIN_COUNT_PATH, ONLY_WHOLE
from admission.kinds.common import NOTHING, is_positive, quote
from admission.kinds.patches import pointer
from admission.kinds.restoring import pointer_keys
from admission.model.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from admission.kinds.base import Object
    from admission.kinds.places import Place

LoweredCounts = dict[str, dict[str, int]]
"""By JSON pointer of each count field that a start lowered: the value before (`had`) and since (`given`)."""


def has_min_count(obj: Object) -> bool:
    """Whether the object has the annotation."""
    return MIN_COUNT in (obj["metadata"].get("annotations") or NOTHING)


def min_counts(obj: Object, places: Sequence[Place]) -> dict[str, int]:
    """Return the minimum count of each pod set that may start with fewer than all of its pods. Raises Misconfigured."""
    least = {place.name: max(place.min_count, place.lowest) for place in places if place.reducible and place.min_count}
    if has_min_count(obj):
        least |= _annotated(obj["metadata"]["annotations"][MIN_COUNT], {each.name: each for each in places})
    return {place.name: least[place.name] for place in places if least.get(place.name, place.pods) < place.pods}


def _annotated(text: str, places: Mapping[str, Place]) -> dict[str, int]:
    reducible = [place.name for place in places.values() if place.reducible]
    if not reducible:
        raise Misconfigured(f"{MIN_COUNT_PATH}: {ONLY_WHOLE}")
    found: dict[str, int] = {}
    for part in text.split(","):
        name, _, number = map(str.strip, part.partition("="))
        if name not in reducible:
            hint = f"name {' or '.join(reducible)}, as in {reducible[0]}=2"
            message = f'"{quote(name)}" is no pod set that can start with fewer pods: {hint}'
            raise Misconfigured(f"{MIN_COUNT_PATH}: {message}")
        if name in found:
            raise Misconfigured(f"{MIN_COUNT_PATH}: {name} is named twice: keep one of the two")
        lowest = places[name].lowest
        if not is_positive(number) or int(number) < lowest:
            fault = f'must be a whole number of at least {lowest}, not "{quote(number)}"'
            raise Misconfigured(f"{MIN_COUNT_PATH}: {name} {fault}")
        found[name] = int(number)
    return found


def lower_counts(obj: Object, places: Iterable[Place], counts: Mapping[str, int]) -> tuple[list[Object], LoweredCounts]:
    """Return the operations that lower count fields to the admitted `counts`, and what `restore_counts` needs."""
    reduced = [place for place in places if place.reducible and counts.get(place.name, place.pods) < place.pods]
    lowered = {
        pointer(*place.reducible): {"had": paths.at(obj, place.reducible), "given": counts[place.name]}
        for place in reduced
    }
    return [{"op": "add", "path": where, "value": each["given"]} for where, each in lowered.items()], lowered


def are_lowered(obj: Object, lowered: Mapping[str, Any]) -> bool:
    """Whether all these count fields still have the values that a start set."""
    return all(paths.at(obj, pointer_keys(where)) == each["given"] for where, each in lowered.items())


def restore_counts(obj: Object, lowered: Mapping[str, Any]) -> list[Object]:
    """Return the operations that restore these count fields, except those that were changed since the start."""
    return [
        {"op": "add", "path": where, "value": each["had"]}
        for where, each in lowered.items()
        if are_lowered(obj, {where: each})
    ]
