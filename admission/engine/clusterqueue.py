"""State of a ClusterQueue in the engine: its node in the quota tree, pending workloads, workloads that hold quota."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from admission.engine.matching import elsewhere, mismatch
from admission.engine.pending import PendingQueue
from admission.engine.pending_item import lowered_priority
from admission.engine.topology.workloads import obstacle
from admission.engine.tree import add_usage, available, remove_usage
from admission.model.provisioning import CONTROLLER
from admission.model.quantity import add, together
from admission.model.queues import ClusterQueueSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from admission.engine.assignment import KnownFit
    from admission.engine.backfill import Head
    from admission.engine.concurrent_admission import MigrationPolicy
    from admission.engine.pending_item import Item, Shape
    from admission.engine.protection import Protection
    from admission.engine.topology.state import PlacedPods, Topologies
    from admission.engine.tree import FlavorResource, Node, Tree
    from admission.engine.verdicts import Verdict
    from admission.model.queues import ResourceFlavor
    from admission.model.workload import Admission, PodSet, Workload

PODS = "pods"
"""The implicit resource: each pod requests one, if the ClusterQueue has quota for it."""


@dataclass(slots=True, eq=False)
class Held:
    """A workload that holds quota, from its admission until its pods have terminated."""

    workload: Workload
    admission: Admission
    queue: ClusterQueue
    usage: tuple[tuple[FlavorResource, int], ...]
    """(flavor-resource, amount) pairs: `((("spot", "cpu"), 4000),)`."""
    admitted_at: float
    """Unix time (s) of the admission."""
    evicting: bool = False
    """Whether it is being evicted; it holds its quota until its pods have terminated."""
    amounts: tuple[tuple[int, int], ...] = ()
    """`usage` with the indices of the flavor-resources in the ClusterQueue's tree."""
    placed: tuple[PlacedPods, ...] = ()
    """Its pods that are placed by topology."""
    cleared_at: float = 0.0
    """Unix time (s) at which it could start, as all of its admission checks were ready; 0: at its admission, or not
    yet."""
    replaced: Held | None = None
    """Of a workload slice: the holder whose quota it took over, to be restored if the admission is not committed."""

    lowered: bool = False
    """Whether a policy lowers its priority now."""

    @property
    def priority(self) -> int:
        """The priority by which it may be preempted."""
        own = self.workload.priority
        return lowered_priority(own) if self.lowered else own

    @property
    def since(self) -> float:
        """Unix time (s) since when it was waiting before its admission."""
        return self.workload.since

    @property
    def ends_by(self) -> float:
        """Unix time (s) at which its time limit ends it, if it has not run before; infinite: it has none."""
        limit = self.workload.max_seconds
        return inf if limit is None else (self.cleared_at or self.admitted_at) + limit

    @property
    def local_queue(self) -> tuple[str, str]:
        """(namespace, name)."""
        return self.workload.namespace, self.workload.queue

    def by_resource(self) -> dict[str, int]:
        """Return the amounts that it holds by resource, summed over flavors."""
        total: dict[str, int] = {}
        for (_, resource), amount in self.usage:
            total[resource] = total.get(resource, 0) + amount
        return total


class Option(NamedTuple):
    """A flavor that the resources of a part could be assigned."""

    flavor: str
    mismatch: str
    """Why the pods cannot run on its nodes (cluster, taints, affinity), as Kueue's message; "" if they can."""
    frs: Mapping[str, int]
    """Resource to the index of the flavor-resource in the tree."""


class GroupRequest(NamedTuple):
    """The requested resources of one resource group: all of them get the same flavor."""

    group: int
    """Index of the resource group in the ClusterQueue's spec; -1: a resource without quota, which has no options."""
    resources: tuple[str, ...]
    options: tuple[Option, ...]
    """The flavors of the resource group, in the order in which they are tried."""


class Group(NamedTuple):
    """Pod sets that get the same flavors: those with the same `PodSet.group`, or a single one."""

    indices: tuple[int, ...]
    """The positions of the pod sets in the workload."""
    parts: tuple[GroupRequest, ...]


