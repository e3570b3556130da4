"""Trees of CompositePodGroups and PodGroups of `scheduling.k8s.io`: which of them start together as one workload.

Rules:

- A CompositePodGroup with the policy `gang` starts with its oldest children, as many as `minGroupCount`. Its other
  children wait until it has started, and are groups of their own then. So a PodGroup cannot keep a gang from starting
  by naming it as its parent, neither before the gang exists nor later.
- The children of a CompositePodGroup with the policy `basic` are independent. A gang above it needs one of them, as in
  kube-scheduler.
- The pods of a PodGroup belong to the workload of the topmost gang that starts with this PodGroup.
- A tree has at most 4 levels, as in Kubernetes. A deeper one, or a cycle of parents, does not start.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from admission.kinds.foreign_groups import COMPOSITE, NATIVE, POD_GROUP
from admission.model import child_sentences

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

LEVELS: Final = 4
"""Levels of a tree including its PodGroups: `WorkloadMaxTreeDepth` of Kubernetes."""


class TreePlace(NamedTuple):
    """The fields of a PodGroup or CompositePodGroup that trees depend on."""

    parent: str
    """`spec.parentCompositePodGroupName`; empty: it is a root."""
    needed: int
    """`minCount` or `minGroupCount` of the policy `gang`; 0: the policy is `basic`."""
    created: str
    """`metadata.creationTimestamp`."""


class GroupState(NamedTuple):
    """State of the workload that has the name of a group."""

    leaves: frozenset[str] | None
    """Names of the PodGroups whose pods it holds quota for; None: it holds no quota."""
    roles: Container[str]
    """Names of its pod sets, which are the roles of its pods."""
    has_started: Callable[[], bool]
    """Returns whether it holds quota, or is finished and some of its pods exist."""


class Gang(NamedTuple):
    """The PodGroups that start together as a CompositePodGroup."""

    pods: Mapping[str, int]
    """Number of pods by name of the PodGroup."""
    wait_message: str
    """Message that says why the gang is not complete; empty: it is."""


class GroupAssignment(NamedTuple):
    """The group that the pods of a PodGroup are queued with."""

    group: str
    """Name of the group; empty: the pods are queued one by one."""
    wait_message: str = ""
    """Message that says why they cannot start, whatever quota is free; empty: no reason is known."""


class GroupTrees:
    """The PodGroups and CompositePodGroups of all namespaces."""

    def __init__(self, has_composites: Callable[[], bool]) -> None:
        """`has_composites`: returns whether the API server serves CompositePodGroups; if not, parents are ignored."""
        self._has_composites = has_composites
        self._places: dict[tuple[str, str, str], TreePlace] = {}
        """By namespace, kind and name."""
        self._children: defaultdict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
        """Kinds and names of the children, by namespace and name of the CompositePodGroup."""
        self._gangs: dict[tuple[str, str], Gang] = {}
        """Cached results of `gang`, dropped at each change."""

    def take(self, key: tuple[str, str, str], place: TreePlace | None) -> set[str]:
        """Store a group (namespace, kind, name); `place` None: it was deleted.

        Returns the names of its roots before and after the change: groups below these may have to be assigned again.
        """
        namespace, kind, name = key
        if place is not None and place == self._places.get(key):
            return set()
        roots = self.above(*key)[0][-1:]
        if (known := self._places.pop(key, None)) is not None and known.parent:
            siblings = self._children[namespace, known.parent]
            siblings.discard((kind, name))
            if not siblings:
                del self._children[namespace, known.parent]
        if place is not None:
            self._places[key] = place
            if place.parent:
                self._children[namespace, place.parent].add((kind, name))
        self._gangs.clear()
        return {*roots, *self.above(*key)[0][-1:]}

    def above(self, namespace: str, kind: str, name: str) -> tuple[list[str], str]:
        """Return the names of the CompositePodGroups above a group, its parent first, and a message about that path.

        The message is empty unless the group or a parent does not exist, or there are too many levels.
        """
        place, names = self._places.get((namespace, kind, name)), []
        if place is None:
            return [], child_sentences.group_without_object(kind, name, NATIVE)
        while place.parent and self._has_composites():
            names.append(place.parent)
            if len(names) == LEVELS:
                return names, child_sentences.group_too_deep(kind, name, LEVELS)
            place = self._places.get((namespace, COMPOSITE, place.parent))
            if place is None:
                return names, child_sentences.group_without_parent(names[-1])
        return names, ""

    def assign(self, namespace: str, leaf: str, state: Callable[[str], GroupState]) -> GroupAssignment:
        """Return the group for the pods of the PodGroup `leaf`. `state`: returns the state of a group by its name."""
        above, fault = self.above(namespace, POD_GROUP, leaf)
        if not above and (fault or self._places[namespace, POD_GROUP, leaf].needed):
            return GroupAssignment(leaf, fault)
        # An admission remains whatever happens to the tree: no edit of it moves pods that hold quota.
        for name in (leaf, *above):
            if leaf in (state(name).leaves or ()):
                return GroupAssignment(name)
        if fault:
            root_is_missing = 0 < len(above) < LEVELS and state(above[-1]).leaves is None
            return GroupAssignment(above[-1] if root_is_missing else leaf, fault)
        taken: set[str] = set()
        """PodGroups that start with a gang higher up."""
        wait_message = ""
        for name in reversed(above):
            needed = self._places[namespace, COMPOSITE, name].needed
            if not needed or any(name in self.above(namespace, POD_GROUP, each)[0] for each in taken):
                continue
            found = state(name)
            leaves = self.gang(namespace, name).pods.keys() if found.leaves is None else found.leaves
            if leaf in leaves:
                return GroupAssignment(name, wait_message)
            taken.update(leaves)
            if not wait_message and not found.has_started():
                wait_message = child_sentences.starts_after(name, needed)
        is_gang = self._places[namespace, POD_GROUP, leaf].needed > 0
        return GroupAssignment(leaf if is_gang or wait_message else "", wait_message)

    def gang(self, namespace: str, composite: str) -> Gang:
        """Return the PodGroups that start together as a CompositePodGroup."""
        key = namespace, composite
        if key not in self._gangs:
            pods: dict[str, int] = {}
            self._gangs[key] = Gang(pods, self._add(namespace, composite, 1, pods))
        return self._gangs[key]

    def _add(self, namespace: str, composite: str, level: int, pods: dict[str, int]) -> str:
        """Add the PodGroups that a CompositePodGroup starts with to `pods`; return why they are incomplete, or ""."""
        place = self._places.get((namespace, COMPOSITE, composite))
        if place is None:
            return child_sentences.group_without_parent(composite)
        if level == LEVELS:
            return child_sentences.group_too_deep(COMPOSITE, composite, LEVELS)
        rank = partial(self._rank, namespace, place.created)
        children = sorted(self._children.get((namespace, composite), ()), key=rank)
        needed = max(place.needed, 1)  # a gang above a group with the policy `basic` needs one child of it
        incomplete = child_sentences.groups_incomplete(composite, len(children), needed)
        wait_message = incomplete if len(children) < needed else ""
        for kind, name in children[:needed]:
            if kind == COMPOSITE:
                wait_message = self._add(namespace, name, level + 1, pods) or wait_message
            else:
                pods[name] = max(self._places[namespace, kind, name].needed, 1)
        return wait_message

    def _rank(self, namespace: str, since: str, child: tuple[str, str]) -> tuple[bool, str, str, str]:
        """Return the sort key of children: the oldest first, but children created before their parent (`since`) last.

        Controllers create parents first. A child that existed before may have been created to get into the gang.
        """
        kind, name = child
        created = self._places[namespace, kind, name].created
        return created < since, created, name, kind
