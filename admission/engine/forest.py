"""From queue objects to quota trees: which ClusterQueues share one, and which of them take no part, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from admission.engine.clusterqueue import ClusterQueue, Held
from admission.engine.tree import Node, NodeSpec, Quota, Tree, build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from admission.engine.fair import Shares
    from admission.engine.fair_standby import Standby
    from admission.engine.tree import FlavorResource
    from admission.model.queues import ClusterQueueSpec, CohortSpec, ResourceFlavor
    from admission.model.quotas import ResourceGroup

MAX_DEPTH = 64
"""The most Cohorts on the way from a ClusterQueue to its root."""

NOT_FOUND = "not found"

_CYCLE = "is in a cycle of Cohorts"
_DEEP = f"is below more than {MAX_DEPTH} Cohorts"


@dataclass(slots=True, eq=False)
class Domain:
    """One tree with its ClusterQueues: what happens in it depends on nothing outside."""

    tree: Tree
    queues: list[ClusterQueue]
    at: dict[Node, ClusterQueue]
    """The active ones among `queues`, by their place in the tree."""
    made_of: tuple[Any, ...]
    """The names, specs and flavors that it was built from."""
    usage_of: Callable[[Held], float] | None = None
    """The usage of the LocalQueue of a workload, in admission fair sharing."""
    dirty: bool = True
    """Whether another cycle could decide anything."""
    freed: bool = False
    """Whether those that are set aside may take part again: more may be available."""
    shares: Shares | None = None
    """Those in fair sharing, while usage does not change; whoever changes it drops them."""
    waiting: bool = False
    """Whether the last cycle had anything to look at."""
    converging: tuple[ClusterQueue, ...] = ()
    """Those among `queues` that evict when they are over a quota that was lowered."""
    changed: bool = True
    """Whether something other than a decision has changed quota or use since that was last looked at."""

    standby: Standby | None = None
    """Which ClusterQueues cycles of fair sharing leave out; None: none of them."""

    @property
    def flat(self) -> bool:
        """Whether all ClusterQueues, more than one, are right under the root."""
        return len(self.queues) > 1 and not self.tree.root.cohorts

    def taking_part(self) -> Iterable[ClusterQueue]:
        """The ClusterQueues that a cycle has to look at."""
        standby = self.standby
        return self.queues if standby is None else [queue for queue in self.queues if not standby.leaves_out(queue)]

    def forget(self, queue: ClusterQueue) -> None:
        """The usage of a ClusterQueue has changed, or its waiting workloads have."""
        if self.standby is not None:
            self.standby.forget(queue)

    def release(self, *, lean: bool) -> None:
        """Let those that are set aside take part again, if something was freed.

        `lean`: not those of which it is sure that they would be set aside again, and whose turn would delay nobody of
        another queue.
        """
        if not self.freed:
            return
        self.freed = False
        for queue in self.queues:
            if queue.pending.set_aside:
                alone = lean and len(self.queues) == 1
                queue.pending.release(queue.surely_blocked() if alone else None)


class Forest:
    """All trees. They are built anew by `refresh`, but only those of which something changed."""

    def __init__(self) -> None:
        self.flavors: dict[str, ResourceFlavor] = {}
        self.checks: set[str] = set()
        """The names of all AdmissionChecks."""
        self.cohorts: dict[str, CohortSpec] = {}
        self.specs: dict[str, ClusterQueueSpec] = {}
        self.queues: dict[str, ClusterQueue] = {}
        """By name; one without a spec is kept as long as a workload holds quota of it or waits for it."""
        self.domains: dict[tuple[str, str], Domain] = {}
        self.domain_of: dict[ClusterQueue, Domain] = {}

    def queue(self, name: str) -> ClusterQueue:
        """The state of a ClusterQueue, whether or not the object exists."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = ClusterQueue(name)
        return queue

    def refresh(self) -> list[Domain]:
        """Bring the trees up to date with the objects; those that were built anew."""
        roots = {cohort: self._root(cohort) for cohort in self.cohorts}
        members: dict[tuple[str, str], list[str]] = {("Cohort", root): [] for root, _ in roots.values() if root}
        for name in sorted(self.specs):
            queue, spec = self.queue(name), self.specs[name]
            root, fault = roots.get(spec.cohort_name, (spec.cohort_name, ""))
            queue.spec = spec
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
            made_of = self._ingredients(key, names)
            if domain is None or domain.made_of != made_of:
                domain = self._build(key, names, made_of)
                built.append(domain)
            domains[key] = domain
        self.domains = domains
        self.domain_of = {queue: domain for domain in domains.values() for queue in domain.queues}
        return built

    def _root(self, cohort: str) -> tuple[str, str]:
        """The name of the topmost Cohort above `cohort`, or "" and why there is none."""
        seen = set()
        while cohort not in seen:
            seen.add(cohort)
            parent = self.cohorts[cohort].parent_name if cohort in self.cohorts else ""
            if not parent:
                return (cohort, "") if len(seen) <= MAX_DEPTH else ("", _DEEP)
            cohort = parent
        return "", _CYCLE

    def _fault(self, spec: ClusterQueueSpec) -> str:
        if spec.stop_policy != "None":
            return "is stopped"
        for group in spec.resource_groups:
            for quotas in group.flavors:
                if quotas.name not in self.flavors:
                    return f"names ResourceFlavor {quotas.name}, which does not exist"
        if spec.admission_checks_strategy is not None:
            for rule in spec.admission_checks_strategy.admission_checks:
                if rule.name not in self.checks:
                    return f"names AdmissionCheck {rule.name}, which does not exist"
        return ""

    def _cohort_names(self, root: tuple[str, str]) -> list[str]:
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
        specs = [self.specs[name] for name in names]
        flavors = sorted({quotas.name for spec in specs for group in spec.resource_groups for quotas in group.flavors})
        return (
            tuple((name, spec, self.queue(name).inactive) for name, spec in zip(names, specs, strict=True)),
            tuple((name, self.cohorts.get(name)) for name in self._cohort_names(root)),
            tuple((name, self.flavors[name].spec if name in self.flavors else None) for name in flavors),
        )

    def _build(self, root: tuple[str, str], names: list[str], made_of: tuple[Any, ...]) -> Domain:
        queues = [self.queue(name) for name in names]
        held = {fr for queue in queues for holder in queue.held.values() for fr, _ in holder.usage}
        leaves = [
            NodeSpec(queue.name, queue.spec.cohort_name, _quotas(queue.spec.resource_groups), _weight(queue.spec))
            for queue in queues
        ]
        tree = build(leaves, self._cohort_specs(self._cohort_names(root)), held)
        for queue in queues:
            queue.settle_in(tree, self.flavors)
            queue.generation += 1
            if queue.spec.over_quota is None:
                queue.over_since = None
        at = {queue.node: queue for queue in queues if queue.node is not None and not queue.inactive}
        converging = tuple(queue for queue in queues if queue.spec.over_quota is not None)
        return Domain(tree, queues, at, made_of, converging=converging)

    def _cohort_specs(self, names: Iterable[str]) -> list[NodeSpec]:
        specs = []
        for name in names:
            spec = self.cohorts.get(name)
            if spec is None:
                specs.append(NodeSpec(name, "", {}))
            else:
                specs.append(NodeSpec(name, spec.parent_name, _quotas(spec.resource_groups), _weight(spec)))
        return specs


def _quotas(groups: tuple[ResourceGroup, ...]) -> Mapping[FlavorResource, Quota]:
    return {
        (flavor.name, quota.name): Quota(quota.nominal, quota.borrowing, quota.lending)
        for group in groups
        for flavor in group.flavors
        for quota in flavor.resources
    }


def _weight(spec: ClusterQueueSpec | CohortSpec) -> float:
    return 1.0 if spec.fair_sharing is None else spec.fair_sharing.value
