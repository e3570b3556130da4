"""Partial admission of declared kinds: how few pods an object may start with, and the numbers that such a start lowers.

Nobody gets fewer pods than he asks for without saying so himself: by the annotation, or by a field of his own kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from admission.kinds import paths
from admission.kinds.common import NOTHING, is_positive, quote
from admission.kinds.patches import pointer
from admission.kinds.restoring import keys_of
from admission.model.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from admission.kinds.base import Object
    from admission.kinds.places import Place

MIN_COUNT: Final = "sluice.dev/min-count"
"""Annotation: the fewest pods of pod sets that the object may start with, as `worker=2,evaluator=1`."""
WHERE: Final = f"metadata.annotations[{MIN_COUNT}]"

Lowered = dict[str, dict[str, int]]
"""By the pointer to each number that a start has lowered: what it was (`had`), and what it is since (`given`)."""


def asks(obj: Object) -> bool:
    """Whether its user has written the annotation."""
    return MIN_COUNT in (obj["metadata"].get("annotations") or NOTHING)


def minimums(obj: Object, places: Sequence[Place]) -> dict[str, int]:
    """By pod set, how few pods it may start with, of those that may start with fewer than all. Raises Misconfigured."""
    least = {place.name: max(place.min_count, place.floor) for place in places if place.lowered and place.min_count}
    if asks(obj):
        least |= _annotated(obj["metadata"]["annotations"][MIN_COUNT], {each.name: each for each in places})
    return {place.name: least[place.name] for place in places if least.get(place.name, place.pods) < place.pods}


def _annotated(text: str, places: Mapping[str, Place]) -> dict[str, int]:
    able = [place.name for place in places.values() if place.lowered]
    if not able:
        raise Misconfigured(f"{WHERE}: it can only start with all of its pods: remove the annotation")
    found: dict[str, int] = {}
    for part in text.split(","):
        name, _, number = map(str.strip, part.partition("="))
        if name not in able:
            told = f"name {' or '.join(able)}, as in {able[0]}=2"
            raise Misconfigured(f'{WHERE}: "{quote(name)}" is no pod set that can start with fewer pods: {told}')
        if name in found:
            raise Misconfigured(f"{WHERE}: {name} is named twice: keep one of the two")
        floor = places[name].floor
        if not is_positive(number) or int(number) < floor:
            told = f'must be a whole number of at least {floor}, not "{quote(number)}"'
            raise Misconfigured(f"{WHERE}: {name} {told}")
        found[name] = int(number)
    return found


def lower(obj: Object, places: Iterable[Place], counts: Mapping[str, int]) -> tuple[list[Object], Lowered]:
    """The operations that have each pod set start with no more pods than are admitted, and what they replace."""
    few = [place for place in places if place.lowered and counts.get(place.name, place.pods) < place.pods]
    noted = {
        pointer(*place.lowered): {"had": paths.at(obj, place.lowered), "given": counts[place.name]} for place in few
    }
    return [{"op": "add", "path": where, "value": each["given"]} for where, each in noted.items()], noted


def are_lowered(obj: Object, noted: Mapping[str, Any]) -> bool:
    """Whether all these numbers are as a start has set them."""
    return all(paths.at(obj, keys_of(where)) == each["given"] for where, each in noted.items())


def raised_again(obj: Object, noted: Mapping[str, Any]) -> list[Object]:
    """The operations that set them back, but for those that somebody has changed since."""
    return [
        {"op": "add", "path": where, "value": each["had"]}
        for where, each in noted.items()
        if are_lowered(obj, {where: each})
    ]