class Plan(NamedTuple):
    """The part of a shape's flavor assignment that does not depend on usage."""

    groups: tuple[Group, ...]
    requests: tuple[dict[str, int], ...]
    """For each pod set: resource to the amount for one pod, `pods` included."""
    full: tuple[dict[str, int], ...]
    """For each pod set: resource to the amount for all of its pods."""
    totals: tuple[dict[str, int], ...]
    """For each group: resource to the amount for all pods of its pod sets."""
    shared: tuple[Mapping[str, int], ...]
    """For each pod set: `PodSet.shared`."""

    def amounts(self, index: int, count: int) -> dict[str, int]:
        """Return what `count` pods of a pod set need together."""
        return together(self.requests[index], self.shared[index], count)


@dataclass(slots=True, eq=False)
class Facts:
    """Cached results for one shape in one ClusterQueue; outdated when `tree` is no longer the ClusterQueue's tree."""

    tree: Tree | None
    plan: Plan
    obstacles: tuple[tuple[int, int], ...] | None = None
    """If it did not fit: for each flavor, the index of a flavor-resource and the amount that must be available."""
    known_fit: KnownFit | None = None
    """The assignment that fitted, if a search finds the same one whenever that fits."""
    verdict: Verdict | None = None
    """Why workloads of the shape are pending, valid for the tree's version `judged_at`."""
    judged_at: int = -1
    never: bool | None = None
    """Whether workloads of the shape can never be admitted; None: not known, or dependent on the tree's usage."""


