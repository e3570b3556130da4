"""Concurrent admission: a workload is tried in each flavor by itself, and may move to a better one while it runs.

Kueue's KEP 8691 (`concurrentAdmissionPolicy`), in which each flavor has a Workload of its own, a variant. Here a
pending workload stays one, and a cycle tries it as its variants in the order of preference: the first that fits is
admitted, else the first for which others can be preempted. While it holds quota, a second item of it, the mover, queues
for the flavors that are preferred to its own, in the order of its ClusterQueue. When the mover fits, the workload is
evicted with the reason FlavorMigration, each cycle keeps the quota for it meanwhile, and it queues again as it was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heappush
from typing import TYPE_CHECKING

from admission.engine.pending import PendingQueue
from admission.engine.pending_item import Item, lowered
from admission.model.durations import parse_duration

if TYPE_CHECKING:
    from admission.engine.clusterqueue import Held
    from admission.engine.entry import Entry
    from admission.engine.registry import Registry
    from admission.model.queues import ClusterQueueSpec


@dataclass(frozen=True, slots=True)
class MigrationPolicy:
    """The `concurrentAdmissionPolicy` of a ClusterQueue."""

    flavors: tuple[str, ...]
    """All of its flavors, the preferred one first."""
    last: int
    """Index of the last flavor to which workloads move; -1: they stay in the one in which they were admitted."""
    min_runtime: float
    """Seconds that a workload runs at least before it is moved."""

    @classmethod
    def of(cls, spec: ClusterQueueSpec) -> MigrationPolicy | None:
        """Return the policy of a ClusterQueue with this spec; None: there is none."""
        if spec.concurrent_admission_policy is None or not spec.resource_groups:
            return None
        flavors = tuple(quotas.name for quotas in spec.resource_groups[0].flavors)
        given = spec.concurrent_admission_policy.migration
        constraints = given.constraints
        last = len(flavors) - 1 if given.mode == "TryPreferredFlavors" else -1
        if constraints is not None and constraints.last_acceptable_flavor_name in flavors:
            last = flavors.index(constraints.last_acceptable_flavor_name)
        shortest = None if constraints is None else constraints.minimum_runtime
        return cls(flavors, last, 0.0 if shortest is None else parse_duration(shortest))

    def better(self, flavor: str) -> tuple[str, ...]:
        """Return the flavors to which a workload with this one may move, the preferred one first."""
        index = self.flavors.index(flavor) if flavor in self.flavors else 0
        return self.flavors[: min(index, self.last + 1)]


class Mover(Item):
    """The item of a workload that holds quota, in `ClusterQueue.moving`: it has the same uid."""

    __slots__ = ()


def flavor_of(held: Held) -> str:
    """Return the flavor of a workload that was admitted as a variant; "" if it holds none."""
    return next((flavor for pod_set in held.admission.pod_sets for flavor in pod_set.flavors.values()), "")


def siblings(entry: Entry) -> tuple[Held | None, Held | None]:
    """Return a variant of the same workload that holds quota of a better flavor than this one, and one of a worse."""
    item, queue = entry.item, entry.queue
    if isinstance(item, Mover):
        return None, queue.held.get(item.uid)
    variant_of = item.workload.terms.variant_of
    flavors = [quotas.name for group in queue.spec.resource_groups[:1] for quotas in group.flavors]
    better = worse = None
    own = _position(flavors, item.workload.terms.flavors)
    for held in queue.held.values():
        terms = held.workload.terms
        if terms.variant_of == variant_of and (theirs := _position(flavors, terms.flavors)) is not None:
            if own is not None and theirs < own:
                better = better or held
            elif own is not None and theirs > own:
                worse = worse or held
    return better, worse


def _position(flavors: list[str], allowed: tuple[str, ...]) -> int | None:
    return flavors.index(allowed[0]) if allowed and allowed[0] in flavors else None


def is_acceptable(entry: Entry) -> bool:
    """Whether a workload may move to the flavor of this variant of it."""
    migration = entry.queue.migration
    if migration is None or migration.last < 0:
        return True
    own = _position(list(migration.flavors), entry.item.workload.terms.flavors)
    return own is not None and own <= migration.last


class Movers:
    """The movers of one registry, by uid of their workload."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.by_uid: dict[str, Item] = {}

    def refresh(self) -> None:
        """Queue all movers anew, after changes of queue objects."""
        queues = self._registry.forest.queues.values()
        if not self.by_uid and not any(queue.migration is not None or queue.moving is not None for queue in queues):
            return
        self.by_uid.clear()
        for queue in queues:
            moves = queue.migration is not None and queue.migration.last >= 0
            queue.moving = PendingQueue() if moves else None
            queue.leaving.clear()
            if moves:
                for held in queue.held.values():
                    self.follow(held)

    def follow(self, held: Held) -> None:
        """Queue the mover of a workload, if there is a flavor that is preferred to its own."""
        registry, queue, workload = self._registry, held.queue, held.workload
        self.forget(held)
        if workload.terms.variant_of:
            return  # a variant that is a workload of its own
        better = queue.migration.better(flavor_of(held)) if queue.migration is not None else ()
        if not better or held.evicting or queue.moving is None or workload.kind == "Pod":
            return  # a pod that is evicted does not come back
        local_queue = registry.local_queues.get(held.local_queue)
        if local_queue is None or local_queue.stop_policy != "None" or local_queue.cluster_queue != queue.name:
            return
        if not registry.accepts(queue, workload.namespace):
            return
        terms = replace(workload.terms, flavors=better, variant_of=workload.uid)
        variant = replace(workload, terms=terms, replaces="")
        shape = registry.shapes.of(lowered(variant) if held.lowered else variant)
        mover = self.by_uid[workload.uid] = Mover(variant, shape)
        mover.lowered = held.lowered
        mover.cluster_queue = queue.name
        mover.age(queue.priority_interval)
        assert queue.migration is not None
        mover.not_before = max(held.admitted_at, held.cleared_at) + queue.migration.min_runtime
        if mover.not_before > registry.now:
            queue.moving.make_one_inadmissible(mover, until_woken=True)
            heappush(registry.asleep, (mover.not_before, mover.uid))
        else:
            queue.moving.add(mover)
        registry.mark_dirty(queue)

    def forget(self, held: Held) -> None:
        """Remove the mover of a workload, if it has one."""
        mover = self.by_uid.pop(held.workload.uid, None)
        if mover is not None and held.queue.moving is not None:
            held.queue.moving.remove(mover.uid)
            held.queue.leaving.pop(mover.uid, None)
