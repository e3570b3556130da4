"""The trees of all flavors with a topology, and the usage of placed workloads: state that events change."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from admission.engine.topology.placement import Rules
from admission.engine.topology.tree import Amounts, Tree, add
from admission.model.topology import HOSTNAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from admission.engine.topology.nodes import NodeState
    from admission.model.queues import ResourceFlavor
    from admission.model.topology import TopologyAssignment, Values


class PlacedPods(NamedTuple):
    """Pods of one pod set in the tree of a flavor."""

    flavor: str
    assignment: TopologyAssignment
    requests: tuple[tuple[str, int], ...]
    """Requests of one pod, with one of `pods`."""


class TreeSpec(NamedTuple):
    """What the tree of a flavor is made from."""

    topology: str
    levels: tuple[str, ...]
    selector: Mapping[str, str]


class Topologies:
    """Trees by flavor, nodes, pods beside placed workloads, and the usage of placed workloads."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()
        self.trees: dict[str, Tree] = {}
        self._specs: dict[str, TreeSpec] = {}
        self._nodes: dict[str, NodeState] = {}
        self._drained: set[str] = set()
        self._pods: dict[str, tuple[str, Mapping[str, int]]] = {}
        """Uid of a pod that is not placed by topology, to its node and requests with one of `pods`."""
        self._foreign: dict[str, Amounts] = {}
        """Node to the requests of these pods."""
        self._used: dict[tuple[str, Values], Amounts] = {}
        """(flavor, values) of a leaf to the usage of placed workloads; for hostnames the flavor is empty."""
        self.version = 0
        """Incremented by every change that may let another workload fit, or fit no more."""

        self.named: Mapping[str, str] = {}
        """Flavor to the name of its Topology, whether that exists or not."""
        self.levels: dict[str, tuple[str, ...]] = {}
        """The levels of each Topology that exists."""

    # --- flavors

    def missing(self, flavor: str) -> str:
        """Return the Topology that a flavor names and that does not exist; "" if there is none such."""
        name = self.named.get(flavor, "")
        return name if name not in self.levels else ""

    def follow(self, flavors: Mapping[str, ResourceFlavor]) -> bool:
        """Have a tree for each of these flavors that has a topology. Returns whether any tree is another one now."""
        self.named = {name: flavor.spec.topology_name for name, flavor in flavors.items() if flavor.spec.topology_name}
        specs = {
            flavor: TreeSpec(name, self.levels[name], flavors[flavor].spec.node_labels)
            for flavor, name in self.named.items()
            if name in self.levels
        }
        return self.set_flavors(specs)

    def set_flavors(self, specs: Mapping[str, TreeSpec]) -> bool:
        """Build the trees of new or changed flavors, and forget those that are gone. Returns whether any changed."""
        if specs == self._specs:
            return False
        for flavor in self._specs.keys() - specs.keys():
            del self.trees[flavor]
        for flavor, spec in specs.items():
            if self._specs.get(flavor) != spec:
                self.trees[flavor] = self._build(flavor, spec)
        self._specs = dict(specs)
        self.version += 1
        return True

    def _build(self, flavor: str, spec: TreeSpec) -> Tree:
        tree = Tree(spec.topology, spec.levels, spec.selector)
        for node in self._nodes.values():
            self._put(flavor, tree, node)
        return tree

    def _put(self, flavor: str, tree: Tree, node: NodeState) -> None:
        values = node.values(tree.selector, tree.levels) if node.usable else None
        if values is not None:
            used = self._usage(flavor, values, by_hostname=tree.by_hostname)
            tree.place_node(node, values, self._foreign.get(node.name, {}), used)

    def _usage(self, flavor: str, values: Values, *, by_hostname: bool) -> Amounts:
        key = ("", values[-1:]) if by_hostname else (flavor, values)
        return self._used.setdefault(key, {})

    # --- nodes, and pods that are not placed by topology

    def drain(self, names: set[str]) -> None:
        """Keep new pods away from these nodes, and from no others."""
        changed, self._drained = self._drained ^ names, names
        for name in sorted(changed):
            if (node := self._nodes.get(name)) is not None:
                self.node_changed(node)

    def node_changed(self, node: NodeState) -> bool:
        """Add or update a node; returns whether a tree contained it before or contains it now."""
        if node.drained is not (node.name in self._drained):
            node = replace(node, drained=node.name in self._drained)
        before = self._nodes.get(node.name)
        self._nodes[node.name] = node
        return before != node and self._move(before, node)

    def node_gone(self, name: str) -> bool:
        """Remove a node; returns whether a tree contained it."""
        before = self._nodes.pop(name, None)
        return before is not None and self._move(before, None)

    def _move(self, before: NodeState | None, now: NodeState | None) -> bool:
        concerned = False
        for flavor, tree in self.trees.items():
            matched = [node for node in (before, now) if node is not None and node.values(tree.selector, tree.levels)]
            concerned |= bool(matched)
            old = before.values(tree.selector, tree.levels) if before is not None and before.usable else None
            new = now.values(tree.selector, tree.levels) if now is not None and now.usable else None
            if before is not None and old is not None and old != new:
                tree.take_node(before.name, old)
            if now is not None and new is not None:
                self._put(flavor, tree, now)
        self.version += concerned
        return concerned

    def flavors_of(self, node: str) -> set[str]:
        """Return the flavors whose nodes this one is among, by its labels."""
        known = self._nodes.get(node)
        if known is None:
            return set()
        return {flavor for flavor, tree in self.trees.items() if known.values(tree.selector, tree.levels)}

    @property
    def nodes(self) -> Mapping[str, NodeState]:
        """All nodes by name."""
        return self._nodes

    def pod_bound(self, uid: str, node: str, requests: Mapping[str, int]) -> str:
        """A pod that is not placed by topology runs on a node, or its requests have changed.

        Returns the node of which it has freed a part, as it is on another one or has become smaller; "" if none.
        """
        where, had = self._pods.get(uid, ("", {}))
        if (where, had) == (node, requests):
            return ""
        self.pod_ended(uid)
        self._pods[uid] = node, requests
        self._account(node, requests, 1)
        return where if where != node or any(had[name] > requests.get(name, 0) for name in had) else ""

    def pod_ended(self, uid: str) -> str:
        """Such a pod has ended or is gone; returns the node on which it was, "" if it is not known."""
        node, requests = self._pods.pop(uid, ("", {}))
        if node:
            self._account(node, requests, -1)
        return node

    def _account(self, node: str, requests: Mapping[str, int], sign: int) -> None:
        foreign = self._foreign.setdefault(node, {})
        add(foreign, requests, sign)
        add(foreign, {"pods": 1}, sign)
        known = self._nodes.get(node)
        if known is None:
            return
        for flavor, tree in self.trees.items():
            self._put(flavor, tree, known)
        self.version += 1

    # --- usage

    def hold(self, pods: Iterable[PlacedPods], sign: int) -> None:
        """Add (1) or remove (-1) the usage of a workload that holds quota; all trees with the same hostnames see it."""
        for flavor, assignment, requests in pods:
            by_hostname = assignment.levels[-1] == HOSTNAME
            for values, count in assignment.domains:
                amounts, times = dict(requests), count * sign
                add(self._usage(flavor, values, by_hostname=by_hostname), amounts, times)
                for other in self.trees.values() if by_hostname else self._own(flavor):
                    if (leaf := other.leaves.get(values)) is not None and other.by_hostname is by_hostname:
                        add(leaf.free, amounts, -times)
                        other.changes.note(leaf)
        self.version += 1

    def _own(self, flavor: str) -> tuple[Tree, ...]:
        return (self.trees[flavor],) if flavor in self.trees else ()

    def charge(self, pods: Iterable[PlacedPods], sign: int) -> None:
        """Add or remove usage during a cycle, in the tree of its own flavor only, as Kueue's snapshot does."""
        for flavor, assignment, requests in pods:
            amounts = dict(requests)
            for tree in self._own(flavor):
                for values, count in assignment.domains:
                    if (leaf := tree.leaves.get(values)) is not None:
                        add(leaf.free, amounts, -count * sign)
                        tree.changes.note(leaf)

    def assume(self, pods: PlacedPods, sign: int) -> None:
        """Add or remove usage of an earlier pod set of the workload that is being placed."""
        flavor, assignment, requests = pods
        by_hostname, amounts = assignment.levels[-1] == HOSTNAME, dict(requests)
        for tree in self.trees.values() if by_hostname else self._own(flavor):
            if tree.by_hostname is not by_hostname:
                continue
            for values, count in assignment.domains:
                if (leaf := tree.leaves.get(values)) is not None:
                    add(leaf.assumed, amounts, count * sign)
                    add(leaf.free, amounts, -count * sign)
                    tree.changes.note(leaf)

    def holds(self, pods: Iterable[PlacedPods], freed: Iterable[PlacedPods] = (), *, ignored: str = "") -> bool:
        """Whether every assigned domain exists and has room for its pods at the present usage without `freed`.

        `ignored` is a resource that is not looked at.
        """
        wanted: dict[tuple[str, Values], Amounts] = {}
        for flavor, assignment, requests in pods:
            for values, count in assignment.domains:
                add(wanted.setdefault((flavor, values), {}), dict(requests), count)
        for flavor, assignment, requests in freed:
            for values, count in assignment.domains:
                if (amounts := wanted.get((flavor, values))) is not None:
                    add(amounts, {name: amount for name, amount in requests if name in amounts}, -count)
        for (flavor, values), amounts in wanted.items():
            tree = self.trees.get(flavor)
            leaf = tree.leaves.get(values) if tree is not None else None
            if leaf is None or not leaf.present:
                return False
            for resource, amount in amounts.items():
                if amount > leaf.free.get(resource, 0) and resource != ignored:
                    return False
        return True
