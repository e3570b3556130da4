"""Leaves of a tree that are alike in what a placement asks of them: how much is free there, or which nodes they have.

A placement with a new demand judges each of the distinct answers once, instead of each of the leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from admission.engine.topology.nodes import NodeState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from admission.engine.topology.nodes import PodRules
    from admission.engine.topology.tree import Leaf, Log, Tree
    from admission.model.topology import NodeTaint

_SPARE = 4096
"""Keys beside two for each leaf that may be known before those which no leaf has any more are dropped."""
_KINDS = 16
"""Most sets of labels for which the kinds of nodes are kept."""
_VERDICTS = 64
"""Most rules for pods whose verdicts on the kinds of nodes are kept."""

Room = tuple[int, ...]
"""What is free on a leaf, of each of `Tree.resources`; at least 0."""
NodeKind = tuple["tuple[NodeTaint, ...]", tuple[str | None, ...]]
"""The taints of a node, and its values of some labels."""
K = TypeVar("K", Room, NodeKind)


class Alike(Generic[K]):
    """The key of each leaf, as a number; it follows the tree by a log of changes."""

    def __init__(self, tree: Tree, log: Log, key: Callable[[Leaf], K]) -> None:
        self._tree = tree
        self._log = log
        self._key: Callable[[Leaf], K] = key
        self._seen = -1
        self._numbers: dict[K, int] = {}
        self.of: list[int] = []
        """For each domain by number the number of its key, from 1; 0: an inner domain, or a leaf without nodes."""
        self.keys: list[K] = []
        """The keys in the order of their numbers."""
        self.numbering = object()
        """Another object once the keys have been numbered anew."""

    def follow(self) -> None:
        """Bring the keys up to the tree's present state."""
        tree, log = self._tree, self._log
        if self._seen == log.written:
            return
        changed: Iterable[Leaf]
        if self._seen < 0 or len(self.keys) > 2 * len(tree.leaves) + _SPARE:
            self.of, self.keys, self._numbers = [], [], {}
            self.numbering = object()
            changed = tree.leaves.values()
        else:
            changed = log.since(self._seen)
        self._seen = log.written
        of, numbers, keys = self.of, self._numbers, self.keys
        of.extend([0] * (len(tree.domains) - len(of)))
        for leaf in changed:
            number = 0
            if leaf.present:
                key = self._key(leaf)
                number = numbers.get(key, 0)
                if not number:
                    keys.append(key)
                    number = numbers[key] = len(keys)
            of[leaf.number] = number


class Rooms(Alike[Room]):
    """What is free on each leaf."""

    def __init__(self, tree: Tree, *, empty: bool) -> None:
        resources = tree.resources
        key = _room_if_empty if empty else _room
        super().__init__(tree, tree.changes, lambda leaf: key(leaf, resources))
        self._columns: list[list[int]] = [[] for _ in resources]
        self._columns_of: object = None

    def column(self, at: int, since: int) -> list[int]:
        """Return what is free of one resource in each room, from the one of this index on. Not to be changed."""
        if self._columns_of is not self.numbering:
            self._columns_of = self.numbering
            self._columns = [[] for _ in self._columns]
        column = self._columns[at]
        column += [room[at] for room in self.keys[len(column) :]]
        return column[since:] if since else column


def rooms(tree: Tree, *, empty: bool) -> Rooms:
    """Return what is free on each leaf; `empty`: as if no placed workload used anything."""
    found = tree.rooms.get(empty)
    if found is None:
        found = tree.rooms[empty] = Rooms(tree, empty=empty)
    found.follow()
    return found


def _room(leaf: Leaf, resources: tuple[str, ...]) -> Room:
    free = leaf.free
    return tuple([max(0, free.get(resource, 0)) for resource in resources])


def _room_if_empty(leaf: Leaf, resources: tuple[str, ...]) -> Room:
    free, less = leaf.base, leaf.assumed
    return tuple([max(0, free.get(resource, 0) - less.get(resource, 0)) for resource in resources])


class Verdicts:
    """Which nodes of a tree by hostname pods can run on by their rules, and how much they prefer them."""

    def __init__(self, tree: Tree, rules: PodRules) -> None:
        self._tree = tree
        self._rules = rules
        self._labels = rules.labels()
        self.kinds: Alike[NodeKind]
        self.excluded: list[str] = []
        """By number of a kind: why pods cannot run on its nodes; "" if they can."""
        self.scores: list[int] = []
        """By number of a kind: how much the pods prefer its nodes."""
        self.numbering: object = None
        """As of the kinds."""

    def follow(self) -> None:
        """Judge kinds of nodes that have not been judged."""
        self.kinds = self._kinds()
        if self.kinds.numbering is not self.numbering:
            self.numbering = self.kinds.numbering
            self.excluded, self.scores = [""], [0]
        for taints, values in self.kinds.keys[len(self.excluded) - 1 :]:
            labels = {key: value for key, value in zip(self._labels, values, strict=True) if value is not None}
            node = NodeState("", labels, {}, taints)
            why = self._rules.exclusion(node)
            self.excluded.append(why)
            self.scores.append(0 if why else self._rules.score(node))

    def _kinds(self) -> Alike[NodeKind]:
        tree, labels = self._tree, self._labels
        found = tree.kinds.pop(labels, None) or Alike(tree, tree.node_changes, lambda leaf: _kind(leaf, labels))
        tree.kinds[labels] = found
        if len(tree.kinds) > _KINDS:
            del tree.kinds[next(iter(tree.kinds))]
        found.follow()
        return found


def _kind(leaf: Leaf, labels: tuple[str, ...]) -> NodeKind:
    node = next(reversed(leaf.nodes.values()))
    return node.taints, tuple([node.labels.get(key) for key in labels]) if labels else ()


def verdicts(tree: Tree, rules: PodRules) -> Verdicts:
    """Return the present verdicts of rules for pods on the nodes of a tree by hostname."""
    found = tree.verdicts.pop(rules, None) or Verdicts(tree, rules)
    tree.verdicts[rules] = found
    if len(tree.verdicts) > _VERDICTS:
        del tree.verdicts[next(iter(tree.verdicts))]
    found.follow()
    return found