class ClusterQueue:
    """The state of a ClusterQueue, which outlives its tree. `node` and `tree` are None while it is in no tree."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.spec = ClusterQueueSpec()
        self.pending = PendingQueue()
        self.held: dict[str, Held] = {}
        """Workloads that hold quota, by uid."""
        self._by_priority: dict[int, dict[str, Held]] = {}
        self.generation = 0
        """Incremented whenever more quota may have become available here: then `Progress` may be outdated."""
        self.over_since: float | None = None
        """Unix time (s) since when its usage exceeds its quota; None: it does not, or there is no `overQuota`."""
        self.node: Node | None = None
        self.tree: Tree | None = None
        self.has_obstacles = False
        """Whether a workload did not fit since it was attached to this tree (see `Facts.obstacles`)."""
        self.protection: Protection | None = None
        """For how long its workloads are not preempted; None: they may be at any time."""
        self.time_slice: float | None = None
        """Seconds after which its workloads may be preempted by others of the same priority; None: never."""
        self.priority_interval = 0.0
        """Seconds in which waiting workloads gain a priority of 1 in their order; 0: none."""
        self.strict_after: float | None = None
        """Seconds after which a waiting workload is not overtaken any more; None: never."""
        self.head: Head | None = None
        """With `backfill`, the first workload if it does not fit."""
        self.migration: MigrationPolicy | None = None
        """How workloads move to better flavors; None: they are tried in one flavor after the other, and stay in it."""
        self.moving: PendingQueue | None = None
        """The movers of its workloads; None: they do not move."""
        self.leaving: dict[str, Item] = {}
        """The movers whose workloads are being evicted for them, by uid: each cycle keeps the quota for them."""
        self.inactive = "not found"
        """Why it admits no workload, to follow its name: `is stopped`; "" if it is active."""
        self.flavors: Mapping[str, ResourceFlavor] = {}
        """All ResourceFlavors by name."""
        self.clusters: Mapping[str, Mapping[str, str]] = {}
        """Labels of the clusters that have joined, by name."""
        self.topologies: Topologies | None = None
        """The trees of flavors with a topology; None: it has no such flavor."""
        self.provisioned: frozenset[str] = frozenset()
        """Flavors whose nodes are provisioned once quota is reserved: pods are placed on them afterwards."""
        self.only_topology = False
        """Whether all of its flavors have a topology, so that also pod sets without a request are placed."""

    def hold(self, held: Held) -> None:
        """Add a workload that holds quota."""
        uid = held.workload.uid
        self.held[uid] = held
        self._by_priority.setdefault(held.priority, {})[uid] = held

    def drop(self, held: Held) -> None:
        """Remove a workload whose quota was released."""
        uid, priority = held.workload.uid, held.priority
        del self.held[uid]
        del self._by_priority[priority][uid]
        if not self._by_priority[priority]:
            del self._by_priority[priority]

    def lower(self, held: Held, *, lowered: bool) -> None:
        """Have a workload that holds quota be preempted before all others, or by its own priority again."""
        self.drop(held)
        held.lowered = lowered
        self.hold(held)

    def held_up_to_priority(self, most: float) -> Iterator[Held]:
        """Return the workloads that hold quota and have a priority of at most `most`."""
        return (held for priority, group in self._by_priority.items() if priority <= most for held in group.values())

    def lowest_priority(self) -> float:
        """Return the lowest priority of the workloads that hold quota; infinite if there are none."""
        return min(self._by_priority, default=inf)

    def surely_blocked(self) -> Callable[[Shape], bool]:
        """Return a predicate: whether a shape certainly does not fit, by its cached obstacles.

        Valid until usage changes, and only for a ClusterQueue without a Cohort.
        """
        node, tree = self.node, self.tree
        if node is None:
            return lambda _: False
        frees: dict[int, int] = {}
        policy = self.spec.preemption.within_cluster_queue
        lowest = inf if policy == "Never" else self.lowest_priority()
        if policy == "LowerPriority" and self.time_slice is None:
            lowest += 1  # the lowest priority that could preempt a workload

        def blocked(shape: Shape) -> bool:
            facts = shape.facts.get(self)
            if facts is None or facts.tree is not tree or facts.obstacles is None or shape.priority >= lowest:
                return False
            for fr, amount in facts.obstacles:
                free = frees.get(fr)
                if free is None:
                    free = frees[fr] = available(node, fr)
                if free >= amount:
                    return False
            return True

        return blocked

    def attach(
        self, tree: Tree, flavors: Mapping[str, ResourceFlavor], clusters: Mapping[str, Mapping[str, str]]
    ) -> None:
        """Attach the ClusterQueue to its node in a newly built tree, and add the usage of its workloads there."""
        self.tree = tree
        self.node = tree.queues[self.name]
        self.has_obstacles = False
        self.flavors, self.clusters = flavors, clusters
        for held in self.held.values():
            self.count(held)

    def place_in(self, topologies: Topologies, checks: Mapping[str, str]) -> None:
        """Place workloads in the trees of its flavors, if any has a topology; `checks`: controllers by name."""
        flavors = {quotas.name for group in self.spec.resource_groups for quotas in group.flavors}
        named = flavors & topologies.named.keys()
        self.topologies = topologies if named else None
        self.only_topology = named == flavors
        strategy = self.spec.admission_checks_strategy
        self.provisioned = frozenset(
            flavor
            for rule in (strategy.admission_checks if strategy is not None else ())
            if checks.get(rule.name) == CONTROLLER
            for flavor in rule.on_flavors or flavors
        )

    def count(self, held: Held) -> None:
        """Add a workload's usage to the tree. Its flavor-resources must be in the tree's index."""
        assert self.tree is not None
        held.amounts = tuple((self.tree.index[fr], amount) for fr, amount in held.usage)
        assert self.node is not None
        for fr, amount in held.amounts:
            add_usage(self.node, fr, amount)

    def recount(self, held: Held) -> None:
        """Add a workload's usage again that `uncount` has removed from the same tree."""
        assert self.node is not None
        for fr, amount in held.amounts:
            add_usage(self.node, fr, amount)

    def charge_places(self, held: Held, sign: int) -> None:
        """Add (1) or remove (-1) a workload's usage in the trees of topologies, for a part of a cycle."""
        if held.placed and self.topologies is not None:
            self.topologies.charge(held.placed, sign)

    def uncount(self, held: Held) -> None:
        """Remove a workload's usage from the quota tree, until `recount` or for good."""
        assert self.node is not None
        for fr, amount in held.amounts:
            remove_usage(self.node, fr, amount)

    def facts(self, shape: Shape) -> Facts:
        """Return the cached results for a shape in the current tree, created if there are none."""
        facts = shape.facts.get(self)
        if facts is None or facts.tree is not self.tree:
            facts = shape.facts[self] = Facts(self.tree, self._make_plan(shape))
        return facts

    def _make_plan(self, shape: Shape) -> Plan:
        pod_sets = shape.pod_sets
        covered = {
            resource: i for i, group in enumerate(self.spec.resource_groups) for resource in group.covered_resources
        }
        requests = tuple(_counted(pod_set, covered) for pod_set in pod_sets)
        shared = tuple(pod_set.shared for pod_set in pod_sets)
        full = tuple(
            together(amounts, pod_set.shared, pod_set.count)
            for amounts, pod_set in zip(requests, pod_sets, strict=True)
        )
        members: dict[str | int, list[int]] = {}
        for index, pod_set in enumerate(pod_sets):
            members.setdefault(pod_set.group or index, []).append(index)
        groups, totals = [], []
        for indices in members.values():
            total: dict[str, int] = {}
            for index in indices:
                add(total, full[index])
            totals.append(total)
            groups.append(
                self._make_group(
                    # Pods are placed by what they request themselves, before transformations of resources.
                    [(pod_sets[index], shape.written[index]) for index in indices],
                    indices,
                    sorted(total, key=_precedence),
                    covered,
                    shape.cluster,
                )
            )
        return Plan(tuple(groups), requests, full, tuple(totals), shared)

    def _make_group(
        self,
        pod_sets: list[tuple[PodSet, PodSet]],
        indices: list[int],
        resources: list[str],
        covered: Mapping[str, int],
        cluster: str,
    ) -> Group:
        parts: dict[tuple[int, str], list[str]] = {}
        for resource in resources:
            group = (covered[resource], "") if resource in covered else (-1, resource)
            parts.setdefault(group, []).append(resource)
        return Group(
            tuple(indices),
            tuple(
                GroupRequest(
                    number, tuple(names), self._options(number, names, pod_sets, cluster) if number >= 0 else ()
                )
                for (number, _), names in parts.items()
            ),
        )

    def _options(
        self, group: int, resources: list[str], pod_sets: list[tuple[PodSet, PodSet]], cluster: str
    ) -> tuple[Option, ...]:
        assert self.tree is not None
        index = self.tree.index
        options = []
        for quotas in self.spec.resource_groups[group].flavors:
            flavor = self.flavors.get(quotas.name)
            if flavor is None:
                fault = f"flavor {quotas.name} not found"
            else:
                fault = elsewhere(flavor, cluster, self.clusters)
                if not fault and self.topologies is not None:
                    fault = self._unplaceable(quotas.name, resources, [written for _, written in pod_sets])
                fault = fault or next(filter(None, (mismatch(flavor, pod_set) for pod_set, _ in pod_sets)), "")
            frs = {resource: index[quotas.name, resource] for resource in resources}
            options.append(Option(quotas.name, fault, frs))
        return tuple(options)

    def _unplaceable(self, flavor: str, resources: list[str], pod_sets: list[PodSet]) -> str:
        """Return why the flavor is none for these pod sets for the topology's sake; "" if it is one."""
        assert self.topologies is not None
        for pod_set in pod_sets:
            if any(resource == PODS or resource in pod_set.requests for resource in resources):
                fault = obstacle(self, self.topologies, flavor, pod_set)
                if fault:
                    return fault
        return ""


def _counted(pod_set: PodSet, covered: Mapping[str, int]) -> dict[str, int]:
    """Return what one pod uses of a ClusterQueue that covers these resources, with `pods`."""
    found = {
        name: amount for name, amount in pod_set.requests.items() if name in covered or name not in pod_set.optional
    }
    return {**found, PODS: 1} if PODS in covered else found


def _precedence(resource: str) -> int:
    """Return the 64-bit FNV-1a hash of a name: the order in which Kueue visits resources.

    The order decides which of several obstacles Kueue's messages name.
    """
    value = 0xCBF29CE484222325
    for byte in resource.encode():
        value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    return value


def usage_of(admission: Admission) -> tuple[tuple[FlavorResource, int], ...]:
    """Return the amount of each flavor-resource that an admission holds, summed over pod sets."""
    usage: dict[FlavorResource, int] = {}
    for pod_set in admission.pod_sets:
        for resource, flavor in pod_set.flavors.items():
            usage[flavor, resource] = usage.get((flavor, resource), 0) + pod_set.usage[resource]
    return tuple(usage.items())
