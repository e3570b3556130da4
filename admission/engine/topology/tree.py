"""The tree of a flavor's domains, kept up to date by events of nodes, pods and admissions.

A domain that has lost all its nodes stays as an absent one: nodes that come back find it, with its usage. Counts of
what fits (`counting.py`) follow the tree by its log of changed leaves, so that a change costs what it touches.
"""

from __future__ import annotations

from itertools import takewhile
from operator import attrgetter
from typing import TYPE_CHECKING

from admission.model.topology import HOSTNAME
from admission.model.workload import LOCAL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.engine.topology.alike import Alike, NodeKind, Rooms, Verdicts
    from admission.engine.topology.counting import Demand, DomainCounts
    from admission.engine.topology.nodes import NodeState, PodRules
    from admission.model.topology import TopologyAssignment, Values

_COUNTS = 64
"""Most demands whose counts are kept."""

Amounts = dict[str, int]


class Domain:
    """A group of nodes with the same values of the labels of the first levels."""

    __slots__ = ("below", "children", "number", "parent", "present", "values")

    def __init__(self, number: int, values: Values, parent: Domain | None) -> None:
        self.number = number
        """Its index in lists of counts."""
        self.values = values
        self.parent = parent
        self.children: list[Domain] = []
        self.below: list[int] = []
        """The numbers of its children."""
        self.present = 0
        """Number of its nodes (leaf) or present children; 0: it is not in the tree at present."""


class Leaf(Domain):
    """A domain of the last level, with the amounts that decide how many pods fit."""

    __slots__ = ("assumed", "base", "foreign", "free", "nodes", "used")

    def __init__(self, number: int, values: Values, parent: Domain | None, used: Amounts) -> None:
        super().__init__(number, values, parent)
        self.nodes: dict[str, NodeState] = {}
        self.foreign: dict[str, Mapping[str, int]] = {}
        """Node to the requests of pods on it that are not placed by topology."""
        self.base: Amounts = {}
        """What its nodes can hold, without those pods."""
        self.used = used
        """What placed workloads use; trees with hostnames share it."""
        self.assumed: Amounts = {}
        """What earlier pod sets of the workload that is being placed use."""
        self.free: Amounts = {}
        """What is left: `base` without what is used, assumed, and charged by the running cycle. Can be negative."""

    def recount(self) -> None:
        """Compute what its nodes have anew, after a change of them or of pods on them."""
        base: Amounts = {}
        for node in self.nodes.values():
            add(base, node.allocatable, 1)
            if foreign := self.foreign.get(node.name):
                add(base, foreign, -1)
        self.base = base
        self.free = dict(base)
        add(self.free, self.used, -1)


class Log:
    """Which leaves have changed, in the order of their last changes."""

    def __init__(self) -> None:
        self._last: dict[Leaf, int] = {}
        """The number of the last change of each leaf, in ascending order."""
        self.written = 0
        """Number of changes so far."""

    def note(self, leaf: Leaf) -> None:
        """Note a change of a leaf."""
        self.written += 1
        self._last.pop(leaf, None)
        self._last[leaf] = self.written

    def since(self, change: int) -> list[Leaf]:
        """Return the leaves that have changed after the change of this number."""
        if change == self.written:
            return []
        return [leaf for leaf, _ in takewhile(lambda entry: entry[1] > change, reversed(self._last.items()))]


