"""What the domains of a topology hold now: capacity, usage, what is free, nodes that are out, and what runs where.

Read from the engine's tree when somebody asks; nothing of it is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from admission.engine.topology.counting import PODS
from admission.engine.topology.nodes import untolerated
from admission.engine.topology.tree import Amounts, Leaf, add
from admission.model.topology import DomainCount, TopologyAssignment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from admission.engine.clusterqueue import Held
    from admission.engine.registry import Registry
    from admission.engine.topology.nodes import NodeState
    from admission.engine.topology.tree import Tree
    from admission.model.queues import FlavorToleration
    from admission.model.topology import Values
    from admission.model.workload import Admission, PodSetAssignment


@dataclass(slots=True)
class Space:
    """A domain, with the sums of everything below it. Amounts by resource, as in the model."""

    values: Values
    nodes: int = 0
    """Number of its nodes, including those that are out."""
    out: int = 0
    """Number of its nodes that get no pods at present."""
    whole: int = 0
    """Number of leaves on which nothing runs, and that are not out: nodes, in a tree with hostnames."""
    capacity: Amounts = field(default_factory=dict)
    """What its nodes can hold; those that are out hold nothing."""
    used: Amounts = field(default_factory=dict)
    """What workloads that are placed by topology hold."""
    others: Amounts = field(default_factory=dict)
    """What all other pods request."""
    free: Amounts = field(default_factory=dict)
    runs: list[tuple[int, int]] = field(default_factory=list)
    """Of a leaf: (index in `Occupancy.workloads`, number of pods)."""

    def include(self, below: Space) -> None:
        """Add a domain below this one."""
        self.nodes += below.nodes
        self.out += below.out
        self.whole += below.whole
        add(self.capacity, below.capacity, 1)
        add(self.used, below.used, 1)
        add(self.others, below.others, 1)
        add(self.free, below.free, 1)


class OutNode(NamedTuple):
    """A node with the flavor's labels that gets no pods at present."""

    name: str
    why: str
    values: Values
    """Of its domain; empty if it lacks a level's label."""


@dataclass(slots=True)
class Occupancy:
    """The state of one flavor's topology."""

    topology: str
    levels: tuple[str, ...]
    resources: tuple[str, ...]
    """Those that ClusterQueues have quota for in the flavor."""
    total: Space
    by_level: list[list[Space]]
    """For each level its domains, sorted by values."""
    out: list[OutNode]
    workloads: list[Held]
    """Workloads with pods in the tree, to which `Space.runs` refers."""

    def most_free(self, level: int, resource: str) -> Space | None:
        """Return the domain of a level in which most of a resource is free; None: in none anything is."""
        best = max(self.by_level[level], key=lambda space: space.free.get(resource, 0), default=None)
        return best if best is not None and best.free.get(resource, 0) > 0 else None

    def most_whole(self, level: int) -> Space | None:
        """Return the domain of a level with most leaves on which nothing runs; None: there is no such leaf."""
        best = max(self.by_level[level], key=lambda space: space.whole, default=None)
        return best if best is not None and best.whole else None


def occupancy(registry: Registry, flavor: str) -> Callable[[], Occupancy] | None:
    """Return what computes the state of a flavor's topology; None: the flavor has no tree.

    With 10,000 nodes that takes long enough to be done in a thread. It reads copies of the collections; amounts of a
    leaf that changes meanwhile may be those of before or after, which a picture of the present allows.
    """
    placed = registry.placed
    tree = placed.topologies.trees.get(flavor) if placed is not None else None
    if placed is None or tree is None:
        return None
    resources = tuple(dict.fromkeys(_resources(registry, flavor)))
    tolerations = registry.forest.flavors[flavor].spec.tolerations
    nodes, held = [*placed.topologies.nodes_of(tree.cluster).values()], [*registry.held.values()]
    return partial(_occupancy, flavor, tree, [*tree.leaves.values()], nodes, held, resources, tolerations)


def located(registry: Registry, admission: Admission) -> Admission:
    """Return the admission with the domains of all levels above the nodes on which its pods are placed.

    Assignments have hostnames alone. Above a node that is unknown the values are empty.
    """
    placed = registry.placed
    if placed is None or not any(pod_set.topology for pod_set in admission.pod_sets):
        return admission
    trees = placed.topologies.trees
    return replace(admission, pod_sets=tuple(_located(trees, pod_set) for pod_set in admission.pod_sets))


def _located(trees: Mapping[str, Tree], pod_set: PodSetAssignment) -> PodSetAssignment:
    assignment = pod_set.topology
    tree = next((trees[flavor] for flavor in sorted(set(pod_set.flavors.values())) if flavor in trees), None)
    if assignment is None or tree is None or not tree.by_hostname or assignment.levels != tree.levels[-1:]:
        return pod_set
    above = ("",) * (len(tree.levels) - 1)
    domains = []
    for values, pods in assignment.domains:
        leaf = tree.leaves.get(values)
        domains.append(DomainCount((*above, *values) if leaf is None else leaf.values, pods))
    return replace(pod_set, topology=TopologyAssignment(tree.levels, tuple(domains)))


