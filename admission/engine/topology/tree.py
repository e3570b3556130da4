"""The tree of a flavor's domains, kept up to date by events of nodes, pods and admissions.

A domain that has lost all its nodes stays as an absent one: nodes that come back find it, with its usage. Counts of
what fits (`counting.py`) follow the tree by its log of changed leaves, so that a change costs what it touches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.model.topology import HOSTNAME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.engine.topology.counting import Counts, Demand
    from admission.engine.topology.nodes import NodeState
    from admission.model.topology import Values

_LOG = 4096
"""Most entries of the log of changed leaves, if the tree has fewer leaves than that."""
_COUNTS = 64
"""Most demands whose counts are kept."""

Amounts = dict[str, int]


class Domain:
    """A group of nodes with the same values of the labels of the first levels."""

    __slots__ = ("children", "number", "parent", "present", "values")

    def __init__(self, number: int, values: Values, parent: Domain | None) -> None:
        self.number = number
        """Its index in lists of counts."""
        self.values = values
        self.parent = parent
        self.children: list[Domain] = []
        self.present = 0
        """Number of its nodes (leaf) or present children; 0: it is not in the tree at present."""


class Leaf(Domain):
    """A domain of the last level, with the amounts that decide how many pods fit."""

    __slots__ = ("assumed", "base", "extra", "foreign", "nodes", "used")

    def __init__(self, number: int, values: Values, parent: Domain | None, used: Amounts) -> None:
        super().__init__(number, values, parent)
        self.nodes: dict[str, NodeState] = {}
        self.foreign: dict[str, Mapping[str, int]] = {}
        """Node to the requests of pods on it that are not placed by topology."""
        self.base: Amounts = {}
        """What its nodes can hold, without those pods."""
        self.used = used
        """What placed workloads use; trees with hostnames share it."""
        self.extra: Amounts = {}
        """Usage that the running cycle adds, or takes away, in this tree alone."""
        self.assumed: Amounts = {}
        """What earlier pod sets of the workload that is being placed use."""

    def recount(self) -> None:
        """Compute `base` anew after a change of its nodes or of pods on them."""
        base: Amounts = {}
        for node in self.nodes.values():
            add(base, node.allocatable, 1)
            if foreign := self.foreign.get(node.name):
                add(base, foreign, -1)
        self.base = base


class Tree:
    """The domains of one flavor, by level."""

    def __init__(self, topology: str, levels: tuple[str, ...], selector: Mapping[str, str]) -> None:
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
        self.leaves: dict[Values, Leaf] = {}
        """The leaves by their values, or by hostname alone."""
        self._by_values: dict[Values, Domain] = {}
        self.total = 0
        """Number of leaves that are present."""
        self.changed: list[Leaf] = []
        """The log of changed leaves: what was appended after a count was made is new to it."""
        self.epoch = 0
        """Incremented when the log begins anew or a domain is added: then counts of before are of no use."""
        self._ranks: list[int] = []
        self._ranked = -1
        self.counts: dict[Demand, Counts] = {}

    def key(self, values: Values) -> Values:
        """Return the key of the leaf with these values in `leaves` and in assignments."""
        return values[-1:] if self.by_hostname else values

    def ranks(self) -> list[int]:
        """Return for each domain its position in the order of values, by number."""
        if self._ranked != len(self.domains):
            self._ranked = len(self.domains)
            self._ranks = [0] * self._ranked
            for rank, domain in enumerate(sorted(self.domains, key=lambda domain: domain.values)):
                self._ranks[domain.number] = rank
        return self._ranks

    def level(self, index: int) -> list[Domain]:
        """Return the domains of a level that are present."""
        return [domain for domain in self.by_level[index] if domain.present]

    def touch(self, leaf: Leaf) -> None:
        """Note that the amounts of a leaf have changed."""
        self.changed.append(leaf)
        if len(self.changed) > max(_LOG, 2 * len(self.leaves)):
            self._restart()

    def _restart(self) -> None:
        self.changed.clear()
        self.epoch += 1

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
        self.touch(leaf)

    def take_node(self, name: str, values: Values) -> None:
        """Remove a node from its leaf."""
        leaf = self.leaves.get(self.key(values))
        if leaf is None or name not in leaf.nodes:
            return
        del leaf.nodes[name]
        leaf.foreign.pop(name, None)
        leaf.recount()
        self.touch(leaf)
        domain: Domain | None = leaf
        while domain is not None:
            domain.present -= 1
            if domain.present:
                break
            domain = domain.parent
        self.total -= not leaf.present

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
        self._by_values[domain.values] = domain
        if domain.parent is not None:
            domain.parent.children.append(domain)
        self._restart()
        return domain

    def _forget(self, leaf: Leaf) -> None:
        for name in list(leaf.nodes):
            self.take_node(name, leaf.values)
        self.by_level[-1].remove(leaf)
        del self._by_values[leaf.values], self.leaves[self.key(leaf.values)]
        if leaf.parent is not None:
            leaf.parent.children.remove(leaf)
        self._restart()

    def remember(self, demand: Demand, counts: Counts) -> None:
        """Keep the counts of a demand, and drop those that were used longest ago."""
        self.counts[demand] = counts
        while len(self.counts) > _COUNTS:
            del self.counts[next(iter(self.counts))]


def add(total: Amounts, amounts: Mapping[str, int], times: int) -> None:
    """Add amounts to `total` in place, each `times` times; a negative number of times subtracts."""
    for resource, amount in amounts.items():
        total[resource] = total.get(resource, 0) + amount * times