class Tree:
    """The domains of one flavor, by level."""

    def __init__(
        self, topology: str, levels: tuple[str, ...], selector: Mapping[str, str], cluster: str = LOCAL
    ) -> None:
        self.cluster = cluster
        """The cluster that its nodes are in."""
        self.topology = topology
        """The name of the Topology, for messages."""
        self.levels = levels
        self.selector = selector
        """The flavor's node labels."""
        self.by_hostname = levels[-1] == HOSTNAME
        """Whether each leaf is one node, which is known by its hostname alone."""
        self.domains: list[Domain] = []
        """All domains, absent ones too; the index is their number."""
        self.by_level: list[list[Domain]] = [[] for _ in levels]
        self.numbers: list[list[int]] = [[] for _ in levels]
        """The numbers of the domains in `by_level`."""
        self.leaves: dict[Values, Leaf] = {}
        """The leaves by their values, or by hostname alone."""
        self._by_values: dict[Values, Domain] = {}
        self.total = 0
        """Number of leaves that are present."""
        self.changes = Log()
        """Changes of what is free on leaves, and of their nodes."""
        self.node_changes = Log()
        self._ranks: list[int] = []
        self._by_rank: list[Domain] = []
        self.in_order: list[list[int]] = []
        """For each level the numbers of its domains, also former ones, in the order of values; as of `ranks()`."""
        self.resources: tuple[str, ...] = ()
        """Those of which nodes have anything."""
        self.rooms: dict[bool, Rooms] = {}
        self.kinds: dict[tuple[str, ...], Alike[NodeKind]] = {}
        self.verdicts: dict[PodRules, Verdicts] = {}
        self.counts: dict[Demand, DomainCounts] = {}

    def key(self, values: Values) -> Values:
        """Return the key of the leaf with these values in `leaves` and in assignments."""
        return values[-1:] if self.by_hostname else values

    def shares_nodes_with(self, placed: TopologyAssignment, cluster: str) -> bool:
        """Whether pods of another flavor that are placed so may be on nodes that are leaves of this tree."""
        return self.by_hostname and placed.levels[-1] == HOSTNAME and cluster == self.cluster

    def ranks(self) -> list[int]:
        """Return for each domain its position in the order of values, by number."""
        if len(self._ranks) != len(self.domains):
            self._by_rank += self.domains[len(self._by_rank) :]
            self._by_rank.sort(key=attrgetter("values"))  # nearly in order already
            self._ranks = [0] * len(self.domains)
            self.in_order = [[] for _ in self.levels]
            for rank, domain in enumerate(self._by_rank):
                self._ranks[domain.number] = rank
                self.in_order[len(domain.values) - 1].append(domain.number)
        return self._ranks

    def by_rank(self) -> list[Domain]:
        """Return all domains in the order of values."""
        self.ranks()
        return self._by_rank

    def below(self, values: Values) -> list[Leaf]:
        """Return the leaves of the domain with these values."""
        found = self._by_values.get(values)
        domains = [found] if found is not None else []
        for _ in range(len(values), len(self.levels)):
            domains = [child for domain in domains for child in domain.children]
        return [leaf for leaf in domains if isinstance(leaf, Leaf)]

    def level(self, index: int) -> list[Domain]:
        """Return the domains of a level that are present."""
        return [domain for domain in self.by_level[index] if domain.present]

    def place_node(self, node: NodeState, values: Values, foreign: Mapping[str, int], used: Amounts) -> None:
        """Add a node, or update it in its leaf; `foreign`: requests of pods on it that are not placed by topology."""
        leaf = self.leaves.get(self.key(values))
        if leaf is not None and leaf.values != values:  # the same hostname has moved to another rack
            self._forget(leaf)
            leaf = None
        if leaf is None:
            leaf = self._grow(values, used)
        if node.name not in leaf.nodes:
            self._enter(leaf)
        leaf.nodes[node.name] = node
        leaf.foreign[node.name] = foreign
        leaf.recount()
        if more := tuple(resource for resource in leaf.base if resource not in self.resources):
            self.resources += more
            self.rooms.clear()
        self._note(leaf)

    def take_node(self, name: str, values: Values) -> None:
        """Remove a node from its leaf."""
        leaf = self.leaves.get(self.key(values))
        if leaf is None or name not in leaf.nodes:
            return
        del leaf.nodes[name]
        leaf.foreign.pop(name, None)
        leaf.recount()
        self._note(leaf)
        domain: Domain | None = leaf
        while domain is not None:
            domain.present -= 1
            if domain.present:
                break
            domain = domain.parent
        self.total -= not leaf.present

    def _note(self, leaf: Leaf) -> None:
        self.changes.note(leaf)
        self.node_changes.note(leaf)

    def _enter(self, leaf: Leaf) -> None:
        self.total += not leaf.present
        domain: Domain | None = leaf
        while domain is not None:
            domain.present += 1
            if domain.present > 1:
                break
            domain = domain.parent

    def _grow(self, values: Values, used: Amounts) -> Leaf:
        parent: Domain | None = None
        for depth in range(1, len(values)):
            domain = self._by_values.get(values[:depth])
            if domain is None:
                domain = self._add(Domain(len(self.domains), values[:depth], parent), depth - 1)
            parent = domain
        leaf = Leaf(len(self.domains), values, parent, used)
        self._add(leaf, len(values) - 1)
        self.leaves[self.key(values)] = leaf
        return leaf

    def _add(self, domain: Domain, level: int) -> Domain:
        self.domains.append(domain)
        self.by_level[level].append(domain)
        self.numbers[level].append(domain.number)
        self._by_values[domain.values] = domain
        if domain.parent is not None:
            domain.parent.children.append(domain)
            domain.parent.below.append(domain.number)
        return domain

    def _forget(self, leaf: Leaf) -> None:
        for name in list(leaf.nodes):
            self.take_node(name, leaf.values)
        self.by_level[-1].remove(leaf)
        self.numbers[-1].remove(leaf.number)
        del self._by_values[leaf.values], self.leaves[self.key(leaf.values)]
        if leaf.parent is not None:
            leaf.parent.children.remove(leaf)
            leaf.parent.below.remove(leaf.number)

    def remember(self, demand: Demand, counts: DomainCounts) -> None:
        """Keep the counts of a demand, and drop those that were used longest ago."""
        self.counts[demand] = counts
        while len(self.counts) > _COUNTS:
            del self.counts[next(iter(self.counts))]


def add(total: Amounts, amounts: Mapping[str, int], times: int) -> None:
    """Add amounts to `total` in place, each `times` times; a negative number of times subtracts."""
    for resource, amount in amounts.items():
        total[resource] = total.get(resource, 0) + amount * times