def _occupancy(
    flavor: str,
    tree: Tree,
    leaves: list[Leaf],
    nodes: list[NodeState],
    held: list[Held],
    resources: tuple[str, ...],
    tolerations: tuple[FlavorToleration, ...],
) -> Occupancy:
    out = [*nodes_out(tree, tolerations, nodes)]
    total = Space(())
    domains: dict[Values, Space] = {}
    away: dict[Values, int] = {}
    for node in out:
        if node.values:
            away[node.values] = away.get(node.values, 0) + 1
    for leaf in leaves:
        if leaf.present or leaf.values in away:
            domains[leaf.values] = _space(tree, leaf, away.get(leaf.values, 0), resources)
    for values, number in away.items():
        if values not in domains:
            domains[values] = Space(values, nodes=number, out=number)
    by_level = [*_by_level(domains, len(tree.levels))]
    for space in by_level[0]:
        total.include(space)
    workloads = [*_runs(held, tree, flavor, domains)]
    return Occupancy(tree.topology, tree.levels, resources, total, by_level, out, workloads)


def _resources(registry: Registry, flavor: str) -> Iterator[str]:
    for spec in registry.forest.specs.values():
        for group in spec.resource_groups:
            if any(quotas.name == flavor for quotas in group.flavors):
                yield from group.covered_resources


def nodes_out(tree: Tree, tolerations: tuple[FlavorToleration, ...], nodes: Iterable[NodeState]) -> Iterator[OutNode]:
    """Yield the nodes with the flavor's labels that get no pods, sorted by name."""
    for node in sorted(nodes, key=lambda node: node.name):
        labels = node.labels
        if any(labels.get(key) != value for key, value in tree.selector.items()):
            continue
        missing = [level for level in tree.levels if level not in labels]
        if missing:
            yield OutNode(node.name, f'has no label "{missing[0]}"', ())
            continue
        why = "is not ready" if not node.ready else "is cordoned" if node.unschedulable else ""
        why = why or ("is drained" if node.drained else "")
        if not why and tree.by_hostname and (taint := untolerated(node.taints, tolerations)) is not None:
            value = f"={taint.value}" if taint.value else ""
            why = f"has the taint {taint.key}{value}:{taint.effect}, which the flavor does not tolerate"
        if why:
            yield OutNode(node.name, why, tuple(labels[level] for level in tree.levels))


def _space(tree: Tree, leaf: Leaf, out: int, resources: tuple[str, ...]) -> Space:
    space = Space(leaf.values, out=out)
    space.nodes = max(len(leaf.nodes), out) if tree.by_hostname else len(leaf.nodes) + out
    held_out = bool(out) and space.nodes == out
    others = [*leaf.foreign.values()]
    for resource in resources:
        space.used[resource] = leaf.used.get(resource, 0)
        space.others[resource] = sum(amounts.get(resource, 0) for amounts in others)
        base = leaf.base.get(resource, 0)
        space.capacity[resource] = 0 if held_out else base + space.others[resource]
        space.free[resource] = 0 if held_out else max(0, base - space.used[resource])
    # System pods that request nothing of what quota is given for do not make a node useless for a workload.
    idle = not leaf.used.get(PODS, 0) and not any(space.others.values())
    space.whole = int(idle and not held_out)
    return space


def _by_level(leaves: dict[Values, Space], depth: int) -> Iterator[list[Space]]:
    levels = [[leaves[values] for values in sorted(leaves)]]
    for level in range(depth - 1, 0, -1):
        above: dict[Values, Space] = {}
        for space in levels[0]:
            values = space.values[:level]
            if values not in above:
                above[values] = Space(values)
            above[values].include(space)
        levels.insert(0, [*above.values()])
    yield from levels


def _runs(holders: Iterable[Held], tree: Tree, flavor: str, leaves: dict[Values, Space]) -> Iterator[Held]:
    """Note in the leaves which workloads have pods there, and yield these workloads."""
    by_key = {tree.key(values): space for values, space in leaves.items()}
    number = 0
    for held in holders:
        seen: dict[Values, int] = {}
        for pods in held.placed:
            if pods.flavor == flavor or tree.shares_nodes_with(pods.assignment, pods.cluster):
                for values, count in pods.assignment.domains:
                    if values in by_key:
                        seen[values] = seen.get(values, 0) + count
        if seen:
            for values, count in seen.items():
                by_key[values].runs.append((number, count))
            number += 1
            yield held
