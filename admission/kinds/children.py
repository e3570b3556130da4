"""Objects that the controller of a queued object creates for it: part of the owner, not workloads of their own.

An owner reference alone proves nothing, as users can write it. A child is part of its owner only if the owner's
controller would create it in this form: it has the name of a child that the owner specifies, and no more pods or
requests than the owner has for it. Names are unique, so an object that a user creates under such a name takes the place
of the real child and never adds to it. Pods have no predictable names: of an owner's pods no more run than its pod
sets have, whatever created them (`pod_matching`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from admission.kinds import paths, templates
from admission.model.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from admission.kinds.abilities import Ownership
    from admission.kinds.base import Kind, Object
    from admission.kinds.limits import NamespaceContext
    from admission.kinds.paths import Path
    from admission.kinds.places import Place
    from admission.kinds.registry import Kinds
    from admission.model.workload import PodSet

OWNER, POD_SET, NUMBER = "{owner}", "{podSet}", "{number}"
PLACEHOLDERS: Final = (OWNER, POD_SET, NUMBER)
"""Placeholders in a name pattern: the owner's name, the name of a pod set, and a number from 0 to its copies - 1.

Example: `{owner}-{podSet}-{number}` for the Jobs of a JobSet.
"""


@dataclass(frozen=True, slots=True)
class ChildForm:
    """Children of one kind that objects of another kind have."""

    group: str
    kind: str
    name: str = ""
    """Pattern of their names (see `PLACEHOLDERS`); empty: the names are read at `name_from`."""
    name_from: Path = ()
    """Path in the owner of their names."""
    pod_set: str = ""
    """Name of the pod set whose pods they have; empty: the pod set in their name, else all pod sets."""


class Belonging(Enum):
    """How a child belongs to its owner."""

    NONE = "the owner's controller would not create such a child"
    MORE = "it would create such a child, but with fewer pods"
    OUTDATED = "it has yet to be updated: its node selectors are not those of the owner's pods"
    CURRENT = "as the owner's controller would create it now"


class SpecifiedChild(NamedTuple):
    """A child that an owner specifies, or several whose names differ only in a number."""

    group: str
    kind: str
    before: str
    after: str
    """Prefix (`before`) and suffix (`after`) of its name."""
    copies: int
    """Number of children, numbered from 0 between prefix and suffix; 0: one child, without a number."""
    pod_sets: tuple[int, ...]
    """Positions of its pod sets among those of its owner."""

    def has_name(self, name: str) -> bool:
        """Whether one of these children has the given name."""
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
    """Return the owner reference with `controller: true`; None if there is none."""
    references = obj["metadata"].get("ownerReferences") or ()
    return next((each for each in references if each.get("controller") is True), None)


class ClaimedOwner(NamedTuple):
    """The owner that an object's owner reference names; not yet verified."""

    kind: Kind
    """The owner's kind."""
    ownership: Ownership
    reference: Mapping[str, Any]


def claimed_owner(kind: Kind, obj: Object, kinds: Kinds) -> ClaimedOwner | None:
    """Return the owner that the controller reference of an object of `kind` names.

    None if there is no such reference, or its kind is not enabled or does not create such objects.
    """
    reference = controller_of(obj)
    if reference is None:
        return None
    owner = kinds.get(str(reference["apiVersion"]).rpartition("/")[0], reference["kind"])
    ownership = None if owner is None else owner.ownership
    if owner is None or ownership is None or not ownership.makes(kind.group, kind.kind):
        return None
    return ClaimedOwner(owner, ownership, reference)


def rendered_owner(kind: Kind, obj: Object, claimed: ClaimedOwner) -> str:
    """Return the uid of the claimed owner if its pod sets are read from this object (`Kind.rendered_by`); else ""."""
    owner, _, reference = claimed
    is_it = owner.rendered_by == (kind.group, kind.kind) and reference["name"] == obj["metadata"]["name"]
    return str(reference["uid"]) if is_it else ""


def specified(
    forms: Iterable[ChildForm], owner: Object, places: Sequence[Place], made: tuple[str, str], known: str
) -> list[SpecifiedChild]:
    """Return all children that an object specifies.

    `known`: name of a child of the group and kind `made` that it had before; it is one still if the object names none
    of that kind now. Its controller clears the name some time before it deletes the child.
    """
    found = [each for form in forms for each in children(form, owner, places)]
    if known and not any((each.group, each.kind) == made for each in found):
        found += [
            each
            for form in forms
            if (form.group, form.kind) == made
            for each in children(replace(form, name=known, name_from=()), owner, places)
        ]
    return found


