"""The trees of all flavors with a topology, and the usage of placed workloads: state that events change."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from admission.engine.topology.placement import Rules
from admission.engine.topology.tree import Amounts, Tree, add
from admission.model.topology import HOSTNAME
from admission.model.workload import LOCAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from admission.engine.topology.nodes import NodeState
    from admission.model.queues import ResourceFlavor
    from admission.model.topology import TopologyAssignment, Values


class PlacedPods(NamedTuple):
    """Pods of one pod set in the tree of a flavor."""

    flavor: str
    assignment: TopologyAssignment
    requests: tuple[tuple[str, int], ...]
    """Requests of one pod, with one of `pods`."""
    cluster: str = LOCAL
    """The cluster in which they run."""


class TreeSpec(NamedTuple):
    """What the tree of a flavor is made from."""

    topology: str
    levels: tuple[str, ...]
    selector: Mapping[str, str]
    cluster: str = LOCAL


class ClusterNodes:
    """The nodes of one cluster, and what takes room on them. Nodes of two clusters may have the same name."""

    def __init__(self) -> None:
        self.by_name: dict[str, NodeState] = {}
        self.pods: dict[str, tuple[str, Mapping[str, int]]] = {}
        """Uid of a pod that is not placed by topology, to its node and requests with one of `pods`."""
        self.foreign: dict[str, Amounts] = {}
        """Node to the requests of these pods."""
        self.used: dict[Values, Amounts] = {}
        """Hostname to the usage of placed workloads, of all flavors."""


class Topologies:
    """Trees by flavor, nodes, pods beside placed workloads, and the usage of placed workloads."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()
        self.trees: dict[str, Tree] = {}
        self._specs: dict[str, TreeSpec] = {}
        self._clusters: defaultdict[str, ClusterNodes] = defaultdict(ClusterNodes)
        self._drained: set[tuple[str, str]] = set()
        """(cluster, name) of the nodes that get no new pods."""
        self._used: dict[tuple[str, Values], Amounts] = {}
        """(flavor, values) of a leaf that is no single node to the usage of placed workloads."""
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
            flavor: TreeSpec(name, self.levels[name], flavors[flavor].spec.node_labels, flavors[flavor].spec.cluster)
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
        tree = Tree(spec.topology, spec.levels, spec.selector, spec.cluster)
        for node in self._clusters[spec.cluster].by_name.values():
            self._put(flavor, tree, node)
        return tree

    def _put(self, flavor: str, tree: Tree, node: NodeState) -> None:
        values = node.values(tree.selector, tree.levels) if node.usable else None
        if values is not None:
            used = self._usage(flavor, values, tree.cluster if tree.by_hostname else None)
            tree.place_node(node, values, self._clusters[tree.cluster].foreign.get(node.name, {}), used)

    def _usage(self, flavor: str, values: Values, host_in: str | None) -> Amounts:
        """Return the usage of a leaf. `host_in`: its cluster if it is a single node, else None."""
        if host_in is not None:
            return self._clusters[host_in].used.setdefault(values[-1:], {})
        return self._used.setdefault((flavor, values), {})

    def _in(self, cluster: str) -> Iterator[tuple[str, Tree]]:
        """Yield the flavors with nodes in a cluster, and their trees."""
        return ((flavor, tree) for flavor, tree in self.trees.items() if tree.cluster == cluster)

    # --- nodes, and pods that are not placed by topology

    def drain(self, nodes: set[tuple[str, str]]) -> None:
        """Keep new pods away from these nodes (cluster, name), and from no others."""
        changed, self._drained = self._drained ^ nodes, nodes
        for cluster, name in sorted(changed):
            if (node := self.nodes_of(cluster).get(name)) is not None:
                self.node_changed(node, cluster)

    def node_changed(self, node: NodeState, cluster: str = LOCAL) -> bool:
        """Add or update a node; returns whether a tree contained it before or contains it now."""
        nodes = self._clusters[cluster]
        if node.drained is not (is_drained := (cluster, node.name) in self._drained):
            node = replace(node, drained=is_drained)
        before = nodes.by_name.get(node.name)
        nodes.by_name[node.name] = node
        return before != node and self._move(before, node, cluster)

    def node_gone(self, name: str, cluster: str = LOCAL) -> bool:
        """Remove a node; returns whether a tree contained it."""
        before = self._clusters[cluster].by_name.pop(name, None)
        return before is not None and self._move(before, None, cluster)

    def _move(self, before: NodeState | None, now: NodeState | None, cluster: str) -> bool:
        concerned = False
        for flavor, tree in self._in(cluster):
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

    def forget(self, cluster: str) -> None:
        """Remove all nodes of a cluster, and the pods on them."""
        nodes = self._clusters[cluster]
        for uid in [*nodes.pods]:
            self.pod_ended(uid, cluster)
        for name in [*nodes.by_name]:
            self.node_gone(name, cluster)

    def flavors_of(self, node: str, cluster: str) -> set[str]:
        """Return the flavors whose nodes this one is among, by its labels."""
        known = self._clusters[cluster].by_name.get(node)
        if known is None:
            return set()
        return {flavor for flavor, tree in self._in(cluster) if known.values(tree.selector, tree.levels)}

    def nodes_of(self, cluster: str = LOCAL) -> Mapping[str, NodeState]:
        """Return all nodes of a cluster by name."""
        return self._clusters[cluster].by_name

    def pod_bound(self, uid: str, node: str, requests: Mapping[str, int], cluster: str = LOCAL) -> str:
        """A pod that is not placed by topology runs on a node, or its requests have changed.

        Returns the node of which it has freed a part, as it is on another one or has become smaller; "" if none.
        """
        pods = self._clusters[cluster].pods
        where, had = pods.get(uid, ("", {}))
        if (where, had) == (node, requests):
            return ""
        self.pod_ended(uid, cluster)
        pods[uid] = node, requests
        self._account(node, requests, 1, cluster)
        return where if where != node or any(had[name] > requests.get(name, 0) for name in had) else ""

    def pod_ended(self, uid: str, cluster: str = LOCAL) -> str:
        """Such a pod has ended or is gone; returns the node on which it was, "" if it is not known."""
        node, requests = self._clusters[cluster].pods.pop(uid, ("", {}))
        if node:
            self._account(node, requests, -1, cluster)
        return node

    def _account(self, node: str, requests: Mapping[str, int], sign: int, cluster: str) -> None:
        nodes = self._clusters[cluster]
        foreign = nodes.foreign.setdefault(node, {})
        add(foreign, requests, sign)
        add(foreign, {"pods": 1}, sign)
        known = nodes.by_name.get(node)
        if known is None:
            return
        for flavor, tree in self._in(cluster):
            self._put(flavor, tree, known)
        self.version += 1

    # --- usage

    def hold(self, pods: Iterable[PlacedPods], sign: int) -> None:
        """Add (1) or remove (-1) the usage of a workload that holds quota."""
        for flavor, assignment, requests, cluster in pods:
            by_hostname = assignment.levels[-1] == HOSTNAME
            trees = self._seeing(flavor, assignment, cluster)
            for values, count in assignment.domains:
                amounts, times = dict(requests), count * sign
                add(self._usage(flavor, values, cluster if by_hostname else None), amounts, times)
                for other in trees:
                    if (leaf := other.leaves.get(values)) is not None:
                        add(leaf.free, amounts, -times)
                        other.changes.note(leaf)
        self.version += 1

    def _seeing(self, flavor: str, assignment: TopologyAssignment, cluster: str) -> list[Tree]:
        """Return the trees that such usage concerns: all with the same hostnames, or that of its own flavor."""
        if assignment.levels[-1] == HOSTNAME:
            return [tree for _, tree in self._in(cluster) if tree.by_hostname]
        return [tree for tree in self._own(flavor) if not tree.by_hostname]

    def _own(self, flavor: str) -> tuple[Tree, ...]:
        return (self.trees[flavor],) if flavor in self.trees else ()

    def charge(self, pods: Iterable[PlacedPods], sign: int) -> None:
        """Add or remove usage during a cycle, in the tree of its own flavor only, as Kueue's snapshot does."""
        for flavor, assignment, requests, _ in pods:
            amounts = dict(requests)
            for tree in self._own(flavor):
                for values, count in assignment.domains:
                    if (leaf := tree.leaves.get(values)) is not None:
                        add(leaf.free, amounts, -count * sign)
                        tree.changes.note(leaf)

    def assume(self, pods: PlacedPods, sign: int) -> None:
        """Add or remove usage of an earlier pod set of the workload that is being placed."""
        flavor, assignment, requests, cluster = pods
        amounts = dict(requests)
        for tree in self._seeing(flavor, assignment, cluster):
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
        for flavor, assignment, requests, _ in pods:
            for values, count in assignment.domains:
                add(wanted.setdefault((flavor, values), {}), dict(requests), count)
        for flavor, assignment, requests, _ in freed:
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
