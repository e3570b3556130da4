"""Quota arithmetic of a tree of ClusterQueues and Cohorts: quota, usage, available quota, borrowing and lending.

Leaves are ClusterQueues, inner nodes Cohorts. A flavor-resource (`fr`) is a small integer inside one tree; all amounts
are integers. The quota that a node keeps from its parent by a lending limit is its local quota; only usage beyond that
counts in the parent. The formulas are those of Kueue's `pkg/cache/scheduler/resource_node.go`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from admission.model.quantity import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BOUNDLESS = 1 << 100
"""Stands for unlimited quota inside a tree: larger than any sum of real amounts, so that arithmetic needs no cases."""

FlavorResource = tuple[str, str]
"""(flavor name, resource name)."""


@dataclass(frozen=True, slots=True)
class Quota:
    """Nominal quota and limits of one node for one flavor-resource; a limit of None: no limit."""

    nominal: int
    borrowing: int | None = None
    lending: int | None = None


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """Input of `build` for one node: name, parent's name ("" for none), quotas, and weight in fair sharing."""

    name: str
    parent: str
    quotas: Mapping[FlavorResource, Quota]
    weight: float = 1.0


@dataclass(slots=True, eq=False, repr=False)
class Node:
    """A ClusterQueue (`leaf`) or Cohort. The lists are indexed by flavor-resource."""

    name: str
    leaf: bool
    weight: float
    parent: Node | None = None
    path: tuple[Node, ...] = ()
    """The ancestors, from the parent to the root."""
    cohorts: list[Node] = field(default_factory=list)
    queues: list[Node] = field(default_factory=list)
    height: int = 0
    """The distance to the farthest leaf."""
    frs: tuple[int, ...] = ()
    """Flavor-resources that this node or a descendant has quota for."""
    declared: frozenset[int] = frozenset()
    """Flavor-resources that the node's own spec lists, even with a quota of 0."""
    nominal: list[int] = field(default_factory=list)
    """Nominal quota of the node itself."""
    borrowing: list[int | None] = field(default_factory=list)
    """Borrowing limits; None: no limit."""
    quota: list[int] = field(default_factory=list)
    """Own nominal quota plus the quota that the children lend (Kueue's `SubtreeQuota`)."""
    local: list[int] = field(default_factory=list)
    """Quota that is never lent to the parent (Kueue's `localQuota`)."""
    cap: list[int | None] = field(default_factory=list)
    """With a borrowing limit, the most usage that may count in the parent; None: no limit."""
    potential: list[int] = field(default_factory=list)
    """Quota available to the node if nothing else were in use (Kueue's `potentialAvailable`)."""
    usage: list[int] = field(default_factory=list)
    lendable: dict[str, int] = field(default_factory=dict)
    """Of a Cohort: `potential` by resource, summed over all flavors of the tree (Kueue's `calculateLendable`)."""

    @property
    def root(self) -> Node:
        """The root of the tree; the node itself if it has no parent."""
        return self.path[-1] if self.path else self


@dataclass(slots=True, eq=False, repr=False)
class Tree:
    """All nodes under one root, and the numbering of their flavor-resources."""

    root: Node
    frs: tuple[FlavorResource, ...]
    """The flavor-resources, sorted; their positions are the `fr` of nodes and usages."""
    index: dict[FlavorResource, int]
    """Flavor-resource to its position in `frs`."""
    queues: dict[str, Node]
    cohorts: dict[str, Node]