def children(form: ChildForm, owner: Object, places: Sequence[Place]) -> Iterator[SpecifiedChild]:
    """Yield all children of a form that an object specifies; `places` are the object's pod sets."""
    every = tuple(range(len(places)))
    of_one = tuple(number for number in every if places[number].name == form.pod_set) if form.pod_set else every
    if form.name_from:
        for found in paths.find(owner, form.name_from):
            if isinstance(found.value, str):
                yield SpecifiedChild(form.group, form.kind, found.value, "", 0, of_one)
        return
    pattern = form.name.replace(OWNER, owner["metadata"]["name"])
    if POD_SET not in pattern:
        copies = max((places[number].pods // places[number].pods_per_copy for number in of_one), default=0)
        yield _child(form, pattern, copies, of_one)
        return
    for number in of_one:
        place = places[number]
        yield _child(form, pattern.replace(POD_SET, place.name), place.pods // place.pods_per_copy, (number,))


def _child(form: ChildForm, name: str, copies: int, pod_sets: tuple[int, ...]) -> SpecifiedChild:
    before, numbered, after = name.partition(NUMBER)
    return SpecifiedChild(form.group, form.kind, before, after, copies if numbered else 0, pod_sets)


def find_part(
    expected: Iterable[SpecifiedChild],
    owner_pods: Sequence[tuple[Place, Object]],
    child_kind: Kind,
    child: Object,
    context: NamespaceContext,
) -> Belonging:
    """Return how a child belongs to an owner.

    `expected`: the children that the owner specifies. `owner_pods`: the owner's pod sets, each with its template.
    """
    name, best = child["metadata"]["name"], Belonging.NONE
    try:
        wanted = child_kind.pod_sets(child, context)
        for each in expected:
            if (each.group, each.kind) == (child_kind.group, child_kind.kind) and each.has_name(name):
                limits = [_limit(*owner_pods[number], context, one_copy=bool(each.copies)) for number in each.pod_sets]
                if (found := _compare(wanted, limits)) not in (Belonging.NONE, Belonging.MORE):
                    return found
                best = found if found is Belonging.MORE else best
    except Misconfigured:  # reported where either object is handled as a workload itself
        pass
    return best


def find_pod_set(
    pod_sets: Callable[[Object, NamespaceContext], Sequence[PodSet]],
    owner: Object,
    pod_kind: Kind,
    pod: Object,
    context: NamespaceContext,
) -> Belonging:
    """Return how a pod belongs to an owner: its requests must be within those of one of the owner's pod sets.

    `pod_sets` returns the owner's pod sets. The number of pods is not checked here: it depends on how many exist.
    """
    try:
        wanted = pod_kind.pod_sets(pod, context)
        found = {_compare(wanted, [replace(limit, count=1)]) for limit in pod_sets(owner, context)}
    except Misconfigured:  # reported where either object is handled as a workload itself
        return Belonging.NONE
    return next((part for part in (Belonging.CURRENT, Belonging.OUTDATED) if part in found), Belonging.NONE)


def fitting_pod_sets(
    limits: Sequence[PodSet], pod_kind: Kind, pod: Object, context: NamespaceContext
) -> frozenset[str]:
    """Return the names of those of the owner's pod sets (`limits`) that a pod may belong to.

    The pod requests no more than they, and has their node selectors, unless it has those of none. Empty if it requests
    more than each.
    """
    try:
        wanted = pod_kind.pod_sets(pod, context)
    except Misconfigured:  # reported where the pod is handled as a workload itself
        return frozenset()
    parts = {limit.name: _compare(wanted, [replace(limit, count=1)]) for limit in limits}
    best = Belonging.CURRENT if Belonging.CURRENT in parts.values() else Belonging.OUTDATED
    return frozenset(name for name, part in parts.items() if part is best)


def _limit(place: Place, template: Object, context: NamespaceContext, *, one_copy: bool) -> PodSet:
    """Return the pods that one child may have of a pod set of its owner."""
    count = min(place.pods_per_copy, place.pods) if one_copy else place.pods
    return templates.pod_set(place.name, template, context, path=place.path, count=count)


def _compare(wanted: Sequence[PodSet], limits: Sequence[PodSet]) -> Belonging:
    """Compare a child's pod sets with the owner's: by name, or by position if the names differ."""
    by_name = {limit.name: limit for limit in limits}
    pairs = [(each, by_name[each.name]) for each in wanted if each.name in by_name]
    if len(pairs) != len(wanted):
        if len(wanted) > len(limits):
            return Belonging.NONE
        pairs = list(zip(wanted, limits, strict=False))
    for each, limit in pairs:
        if any(amount > limit.requests.get(resource, 0) for resource, amount in each.requests.items()):
            return Belonging.NONE
        if each.claims and Counter(each.claims) - Counter(limit.claims):
            return Belonging.NONE
    if any(each.count > limit.count for each, limit in pairs):
        return Belonging.MORE
    current = all(limit.node_selector.items() <= each.node_selector.items() for each, limit in pairs)
    return Belonging.CURRENT if current else Belonging.OUTDATED
