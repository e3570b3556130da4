"""Objects that the controller of a queued object makes for it: they are part of it, and no workloads of their own.

An owner reference alone proves nothing, for users write them. A child is part of its owner if the owner's controller
would make it just so: it has the name of a child that the owner asks for, and no more pods or requests than the owner
has there. As names are unique, what is made in its place takes the place of the real one, and never adds to it. Pods
have no such names: of an owner's pods no more run than it asks for, whoever made them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from admission.kinds import paths, templates
from admission.model.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from admission.kinds.base import Kind, Object
    from admission.kinds.limits import NamespaceContext
    from admission.kinds.paths import Path
    from admission.kinds.places import Place
    from admission.kinds.registry import Kinds
    from admission.model.workload import PodSet

OWNER, POD_SET, NUMBER = "{owner}", "{podSet}", "{number}"
PLACEHOLDERS: Final = (OWNER, POD_SET, NUMBER)
"""What a pattern of names may hold: the owner's name, that of a pod set, and a number from 0 on, below its copies."""


@dataclass(frozen=True, slots=True)
class ChildForm:
    """Which children of one kind the objects of another have."""

    group: str
    kind: str
    name: str = ""
    """The pattern of their names; empty: the names are at `name_from`."""
    name_from: Path = ()
    """Where the owner says what they are called."""
    pod_set: str = ""
    """The pod set that they have the pods of; empty: the one in their name, else all."""


class Part(Enum):
    """How a child belongs to its owner."""

    NONE = "the owner's controller would make no such child"
    OUTDATED = "it has still to be brought up to date: it would not go where the owner's pods go"
    CURRENT = "as the owner's controller would make it now"


class Child(NamedTuple):
    """One child that an object asks for, or several whose names differ in a number."""

    group: str
    kind: str
    before: str
    after: str
    """What its name begins and ends with."""
    copies: int
    """How many there are, with the numbers from 0 on in between; 0: one, without a number."""
    pod_sets: tuple[int, ...]
    """The positions of its pod sets among those of its owner."""

    def has_name(self, name: str) -> bool:
        """Whether one of them is called so."""
        if not self.copies:
            return name == self.before + self.after
        number = name[len(self.before) : len(name) - len(self.after)]
        return (
            name == f"{self.before}{number}{self.after}"
            and number.isascii()
            and number.isdecimal()
            and str(int(number)) == number
            and int(number) < self.copies
        )


def controller_of(obj: Object) -> Mapping[str, Any] | None:
    """The owner reference that names the object's controller; None if there is none."""
    references = obj["metadata"].get("ownerReferences") or ()
    return next((each for each in references if each.get("controller") is True), None)


class Claim(NamedTuple):
    """What an object says of its owner."""

    kind: Kind
    """The owner's."""
    reference: Mapping[str, Any]


def claimed_owner(kind: Kind, obj: Object, kinds: Kinds) -> Claim | None:
    """The kind of the owner that an object of `kind` claims, and the reference to it.

    None: it claims none whose kind is on and makes such objects.
    """
    reference = controller_of(obj)
    if reference is None:
        return None
    owner = kinds.get(str(reference["apiVersion"]).rpartition("/")[0], reference["kind"])
    return None if owner is None or not owner.makes(kind.group, kind.kind) else Claim(owner, reference)


def rendered_owner(kind: Kind, obj: Object, claimed: Claim) -> str:
    """The uid of the owner that it claims if the owner's pods are read from this object; empty: they are not."""
    owner, reference = claimed
    is_it = owner.rendered_by == (kind.group, kind.kind) and reference["name"] == obj["metadata"]["name"]
    return str(reference["uid"]) if is_it else ""


def children(form: ChildForm, owner: Object, places: Sequence[Place]) -> Iterator[Child]:
    """All children of a form that an object asks for, whose pod sets are `places`."""
    every = tuple(range(len(places)))
    of_one = tuple(number for number in every if places[number].name == form.pod_set) if form.pod_set else every
    if form.name_from:
        for found in paths.find(owner, form.name_from):
            if isinstance(found.value, str):
                yield Child(form.group, form.kind, found.value, "", 0, of_one)
        return
    pattern = form.name.replace(OWNER, owner["metadata"]["name"])
    if POD_SET not in pattern:
        copies = max((places[number].pods // places[number].each for number in of_one), default=0)
        yield _child(form, pattern, copies, of_one)
        return
    for number in of_one:
        place = places[number]
        yield _child(form, pattern.replace(POD_SET, place.name), place.pods // place.each, (number,))


def _child(form: ChildForm, name: str, copies: int, pod_sets: tuple[int, ...]) -> Child:
    before, numbered, after = name.partition(NUMBER)
    return Child(form.group, form.kind, before, after, copies if numbered else 0, pod_sets)


def find_part(
    made: Iterable[Child],
    given: Sequence[tuple[Place, Object]],
    child_kind: Kind,
    child: Object,
    context: NamespaceContext,
) -> Part:
    """How a child belongs to an owner that asks for the children `made`, and has pods at places with templates."""
    name = child["metadata"]["name"]
    try:
        wanted = child_kind.pod_sets(child, context)
        for each in made:
            if (each.group, each.kind) == (child_kind.group, child_kind.kind) and each.has_name(name):
                limits = [_limit(*given[number], context, one_copy=bool(each.copies)) for number in each.pod_sets]
                if (found := _compare(wanted, limits)) is not Part.NONE:
                    return found
    except Misconfigured:  # either of them is told so where it is a workload itself
        pass
    return Part.NONE


def find_pod_set(
    pod_sets: Callable[[Object, NamespaceContext], Sequence[PodSet]],
    owner: Object,
    pod_kind: Kind,
    pod: Object,
    context: NamespaceContext,
) -> Part:
    """How a pod belongs to an owner with such pod sets: its requests are within those of one of them.

    How many pods it may have is not judged here: that depends on how many there are.
    """
    try:
        wanted = pod_kind.pod_sets(pod, context)
        found = {_compare(wanted, [replace(limit, count=1)]) for limit in pod_sets(owner, context)}
    except Misconfigured:  # either of them is told so where it is a workload itself
        return Part.NONE
    return next((part for part in (Part.CURRENT, Part.OUTDATED) if part in found), Part.NONE)


def _limit(place: Place, template: Object, context: NamespaceContext, *, one_copy: bool) -> PodSet:
    """What one child may have of a pod set of its owner."""
    count = min(place.each, place.pods) if one_copy else place.pods
    return templates.pod_set(place.name, template, context, path=place.path, count=count)


def _compare(wanted: Sequence[PodSet], limits: Sequence[PodSet]) -> Part:
    """Pod sets of the same names are compared; where the names are others, those at the same positions."""
    by_name = {limit.name: limit for limit in limits}
    pairs = [(each, by_name[each.name]) for each in wanted if each.name in by_name]
    if len(pairs) != len(wanted):
        if len(wanted) > len(limits):
            return Part.NONE
        pairs = list(zip(wanted, limits, strict=False))
    for each, limit in pairs:
        if each.count > limit.count:
            return Part.NONE
        if any(amount > limit.requests.get(resource, 0) for resource, amount in each.requests.items()):
            return Part.NONE
    current = all(limit.node_selector.items() <= each.node_selector.items() for each, limit in pairs)
    return Part.CURRENT if current else Part.OUTDATED