def build(queues: Iterable[NodeSpec], cohorts: Iterable[NodeSpec], known: Iterable[FlavorResource] = ()) -> Tree:
    """Build the tree of the given nodes, with no usage. They must have exactly one root and no cycle.

    `known` are further flavor-resources to number, for which no node has quota (an admission may still hold some).
    """
    specs = [(spec, False) for spec in cohorts] + [(spec, True) for spec in queues]
    frs = tuple(sorted({fr for spec, _ in specs for fr in spec.quotas} | set(known)))
    nodes = {Node(spec.name, leaf=leaf, weight=spec.weight, usage=[0] * len(frs)): spec for spec, leaf in specs}
    named = {node.name: node for node in nodes if not node.leaf}
    for node, spec in nodes.items():
        if spec.parent:
            node.parent = named[spec.parent]
            (node.parent.queues if node.leaf else node.parent.cohorts).append(node)
    (root,) = (node for node in nodes if node.parent is None)
    tree = Tree(
        root=root,
        frs=frs,
        index={fr: number for number, fr in enumerate(frs)},
        queues={node.name: node for node in nodes if node.leaf},
        cohorts=named,
    )
    _gather(root, tree, nodes)
    _spread(root, tree)
    return tree


def _gather(node: Node, tree: Tree, specs: Mapping[Node, NodeSpec]) -> None:
    """Set quota and limits of the subtree, from the leaves upwards."""
    quotas = specs[node].quotas
    granted = [quotas.get(fr) for fr in tree.frs]
    node.nominal = [_bound(quota.nominal) if quota else 0 for quota in granted]
    node.borrowing = [
        None if quota is None or quota.borrowing is None else _bound(quota.borrowing) for quota in granted
    ]
    node.quota = list(node.nominal)
    known = {tree.index[fr] for fr in quotas}
    node.declared = frozenset(known)
    for child in (*node.cohorts, *node.queues):
        _gather(child, tree, specs)
        known.update(child.frs)
        node.height = max(node.height, child.height + 1)
        for fr in child.frs:
            node.quota[fr] = _bound(node.quota[fr] + child.quota[fr] - child.local[fr])
    node.frs = tuple(sorted(known))
    lending = [None if quota is None or quota.lending is None else _bound(quota.lending) for quota in granted]
    node.local = [
        0 if limit is None else max(0, total - limit) for total, limit in zip(node.quota, lending, strict=True)
    ]
    node.cap = [
        None if limit is None else total - local + limit
        for total, local, limit in zip(node.quota, node.local, node.borrowing, strict=True)
    ]


def _spread(node: Node, tree: Tree) -> None:
    """Set the attributes that depend on the ancestors, from the root downwards."""
    parent = node.parent
    node.path = () if parent is None else (parent, *parent.path)
    node.potential = list(node.quota) if parent is None else []
    if parent is not None:
        for fr, total in enumerate(node.quota):
            most = node.local[fr] + parent.potential[fr]
            limit = node.borrowing[fr]
            node.potential.append(most if limit is None else min(total + limit, most))
    if not node.leaf:
        for fr, (_, resource) in enumerate(tree.frs):
            node.lendable[resource] = _bound(node.lendable.get(resource, 0) + node.potential[fr])
    for child in (*node.cohorts, *node.queues):
        _spread(child, tree)


def _bound(value: int) -> int:
    return BOUNDLESS if value >= UNLIMITED else value


def local_available(node: Node, fr: int) -> int:
    """Return the unused part of the node's local quota (Kueue's `LocalAvailable`)."""
    return max(0, node.local[fr] - node.usage[fr])


def available(node: Node, fr: int) -> int:
    """Return the quota that the node could use now (Kueue's `available`).

    Negative if a node on the path uses more than its quota, as after lowering quota; clamp to 0 for a ClusterQueue.
    """
    parent = node.parent
    if parent is None:
        return node.quota[fr] - node.usage[fr]
    free = available(parent, fr)
    used = node.usage[fr]
    local = node.local[fr]
    cap = node.cap[fr]
    if cap is not None:
        rest = cap - used + local if used > local else cap
        free = min(free, rest)
    return free + local - used if used < local else free


def usable(node: Node, fr: int, *, may_borrow: bool) -> int:
    """Return the quota that a ClusterQueue could use now for a workload; never negative."""
    free = available(node, fr)
    if not may_borrow:
        free = min(free, node.quota[fr] - node.usage[fr])
    return max(0, free)


