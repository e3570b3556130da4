"""Quota trees built from queue objects, with the ClusterQueues in each, and why a ClusterQueue is inactive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from admission.engine.clusterqueue import ClusterQueue, Held
from admission.engine.concurrent_admission import MigrationPolicy
from admission.engine.protection import Guard, PastPreemptions, Protection
from admission.engine.tree import Node, NodeSpec, Quota, Tree, build
from admission.model.durations import parse_duration
from admission.model.quotas import with_calendar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from admission.engine.fair import Shares
    from admission.engine.fair_skipping import SkippedQueues
    from admission.engine.topology.state import Topologies
    from admission.engine.tree import FlavorResource
    from admission.model.queues import ClusterQueueSpec, CohortSpec, ResourceFlavor
    from admission.model.quotas import ResourceGroup

MAX_DEPTH = 64
"""Most Cohorts on the path of a ClusterQueue, the root included; with more it is inactive. Bounds the recursion in
`tree`."""

NOT_FOUND = "not found"

_CYCLE = "is in a cycle of Cohorts"
_DEEP = f"is below more than {MAX_DEPTH} Cohorts"


@dataclass(slots=True, eq=False)
class Domain:
    """A quota tree with its ClusterQueues: the unit of a scheduling cycle.

    Decisions in it do not depend on other trees, except by policies and by nodes (see `placing`).
    """

    tree: Tree
    queues: list[ClusterQueue]
    active_by_node: dict[Node, ClusterQueue]
    """Node to ClusterQueue, of the active ClusterQueues."""
    built_from: tuple[Any, ...]
    """Names, specs and flavors that the tree was built from; it is rebuilt when they differ."""
    usage_of: Callable[[Held], float] | None = None
    """A policy's usage of a workload's LocalQueue: candidates with the largest are preempted first; None: no policy."""
    dirty: bool = True
    """Whether the next cycle has to process the tree."""
    freed: bool = False
    """Whether quota has become free, so that inadmissible workloads must be requeued."""
    shares: Shares | None = None
    """Cached shares of fair sharing at the current usage. Code that changes usage must set it to None."""
    waiting: bool = False
    """Whether the last cycle had any heads."""
    converging: tuple[ClusterQueue, ...] = ()
    """ClusterQueues with `overQuota`, which evict workloads while their usage exceeds a lowered quota."""
    changed: bool = True
    """Whether quota or usage has changed, other than by a decision, since the last check in `converge`."""
    version: int = 0
    """Number of cycles that processed the tree. With an equal number, and not `dirty`, its usage is unchanged."""
    placing: bool = False
    """Whether a ClusterQueue has a flavor with a topology: then decisions depend on other such trees, too."""
    concurrent: bool = False
    """Whether workloads of a ClusterQueue are tried in each flavor by itself, and may move."""
    guard: Guard | None = None
    """Protection of workloads from preemption; None: no ClusterQueue has any."""
    overdue_at: float | None = None
    """When the first workload that did not fit is not overtaken any more (Unix time, s); None: none is waited for."""
    skipped: SkippedQueues | None = None
    """The ClusterQueues that cycles with fair sharing skip; None: all take part."""

    @property
    def flat(self) -> bool:
        """Whether the tree has several ClusterQueues, all of them direct children of the root."""
        return len(self.queues) > 1 and not self.tree.root.cohorts

    def requeue_inadmissible(self, *, lean: bool) -> None:
        """Make inadmissible workloads active again if quota has become free since the last call.

        `lean`: in a tree of one ClusterQueue, shapes that certainly do not fit stay inadmissible, as trying them would
        not affect other workloads. (Kueue's `queueInadmissibleWorkloads`.)
        """
        if not self.freed:
            return
        self.freed = False
        for queue in self.queues:
            if queue.pending.has_inadmissible:
                alone = lean and len(self.queues) == 1 and queue.strict_after is None
                queue.pending.requeue_inadmissible(queue.surely_blocked() if alone else None)
            if queue.moving is not None:
                queue.moving.requeue_inadmissible()


class Forest:
    """All quota trees. `refresh` rebuilds the trees of which an object has changed."""

    def __init__(self) -> None:
        self.flavors: dict[str, ResourceFlavor] = {}
        self.topologies: Topologies | None = None
        """The trees of flavors with a topology; None: topologies are ignored."""
        self.checks: dict[str, str] = {}
        """The controllers of all AdmissionChecks, by name."""
        self.clusters: dict[str, Mapping[str, str]] = {}
        """Labels of the clusters that have joined, by name."""
        self.lost: frozenset[str] = frozenset()
        """Clusters in which nothing can be stopped at present."""
        self.cohorts: dict[str, CohortSpec] = {}
        self.specs: dict[str, ClusterQueueSpec] = {}
        self.queues: dict[str, ClusterQueue] = {}
        """ClusterQueues by name. A deleted one is kept while a workload holds its quota or is pending in it."""
        self.domains: dict[tuple[str, str], Domain] = {}
        """Trees by the root's (kind, name): `("Cohort", "research")`; without Cohort `("ClusterQueue", "team-a")`."""
        self.domain_of: dict[ClusterQueue, Domain] = {}
        self.guarded: tuple[Domain, ...] = ()
        """Trees with workloads that are protected from preemption."""
        self.aging: tuple[Domain, ...] = ()
        """Trees with workloads that are not overtaken after some time."""
        self.preemptions = PastPreemptions()

    def queue(self, name: str) -> ClusterQueue:
        """Return the state of a ClusterQueue, created if there is none yet; the object need not exist."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = ClusterQueue(name)
        return queue

    def refresh(self) -> list[Domain]:
        """Update the trees after changes of objects, and return the trees that were rebuilt."""
        roots = {cohort: self._root(cohort) for cohort in self.cohorts}
        members: dict[tuple[str, str], list[str]] = {("Cohort", root): [] for root, _ in roots.values() if root}
        for name in sorted(self.specs):
            queue, spec = self.queue(name), self.specs[name]
            root, fault = roots.get(spec.cohort_name, (spec.cohort_name, ""))
            queue.spec = spec
            queue.protection = Protection.of(spec)
            queue.time_slice = _seconds(spec.preemption.time_slice)
            queue.migration = MigrationPolicy.of(spec)
            interval = None if spec.aging is None else _seconds(spec.aging.priority_interval)
            queue.priority_interval = interval or 0.0
            queue.strict_after = _seconds(spec.aging.strict_after) if spec.aging is not None else None
            queue.inactive = fault or self._fault(spec)
            if fault:
                queue.node = queue.tree = None
            else:
                members.setdefault(("Cohort", root) if root else ("ClusterQueue", name), []).append(name)
        for name, queue in list(self.queues.items()):
            if name not in self.specs:
                queue.inactive, queue.node, queue.tree = NOT_FOUND, None, None
                if not queue.held and not len(queue.pending):
                    del self.queues[name]
        domains: dict[tuple[str, str], Domain] = {}
        built = []
        for key, names in members.items():
            domain = self.domains.get(key)
            built_from = self._ingredients(key, names)
            if domain is None or domain.built_from != built_from:
                domain = self._build(key, names, built_from)
                built.append(domain)
            domains[key] = domain
        self.domains = domains
        self.guarded = tuple(domain for domain in domains.values() if domain.guard is not None)
        self.aging = tuple(
            domain for domain in domains.values() if any(queue.strict_after is not None for queue in domain.queues)
        )
        self.domain_of = {queue: domain for domain in domains.values() for queue in domain.queues}
        return built

    def _root(self, cohort: str) -> tuple[str, str]:
        """Return the root Cohort above `cohort` and ""; or "" and why the ClusterQueues under it are inactive."""
        seen = set()
        while cohort not in seen:
            seen.add(cohort)
            parent = self.cohorts[cohort].parent_name if cohort in self.cohorts else ""
            if not parent:
                return (cohort, "") if len(seen) <= MAX_DEPTH else ("", _DEEP)
            cohort = parent
        return "", _CYCLE

    def _fault(self, spec: ClusterQueueSpec) -> str:
        """Return why a ClusterQueue with this spec is inactive, to follow its name; "" if it is active."""
        if spec.stop_policy != "None":
            return "is stopped"
        for group in spec.resource_groups:
            for quotas in group.flavors:
                if quotas.name not in self.flavors:
                    return f"names ResourceFlavor {quotas.name}, which does not exist"
                topology = self.topologies.missing(quotas.name) if self.topologies is not None else ""
                if topology:
                    return f"names ResourceFlavor {quotas.name}, whose Topology {topology} does not exist"
        if spec.admission_checks_strategy is not None:
            for rule in spec.admission_checks_strategy.admission_checks:
                if rule.name not in self.checks:
                    return f"names AdmissionCheck {rule.name}, which does not exist"
        return ""

    def _cohort_names(self, root: tuple[str, str]) -> list[str]:
        """Return the names of all Cohorts of a tree, parents first."""
        kind, name = root
        if kind == "ClusterQueue":
            return []
        children: dict[str, list[str]] = {}
        for cohort, spec in self.cohorts.items():
            children.setdefault(spec.parent_name, []).append(cohort)
        names = [name]
        for parent in names:
            names += sorted(child for child in children.get(parent, ()) if child)
        return names

    def _ingredients(self, root: tuple[str, str], names: list[str]) -> tuple[Any, ...]:
        """Return `Domain.built_from` of the tree with these ClusterQueues."""
        specs = [self.specs[name] for name in names]
        flavors = sorted({quotas.name for spec in specs for group in spec.resource_groups for quotas in group.flavors})
        return (
            tuple((name, spec, self.queue(name).inactive) for name, spec in zip(names, specs, strict=True)),
            tuple((name, self.cohorts.get(name)) for name in self._cohort_names(root)),
            tuple((name, self.flavors[name].spec if name in self.flavors else None) for name in flavors),
            tuple(map(self._selected, flavors)),
            self.lost,
        )

    def _selected(self, flavor: str) -> tuple[str, ...] | None:
        """Return the names of the clusters that a flavor's selector matches; None: it has none."""
        selector = self.flavors[flavor].spec.cluster_selector if flavor in self.flavors else None
        if selector is None:
            return None
        return tuple(sorted(name for name, labels in self.clusters.items() if selector.matches(labels)))

    def _build(self, root: tuple[str, str], names: list[str], built_from: tuple[Any, ...]) -> Domain:
        queues = [self.queue(name) for name in names]
        held = {fr for queue in queues for holder in queue.held.values() for fr, _ in holder.usage}
        leaves = [
            NodeSpec(queue.name, queue.spec.cohort_name, _quotas(queue.spec.resource_groups), _weight(queue.spec))
            for queue in queues
        ]
        tree = build(leaves, self._cohort_specs(self._cohort_names(root)), held)
        for queue in queues:
            if self.topologies is not None:
                queue.place_in(self.topologies, self.checks)
            queue.attach(tree, self.flavors, self.clusters)
            queue.pending.overdue = None
            queue.head = None
            queue.generation += 1
            if queue.spec.over_quota is None:
                queue.over_since = None
        at = {queue.node: queue for queue in queues if queue.node is not None and not queue.inactive}
        converging = tuple(queue for queue in queues if queue.spec.over_quota is not None)
        placing = any(queue.topologies is not None for queue in queues)
        guarded = bool(self.lost) or any(
            queue.protection is not None or queue.time_slice is not None for queue in queues
        )
        guard = Guard(self.preemptions, lost=self.lost) if guarded else None
        concurrent = any(queue.migration is not None for queue in queues)
        return Domain(
            tree, queues, at, built_from, converging=converging, placing=placing, concurrent=concurrent, guard=guard
        )

    def blank(self, domain: Domain, at: float) -> Tree:
        """Return a copy of a domain's tree without usage, with the quotas of an instant (Unix time, s)."""
        leaves = []
        for queue in domain.queues:
            spec = queue.spec
            groups = with_calendar(spec.resource_groups, spec.calendar, at)
            leaves.append(NodeSpec(queue.name, spec.cohort_name, _quotas(groups), _weight(spec)))
        return build(leaves, self._cohort_specs(domain.tree.cohorts, at), domain.tree.frs)

    def _cohort_specs(self, names: Iterable[str], at: float | None = None) -> list[NodeSpec]:
        specs = []
        for name in names:
            spec = self.cohorts.get(name)
            if spec is None:
                specs.append(NodeSpec(name, "", {}))
            else:
                groups = spec.resource_groups if at is None else with_calendar(spec.resource_groups, spec.calendar, at)
                specs.append(NodeSpec(name, spec.parent_name, _quotas(groups), _weight(spec)))
        return specs


def _quotas(groups: tuple[ResourceGroup, ...]) -> Mapping[FlavorResource, Quota]:
    return {
        (flavor.name, quota.name): Quota(quota.nominal, quota.borrowing, quota.lending)
        for group in groups
        for flavor in group.flavors
        for quota in flavor.resources
    }


def _seconds(duration: str | None) -> float | None:
    return None if duration is None else parse_duration(duration)


def _weight(spec: ClusterQueueSpec | CohortSpec) -> float:
    return 1.0 if spec.fair_sharing is None else spec.fair_sharing.value
