"""Owners of pod groups: objects whose pods are queued in groups, with their number of pods, labels and outcome.

Includes the objects of other systems that only give the number of pods that a group needs, such as PodGroups; those of
Kubernetes itself may form trees (`group_trees`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import orjson

from admission.controller.state.tracked import StoredObject, is_older, packed
from admission.controller.workloads.group_plan import role_leaf
from admission.controller.workloads.group_trees import Gang, GroupAssignment, GroupTrees, TreePlace
from admission.kinds.base import HOLD, SUBMITTED_BY, SUBMITTER_GROUPS, TERMS
from admission.kinds.foreign_groups import COMPOSITE, NATIVE, POD_GROUP, TASK_GROUPS, GroupSize
from admission.kinds.grouped import GroupedKind
from admission.kinds.grouping import role_of
from admission.model import child_sentences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from admission.controller.workloads.group_trees import GroupState
    from admission.kinds.base import Object, Outcome
    from admission.kinds.foreign_groups import Declared
    from admission.kinds.group_sizes import GroupSizeKind
    from admission.kinds.registry import Kinds

_Key: TypeAlias = tuple[GroupedKind, str, str]
"""Kind, namespace and name."""


class _Known(NamedTuple):
    uid: str
    version: str
    raw: bytes


@dataclass(frozen=True, slots=True)
class GroupOwner:
    """An owner as last observed, for one of its groups."""

    kind: GroupedKind
    object: Object
    group: str

    @property
    def makes_pods(self) -> bool:
        """Whether its controller creates the pods of the group, and recreates deleted ones."""
        is_alive = "deletionTimestamp" not in self.object["metadata"] and self.outcome is None
        return is_alive and self.kind.has_group(self.object, self.group)

    @property
    def outcome(self) -> Outcome | None:
        """Outcome of the object; None: it is not finished."""
        return self.kind.outcome(self.object)

    @property
    def total(self) -> int:
        """Number of pods of the group when it starts."""
        return self.kind.pods_of_a_group(self.object)

    @property
    def wanted(self) -> int | None:
        """Number of pods that the group should have now, which changes by scaling; None: finished or being deleted."""
        if "deletionTimestamp" in self.object["metadata"] or self.outcome is not None:
            return None
        return self.total if self.kind.has_group(self.object, self.group) else 0

    @property
    def created(self) -> str:
        """Creation time of the owner: the group is queued since then, however often its pods are recreated."""
        return str(self.object["metadata"]["creationTimestamp"])

    @property
    def labels(self) -> dict[str, str]:
        """Labels that apply to the group: priority, time limit and hold."""
        conventions = self.kind.conventions
        known = (*conventions.priority_labels, *conventions.time_labels, HOLD)
        return _selected(self.object, "labels", known)

    @property
    def annotations(self) -> dict[str, str]:
        """Annotations that apply to the group: user (its pods are created by a controller), hold, admission gates."""
        known = (SUBMITTED_BY, SUBMITTER_GROUPS, HOLD, *TERMS, self.kind.conventions.gate_annotation)
        return _selected(self.object, "annotations", known)


class Needed(NamedTuple):
    """Number of pods that have to start together in a group that another system declares."""

    numbers: frozenset[int]
    """By the pods or the objects that they name; {0}: not a gang; empty: unknown; several: contradictory."""
    wait_message: str
    """Message that says why the group cannot start, whatever pods it has; empty: no reason is known."""
    leaves: Mapping[str, int]
    """For a CompositePodGroup: number of pods by name of the PodGroup, `{"workers": 4}`."""
    is_incomplete: bool
    """Whether objects that it refers to do not exist, or were not observed yet."""

    @property
    def is_gang(self) -> bool:
        """Whether its pods are one workload; if not, each pod is a workload of its own."""
        return bool(self.wait_message) or self.numbers != {0}


class GroupOwners:
    """All known owners of pod groups, and the objects that give the size of groups."""

    def __init__(self, kinds: Kinds, state: Callable[[str, str], GroupState]) -> None:
        """`state`: returns the state of the group with a namespace and name."""
        self._kinds = [kind.grouping for kind in kinds if kind.grouping is not None]
        self._sizes = kinds.sizes
        self._state_of = state
        self._trees = GroupTrees(lambda: kinds.is_served(NATIVE, COMPOSITE))
        self._known: dict[_Key, _Known] = {}
        self._keys: dict[str, _Key] = {}
        """Key by uid."""
        self.touched: set[tuple[str, str]] = set()
        """Namespaces and names of changed objects that give the size of groups; these groups need an update."""

    def objects(self) -> dict[str, StoredObject]:
        """Return all known owners, by uid."""
        return {uid: StoredObject(key[0], self._known[key].raw) for uid, key in self._keys.items()}

    def take(self, kind: GroupedKind, obj: Object) -> None:
        """Store a version of an object, if its pods are queued in groups."""
        metadata = obj["metadata"]
        if not kind.has_grouped_pods(obj):
            self.object_deleted(metadata["uid"])
            return
        uid, version = metadata["uid"], metadata["resourceVersion"]
        key = kind, metadata["namespace"], metadata["name"]
        known = self._known.get(key)
        if known is not None and known.uid == uid and is_older(version, known.version):
            return
        if known is not None:
            self._keys.pop(known.uid, None)
        self._known[key], self._keys[uid] = _Known(uid, version, packed(obj)), key
        self._size_changed(key, obj)

    def object_deleted(self, uid: str) -> tuple[GroupedKind, str, str] | None:
        """Process the deletion of an object; return its kind, namespace and name if it is a known owner."""
        key = self._keys.pop(uid, None)
        if key is not None:
            del self._known[key]
            self._size_changed(key, None)
        return key

    def _size_changed(self, key: _Key, obj: Object | None) -> None:
        """Note the change of an object that gives the size of a group; `obj` None: it was deleted."""
        named, namespace, name = key
        if (kind := self._sizes.get((named.group, named.kind))) is None:
            return
        self.touched.add((namespace, name))
        if kind.group == NATIVE and kind.kind in (POD_GROUP, COMPOSITE):
            created = "" if obj is None else str(obj["metadata"]["creationTimestamp"])
            place = None if obj is None else TreePlace(kind.parent(obj), kind.needed(obj, ""), created)
            tops = self._trees.take((namespace, kind.kind, name), place)
            self.touched.update((namespace, top) for top in tops)

    def is_missing(self, namespace: str, leaf: str) -> bool:
        """Whether no PodGroup of `scheduling.k8s.io` with this name is known."""
        kind = self._sizes.get((NATIVE, POD_GROUP))
        return kind is None or (kind, namespace, leaf) not in self._known

    def is_composite(self, namespace: str, name: str) -> bool:
        """Whether a CompositePodGroup with this name exists."""
        kind = self._sizes.get((NATIVE, COMPOSITE))
        return kind is not None and (kind, namespace, name) in self._known

    def names(self, namespace: str, declared: Declared) -> set[str]:
        """Return the names of the objects that give the size of a group, and of the CompositePodGroups above them."""
        above = self._trees.above(namespace, POD_GROUP, declared.leaf)[0] if declared.leaf else ()
        return {*above, *([declared.size.name] if declared.size is not None else [])}

    def assign(self, namespace: str, leaf: str, pod: Object | None = None) -> GroupAssignment:
        """Return the group that the pods of the Kubernetes PodGroup `leaf` are queued with.

        `pod`: one of these pods, which may replace the last pod of its PodGroup in a group that holds quota.
        """

        def state(name: str) -> GroupState:
            found = self._state_of(namespace, name)
            if found.leaves is None or leaf in found.leaves or pod is None:
                return found
            replaces = role_of(pod, role_leaf(name, leaf)) in found.roles
            return found._replace(leaves=found.leaves | {leaf}) if replaces else found

        return self._trees.assign(namespace, leaf, cache(state))

    def needed(self, group: tuple[str, str], declarations: Iterable[Declared | None]) -> Needed | None:
        """Return the number of pods of a group (namespace, name) that have to start together.

        `declarations`: what its pods declare. Returns None if no other system declares the group.
        """
        declared = {each for each in declarations if each is not None}
        if not declared:
            return None
        namespace, name = group
        state = cache(partial(self._state_of, namespace))
        numbers, wait_message, is_incomplete, is_tree = set(), "", False, False
        for each in sorted(declared, key=lambda each: each.name):
            above: list[str] = []
            if leaf := each.leaf:
                above, fault = self._trees.above(namespace, POD_GROUP, leaf)
                assigned = self._trees.assign(namespace, leaf, state)
                wait_message = wait_message or (assigned.wait_message if assigned.group == name else "")
                is_incomplete = is_incomplete or bool(fault)
            if name in above:
                is_tree = True
            elif (number := self._number(namespace, each)) is not None:
                numbers.add(number)
        gang = self._trees.gang(namespace, name) if is_tree else Gang({}, "")
        leaves = {
            leaf: number for leaf, number in gang.pods.items() if not self._is_admitted_separately(group, leaf, state)
        }
        if leaves and numbers:
            wait_message, numbers = child_sentences.groups_of_one_name(name), set()
        numbers |= {sum(leaves.values())} if leaves else set()
        wait_message = wait_message or gang.wait_message or ("" if numbers else _unknown_size(declared))
        return Needed(frozenset(numbers), wait_message, leaves, is_incomplete)

    def _is_admitted_separately(self, group: tuple[str, str], leaf: str, state: Callable[[str], GroupState]) -> bool:
        """Whether pods of this PodGroup hold quota as another group, as they started before the tree was complete."""
        namespace, name = group
        above, _ = self._trees.above(namespace, POD_GROUP, leaf)
        return any(leaf in (state(part).leaves or ()) for part in (leaf, *above) if part != name)

    def _number(self, namespace: str, declared: Declared) -> int | None:
        if declared.size is None:
            return declared.needed or None
        found = self._size(namespace, declared.size)
        return None if found is None else found[0].needed(found[1], declared.size.part)

    def priority_class(self, namespace: str, declarations: Iterable[Declared | None]) -> str:
        """Return the PriorityClass of a group of another system; empty: that of its pods applies.

        In a tree, that of the topmost group that has one.
        """
        sizes = {each.size: each.leaf for each in declarations if each is not None and each.size is not None}
        return max((self._class_of(namespace, size, leaf) for size, leaf in sizes.items()), default="")

    def _class_of(self, namespace: str, size: GroupSize, leaf: str) -> str:
        above = self._trees.above(namespace, POD_GROUP, leaf)[0] if leaf else ()
        sizes = (*(GroupSize(NATIVE, COMPOSITE, name) for name in reversed(above)), size)
        found = (self._size(namespace, each) for each in sizes)
        return next(filter(None, (kind.priority_class(obj) for kind, obj in filter(None, found))), "")

    def _size(self, namespace: str, size: GroupSize) -> tuple[GroupSizeKind, Object] | None:
        """Return the kind and the object that gives the size of a group; None: it is not known."""
        kind = self._sizes.get((size.group, size.kind))
        known = None if kind is None else self._known.get((kind, namespace, size.name))
        return None if kind is None or known is None else (kind, orjson.loads(known.raw))

    def of(self, group: tuple[str, str]) -> GroupOwner | None:
        """Return the owner of a group (namespace, name); None: it has none."""
        namespace, name = group
        for kind in self._kinds:
            owner = kind.owner_of(name)
            if owner and (known := self._known.get((kind, namespace, owner))):
                return GroupOwner(kind, orjson.loads(known.raw), name)
        return None


def _unknown_size(declared: Iterable[Declared]) -> str:
    """Return the message for a group of unknown size: it names the missing object or annotation."""
    sizes = sorted(each.size for each in declared if each.size is not None)
    if not sizes:
        return child_sentences.group_without_number(TASK_GROUPS)
    return child_sentences.group_without_object(sizes[0].kind, sizes[0].name, sizes[0].group)


def _selected(obj: Object, field: str, keys: tuple[str, ...]) -> dict[str, str]:
    values: dict[str, Any] = obj["metadata"].get(field) or {}
    return {key: values[key] for key in keys if key in values}