def most_usable(node: Node, fr: int, *, may_borrow: bool) -> int:
    """Return the quota that a ClusterQueue could use for a workload if nothing were in use."""
    return node.potential[fr] if may_borrow else min(node.potential[fr], node.quota[fr])


def least_free(node: Node, fr: int, amount: int) -> float:
    """Return the least `available` of the parent with which `amount` is available to the node; infinite: never."""
    used, local, cap = node.usage[fr], node.local[fr], node.cap[fr]
    requested = amount - local + used if used < local else amount
    if cap is not None and requested > (cap - used + local if used > local else cap):
        return inf
    return requested


def add_usage(node: Node, fr: int, amount: int) -> None:
    """Add `amount` (may be negative) to the node's usage; the part beyond its local quota counts in the parent, too.

    Kueue's `addUsage`.
    """
    at: Node | None = node
    while at is not None and amount:
        local = at.local[fr]
        before = at.usage[fr]
        after = at.usage[fr] = before + amount
        amount = (after - local if after > local else 0) - (before - local if before > local else 0)
        at = at.parent


def remove_usage(node: Node, fr: int, amount: int) -> None:
    """Undo `add_usage` of the same amount (Kueue's `removeUsage`)."""
    add_usage(node, fr, -amount)


def borrows_with(node: Node, fr: int, amount: int) -> bool:
    """Whether the node borrows if it uses `amount` more (Kueue's `BorrowingWith`)."""
    return node.usage[fr] + amount > node.quota[fr]


def within_quota(node: Node, frs: Iterable[int]) -> bool:
    """Whether the node borrows none of `frs` (Kueue's `IsWithinNominalInResources`)."""
    return all(node.usage[fr] <= node.quota[fr] for fr in frs)


def fits(node: Node, usage: Mapping[int, int]) -> bool:
    """Whether all of `usage` is available to the node (Kueue's `Fits`)."""
    return all(amount <= max(0, available(node, fr)) for fr, amount in usage.items())


def limits_below(node: Node, fr: int, amount: int, *, ever: bool = False) -> tuple[tuple[str, int], ...]:
    """Return the limits on the path that leave less than `amount`, the narrowest first, and how much less.

    At the current usage, or (`ever`) with nothing in use. If none leaves less, the narrowest one is returned. A limit
    is named `Cohort research: nominalQuota`; for a Cohort without quota of its own: `the ClusterQueues in Cohort
    research: nominalQuota`.
    """
    found, kept = [], 0
    for at in (node, *node.path):
        used = 0 if ever else at.usage[fr]
        limit = 0 if at.parent is None else at.borrowing[fr]
        if limit is not None:
            field = "nominalQuota" if at.parent is None else "borrowingLimit"
            is_own = at.parent is not None or fr in at.declared
            kind = "ClusterQueue" if at.leaf else "Cohort" if is_own else "the ClusterQueues in Cohort"
            found.append((f"{kind} {at.name}: {field}", amount - (kept + at.quota[fr] + limit - used)))
        kept += max(0, at.local[fr] - used)  # local quota: not requested from the parent
    found.sort(key=lambda one: -one[1])
    return tuple(one for one in found if one[1] > 0) or (found[0],)


def lowest_subtree(queue: Node, fr: int, amount: int) -> tuple[int, bool]:
    """Return the borrowing level of `amount` more: the height of the lowest subtree on the path that can hold it.

    Also whether that subtree is smaller than the whole tree. If none can hold it: the height of the tree, and False.
    (Kueue's `FindHeightOfLowestSubtreeThatFits`.)
    """
    if not queue.path or not borrows_with(queue, fr, amount):
        return 0, bool(queue.path)
    remaining = amount - local_available(queue, fr)
    for node in queue.path:
        if not borrows_with(node, fr, remaining):
            return node.height, node.parent is not None
        remaining -= local_available(node, fr)
    return queue.path[-1].height, False
