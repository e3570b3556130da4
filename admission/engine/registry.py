"""State of the engine, kept up to date by events: queue objects, pending workloads, workloads that hold quota."""

from __future__ import annotations

from collections import OrderedDict
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from admission.engine.clusterqueue import PODS, ClusterQueue, Held, usage_of
from admission.engine.concurrent_admission import Movers
from admission.engine.drains import Drains
from admission.engine.events import (
    ClustersLost,
    Evict,
    NamespaceChanged,
    Park,
    QueueObjectChanged,
    QueueObjectDeleted,
    WorkloadAdmitted,
    WorkloadCleared,
    WorkloadEnded,
    WorkloadEvicted,
    WorkloadGone,
    WorkloadPending,
    WorkloadPreempted,
)
from admission.engine.forest import Forest
from admission.engine.outside_cycles import park_outside, runs_elsewhere
from admission.engine.pending_item import Item, Shapes, lowered
from admission.engine.policies.active import ActivePolicies
from admission.engine.policies.contract import PolicyEvent
from admission.engine.policies.dependencies import DependencyFound
from admission.engine.protection import Guard
from admission.engine.topology.placed import PlacedWorkloads
from admission.engine.vocabulary import CLUSTER_QUEUE_STOPPED, LOCAL_QUEUE_STOPPED, REFUSED_IN_A_FLAVOR
from admission.model import sentences
from admission.model.names import STOP_REASON
from admission.model.queues import (
    AdmissionCheck,
    Cluster,
    Cohort,
    Drain,
    LocalQueue,
    Reservation,
    ResourceFlavor,
    Topology,
)
from admission.model.queues import ClusterQueue as ClusterQueueObject

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from admission.engine.accounting import Accounting
    from admission.engine.events import Event
    from admission.engine.forest import Domain
    from admission.engine.policies.contract import PolicyConfig
    from admission.engine.topology.state import Topologies
    from admission.engine.tree import Tree
    from admission.model.queues import ClusterQueueSpec, LocalQueueSpec
    from admission.model.workload import Workload


_MOST_ENDED: Final = 50_000
"""Names of ended workloads that are remembered, of which others may be dependents."""


class Registry:
    """The engine's state. Changes of queue objects are recorded by `observe` and take effect together in `refresh`."""

    def __init__(
        self, policies: Iterable[PolicyConfig], accounting: Accounting, topologies: Topologies | None = None
    ) -> None:
        self.forest = Forest()
        self.forest.topologies = topologies
        self.placed = PlacedWorkloads(self, topologies) if topologies is not None else None
        """What is placed by topology; None: nothing is."""
        self.items: dict[str, Item] = {}
        """Pending workloads by uid, including those on hold or without a LocalQueue."""
        self.held: dict[str, Held] = {}
        """Workloads that hold quota, by uid."""
        self.now = 0.0
        """The time of the last event or cycle, in seconds since the epoch."""
        self.shapes = Shapes(accounting)
        self.local_queues: dict[tuple[str, str], LocalQueueSpec] = {}
        self.stop_reasons: dict[tuple[str, str, str], str] = {}
        """(kind, namespace, name) to the reason given for stopping the queue; only queues with a known reason."""
        self.namespaces: dict[str, Mapping[str, str]] = {}
        """Namespace to its labels."""
        self._accepted: dict[tuple[str, str], bool] = {}
        """Cache of `accepts`, by the names of ClusterQueue and namespace."""
        self._on_hold: set[str] = set()
        self._yielding: dict[str, list[Item]] = {}
        """Uid of a pending preemptor to workloads that it would preempt at once (`Item.yields_to`)."""
        self._unreported: dict[str, Item] = {}
        """Pending workloads outside of cycles whose reason must still be reported, by uid."""
        self.stale_reasons: dict[str, None] = {}
        """Uids of pending workloads whose reason may have changed, in order (see `ReasonRefresh`)."""
        self.changed_trees: dict[int, Iterable[ClusterQueue]] = {}
        """ClusterQueues of trees whose usage or quota has changed since `ReasonRefresh` last took them, by id of the
        list; 0: all. Kept per tree: decisions are more frequent than refreshes, and need not visit each queue."""
        self.ended: OrderedDict[tuple[str, str], dict[str, tuple[float, bool]]] = OrderedDict()
        """Workloads that have ended, by (namespace, name): kind in lower case to the one that was created last, when
        that was (Unix time, s), and whether it has succeeded."""
        self._dependents: dict[tuple[str, str], dict[str, tuple[str, ...]]] = {}
        self.dependency_changes = 0
        """(namespace, name) to uid and what that pending workload waits for, of those that wait for others."""
        self.movers = Movers(self)
        self.drains = Drains(self)
        self.rests = Rests()
        self.asleep: list[tuple[float, str]] = []
        """Heap of (Unix time (s) at which the requeue backoff ends, uid)."""
        self.objects_changed = False
        self._local_queues_changed: set[tuple[str, str]] = set()
        self._namespaces_changed: set[str] = set()
        self.policies = ActivePolicies(policies, self)

    def observe(self, event: Event) -> None:
        """Apply an event."""
        match event:
            case WorkloadPending():
                self._arrive(event.workload, on_hold=event.on_hold, fault=event.fault, not_before=event.not_before)
            case WorkloadGone():
                self._leave(event.uid)
                if event.requeue is not None:
                    self._arrive(event.requeue, on_hold=event.on_hold, not_before=event.not_before)
                else:
                    self.rests.forget(event.uid)
                    self.forest.preemptions.forget(event.uid)
            case WorkloadAdmitted():
                self._leave(event.workload.uid)
                queue = self.forest.queue(event.admission.cluster_queue)
                usage = usage_of(event.admission)
                held = Held(
                    event.workload, event.admission, queue, usage, event.at, event.evicting, cleared_at=event.cleared_at
                )
                self._load(held)
            case WorkloadCleared():
                if (cleared := self.held.get(event.uid)) is not None:
                    cleared.cleared_at = event.at
                    if cleared.queue.moving is not None:
                        self.movers.follow(cleared)
            case WorkloadEnded():
                self._note_end(event)
            case WorkloadPreempted():
                self.forest.preemptions.add(event.uid, event.at)
            case WorkloadEvicted():
                self._mark_evicted(event.uid)
            case QueueObjectChanged():
                self._change(event)
            case QueueObjectDeleted():
                self._delete(event)
            case NamespaceChanged() | ClustersLost():
                self._change_surroundings(event)
            case PolicyEvent():
                self.policies.observe(event, self.held.values(), self.items.values())
            case _:
                assert self.placed is not None, "Policy.topology is not set"
                self.placed.observe(event)

    # --- workloads

    def _arrive(
        self,
        workload: Workload,
        *,
        on_hold: bool = False,
        fault: tuple[str, str] | None = None,
        not_before: float = 0.0,
    ) -> None:
        if workload.uid in self.held:
            return
        not_before = max(not_before, self.rests.until(workload.uid))
        known = self.items.get(workload.uid)
        if known is not None:
            same = known.workload == workload and known.fault == fault and known.not_before == not_before
            if same and (workload.uid in self._on_hold) is on_hold:
                known.last_reason = None  # the caller may have lost the reason reported before: report it again
                self.stale_reasons[workload.uid] = None
                return
            self._withdraw(known)
        if workload.terms.after:
            self._note_dependencies(workload)
        elif workload.terms.at_most is not None:
            self.policies.observe(DependencyFound(), self.held.values(), ())
        if self.ended:
            self.ended.pop((workload.namespace, workload.name), None)
        item = Item(workload, self.shapes.of(workload))
        item.fault = fault
        item.not_before = not_before
        self.items[workload.uid] = item
        self.stale_reasons[workload.uid] = None
        if on_hold:
            self._on_hold.add(workload.uid)
            self._unreported[workload.uid] = item
        else:
            self._enqueue(item)

    def _note_dependencies(self, workload: Workload) -> None:
        names = tuple(each.name for each in workload.terms.after)
        self.dependency_changes += 1
        self._dependents.setdefault((workload.namespace, workload.name), {})[workload.uid] = names
        self.policies.observe(DependencyFound(), self.held.values(), ())

    def _note_end(self, event: WorkloadEnded) -> None:
        key = event.namespace, event.name
        kinds = self.ended.setdefault(key, {})
        # Pods of one that was deleted may end after the one that has replaced it.
        own = event.created, event.succeeded
        kinds[event.kind] = max(kinds.get(event.kind, own), own)
        self.ended.move_to_end(key)
        if len(self.ended) > _MOST_ENDED:
            self.ended.popitem(last=False)
        if self._dependents:
            self.policies.changed()

    def waits_for(self, namespace: str, name: str) -> Iterable[str]:
        """Return the names of the workloads that pending workloads of this name wait for."""
        return [each for names in self._dependents.get((namespace, name), {}).values() for each in names]

    def dependents(self, namespace: str, kind: str, name: str) -> list[Workload]:
        """Return the pending workloads that start after one of this kind (in lower case) and name, oldest first."""
        found = []
        for (where, _), by_uid in self._dependents.items():
            for uid, names in by_uid.items() if where == namespace else ():
                if name in names:
                    workload = self.items[uid].workload
                    if any(each.name == name and each.kind in ("", kind) for each in workload.terms.after):
                        found.append(workload)
        return sorted(found, key=lambda workload: (workload.created, workload.uid))

    def _enqueue(self, item: Item) -> None:
        workload = item.workload
        local_queue = self.local_queues.get((workload.namespace, workload.queue))
        if local_queue is None or local_queue.stop_policy != "None":
            self._unreported[item.uid] = item
            return
        queue = self.forest.queues.get(local_queue.cluster_queue) or self.forest.queue(local_queue.cluster_queue)
        if workload.replaces and runs_elsewhere(workload, queue, self.held):
            self._unreported[item.uid] = item
            return
        item.cluster_queue = queue.name
        if self.policies.lowering or item.lowered:
            is_low = bool(self.lowers(item))
            if is_low is not item.lowered:
                item.lowered = is_low
                item.shape = self.shapes.of(lowered(workload) if is_low else workload)
                item.age(queue.priority_interval)
        if queue.priority_interval or item.rank_priority != item.shape.priority:
            item.age(queue.priority_interval)
        item.accepted = self.accepts(queue, workload.namespace)
        if self.policies.counting:
            self.policies.arrive(item)
        if item.not_before > self.now:
            queue.pending.make_one_inadmissible(item, until_woken=True)
            heappush(self.asleep, (item.not_before, item.uid))
            self._unreported[item.uid] = item
            return
        queue.pending.add(item)
        if queue.inactive:
            self._unreported[item.uid] = item
        else:
            self.mark_dirty(queue)

    def accepts(self, queue: ClusterQueue, namespace: str) -> bool:
        """Whether the ClusterQueue's namespaceSelector matches the namespace."""
        accepted = self._accepted.get((queue.name, namespace))
        if accepted is None:
            selector, labels = queue.spec.namespace_selector, self.namespaces.get(namespace)
            accepted = selector is not None and labels is not None and selector.matches(labels)
            self._accepted[queue.name, namespace] = accepted
        return accepted

    def _withdraw(self, item: Item) -> None:
        del self.items[item.uid]
        if item.workload.terms.after:
            self._forget_dependencies(item.workload)
        self.stale_reasons.pop(item.uid, None)
        self._on_hold.discard(item.uid)
        self._dequeue(item)

    def _forget_dependencies(self, workload: Workload) -> None:
        key = workload.namespace, workload.name
        dependents = self._dependents.get(key, {})
        dependents.pop(workload.uid, None)
        self.dependency_changes += 1
        if not dependents:
            self._dependents.pop(key, None)

    def _dequeue(self, item: Item) -> None:
        self._unreported.pop(item.uid, None)
        if item.cluster_queue:
            queue = self.forest.queue(item.cluster_queue)
            queue.pending.remove(item.uid)
            item.cluster_queue = ""
            if self.policies.counting:
                self.policies.leave(item.uid)
            if queue.head is not None and queue.head.item is item:
                queue.head = None
                if (domain := self.forest.domain_of.get(queue)) is not None:
                    domain.freed = True  # what could have delayed it may start
            self.mark_dirty(queue)  # a workload behind it may be the head now
            if self._yielding:
                self._retry_yielding(item.uid)

    def _leave(self, uid: str) -> None:
        if (item := self.items.get(uid)) is not None:
            self._withdraw(item)
        if (held := self.held.get(uid)) is not None:
            self.free(held)

    def _load(self, held: Held) -> None:
        queue = held.queue
        if self.policies.lowering:
            held.lowered = bool(self.policies.lowers(held.workload, queue.name, dict(held.usage)))
        self.held[held.workload.uid] = held
        queue.hold(held)
        if self.placed is not None:
            self.placed.add(held)
        self.policies.restore(held)
        if queue.moving is not None:
            self.movers.follow(held)
        if self.drains:
            self.drains.loaded()
        if queue.tree is None:
            return
        if all(fr in queue.tree.index for fr, _ in held.usage):
            queue.count(held)
            self.forest.domain_of[queue].changed = True
            self.mark_dirty(queue)
        else:  # the tree must be rebuilt to number these flavor-resources
            self.forest.domain_of[queue].built_from = ()
            self.objects_changed = True

    def _mark_evicted(self, uid: str) -> None:
        held = self.held.get(uid)
        if held is not None and not held.evicting:
            held.evicting = True
            held.queue.generation += 1
            if held.queue.moving is not None:
                self.movers.forget(held)
            self.mark_dirty(held.queue)

    def admit(self, held: Held) -> None:
        """Record an admission of a cycle, which has added its usage to the tree already."""
        del self.items[held.workload.uid]
        if held.workload.terms.after:
            self._forget_dependencies(held.workload)
        self.stale_reasons.pop(held.workload.uid, None)
        if self._yielding:
            self._retry_yielding(held.workload.uid)
        replaced = held.queue.held.get(held.workload.replaces)
        if replaced is not None:
            self._drop(replaced)  # without its usage: the cycle added only the difference
            held.replaced, replaced.replaced = replaced, None  # committed long ago: not a chain of all former sizes
        self.held[held.workload.uid] = held
        held.queue.hold(held)
        if self.placed is not None:
            self.placed.add(held)
        if self.policies.active:
            self.policies.charge_after_cycle(held)
            if self.policies.counting:
                self.policies.leave(held.workload.uid)
        if held.queue.moving is not None:
            self.movers.follow(held)

    def free(self, held: Held) -> None:
        """Release a workload's quota, and have the inadmissible workloads of its tree requeued."""
        queue = held.queue
        self._drop(held)
        queue.generation += 1
        if queue.node is not None:
            queue.uncount(held)
        self.mark_dirty(queue)
        if (domain := self.forest.domain_of.get(queue)) is not None:
            domain.freed = True

    def undo(self, held: Held) -> None:
        """Undo an admission that was not committed: a quota that it took over is restored, and it is pending again."""
        self.free(held)
        if held.replaced is not None:
            self._load(held.replaced)
        self._arrive(held.workload)

    def withdraw(self, held: Held, preemptor: str) -> None:
        """Undo an admission whose quota a preemptor (uid) takes.

        It is tried again when quota becomes free, or when the preemptor is admitted or leaves the queue.
        """
        domain = self.forest.domain_of[held.queue]
        freed = domain.freed
        self.undo(held)
        domain.freed = freed
        item = self.items[held.workload.uid]
        item.yields_to = preemptor
        held.queue.pending.set_aside(item)
        self._yielding.setdefault(preemptor, []).append(item)

    def _retry_yielding(self, preemptor: str) -> None:
        """Try workloads again that would have been preempted for this one, which was admitted or left the queue."""
        for item in self._yielding.pop(preemptor, ()):
            if item.yields_to == preemptor and self.items.get(item.uid) is item and item.cluster_queue:
                queue = self.forest.queue(item.cluster_queue)
                queue.pending.wake(item)
                self.mark_dirty(queue)

    def _drop(self, held: Held) -> None:
        del self.held[held.workload.uid]
        held.queue.drop(held)
        if held.queue.moving is not None:
            self.movers.forget(held)
        if self.placed is not None:
            self.placed.remove(held)
        if self.policies.active:
            self.policies.release(held)

    def mark_dirty(self, queue: ClusterQueue) -> None:
        """Have the next cycle process the ClusterQueue's tree."""
        domain = self.forest.domain_of.get(queue)
        if domain is not None:
            domain.dirty = True
            if domain.skipped is not None:
                domain.skipped.invalidate(queue)

    # --- queue objects

    def _change(self, event: QueueObjectChanged) -> None:
        item = event.object
        self.policies.observe(event, self.held.values(), self.items.values())
        self.stop_reasons.pop(item.key, None)
        if reason := item.metadata.annotations.get(STOP_REASON):
            self.stop_reasons[item.key] = reason
        match item:
            case ResourceFlavor():
                self.forest.flavors[item.name] = item
                self.objects_changed = True
            case Cohort():
                self.forest.cohorts[item.name] = item.spec
                self.objects_changed = True
            case ClusterQueueObject():
                self.forest.specs[item.name] = item.spec
                self.objects_changed = True
            case Drain():
                self.drains.put(item.name, item.spec)
            case Reservation():
                self.drains.reserve(item.name, item.spec)
            case LocalQueue():
                key = item.metadata.namespace, item.name
                self.local_queues[key] = item.spec
                self._local_queues_changed.add(key)
            case AdmissionCheck():
                self.forest.checks[item.name] = item.spec.controller_name
                self.objects_changed = True
            case Topology():
                if self.placed is not None:
                    self.placed.topologies.levels[item.name] = item.spec.labels
                    self.objects_changed = True
            case Cluster():
                self.forest.clusters[item.name] = item.metadata.labels
                self.objects_changed = True
            case _:  # see `decisive_part`, which has to name what is used here, and by policies
                pass

    def _delete(self, event: QueueObjectDeleted) -> None:
        self.policies.observe(event, self.held.values(), self.items.values())
        self.stop_reasons.pop((event.kind, event.namespace, event.name), None)
        match event.kind:
            case ResourceFlavor.kind:
                self.forest.flavors.pop(event.name, None)
                self.objects_changed = True
            case Cohort.kind:
                self.forest.cohorts.pop(event.name, None)
                self.objects_changed = True
            case ClusterQueueObject.kind:
                self.forest.specs.pop(event.name, None)
                self.objects_changed = True
            case Drain.kind:
                self.drains.put(event.name, None)
            case Reservation.kind:
                self.drains.reserve(event.name, None)
            case LocalQueue.kind:
                self.local_queues.pop((event.namespace, event.name), None)
                self._local_queues_changed.add((event.namespace, event.name))
            case AdmissionCheck.kind:
                self.forest.checks.pop(event.name, None)
                self.objects_changed = True
            case Cluster.kind:
                self.forest.clusters.pop(event.name, None)
                self.objects_changed = True
            case Topology.kind:
                if self.placed is not None:
                    self.placed.topologies.levels.pop(event.name, None)
                    self.objects_changed = True
            case _:
                pass

    def _change_surroundings(self, event: NamespaceChanged | ClustersLost) -> None:
        if isinstance(event, ClustersLost):
            self.forest.lost, self.objects_changed = event.names, True
            return
        if self.namespaces.get(event.name) == event.labels:
            return  # every start reports all namespaces again, after the pending workloads were loaded
        if event.labels is None:
            self.namespaces.pop(event.name, None)
        else:
            self.namespaces[event.name] = event.labels
        self._accepted.clear()
        self._namespaces_changed.add(event.name)

    def wake(self) -> None:
        """Make workloads active whose requeue backoff has ended, that may preempt others which were protected, or that
        are not overtaken any more."""
        self.drains.wake()
        for domain in self.forest.aging:
            if domain.overdue_at is not None and domain.overdue_at <= self.now:
                domain.overdue_at = None
                domain.dirty = domain.freed = True
        for domain in self.forest.guarded:
            assert domain.guard is not None
            domain.guard.now = self.now
            if domain.guard.ends_at is not None and domain.guard.ends_at <= self.now:
                domain.guard.ends_at = None
                domain.dirty = domain.freed = True
        while self.asleep and self.asleep[0][0] <= self.now:
            not_before, uid = heappop(self.asleep)
            item = self.items.get(uid)
            if item is not None and item.not_before == not_before and item.cluster_queue:
                queue = self.forest.queue(item.cluster_queue)
                queue.pending.wake(item)
                self.stale_reasons[uid] = None
                self.mark_dirty(queue)
            mover = self.movers.by_uid.get(uid)
            if mover is not None and mover.not_before == not_before:
                queue = self.forest.queue(mover.cluster_queue)
                if queue.moving is not None:
                    queue.moving.wake(mover)
                    self.mark_dirty(queue)

    def guard_aside(self, domain: Domain) -> Guard | None:
        """Return the protection in a tree for an answer, which must not have anything tried again."""
        return None if domain.guard is None else Guard(self.forest.preemptions, self.now, lost=self.forest.lost)

    def wake_at(self) -> float | None:
        """Return when `wake` or `retry_refused` may make a workload active (Unix time, s); None: never."""
        backoff = self.asleep[0][0] if self.asleep else None
        permitted = self.policies.wake_at() if self.policies.refused else None
        protected = (domain.guard.ends_at for domain in self.forest.guarded if domain.guard is not None)
        overdue = (domain.overdue_at for domain in self.forest.aging)
        times = (backoff, permitted, self.drains.changes_at, *protected, *overdue)
        return min((at for at in times if at is not None), default=None)

    def retry_refused(self) -> None:
        """Make workloads active that no policy refuses any more, if any input of the policies has changed."""
        if not self.policies.refused or not self.policies.retry_due():
            return
        for uid, (item, usage) in list(self.policies.refused.items()):
            if self.items.get(uid) is not item or not item.cluster_queue:
                del self.policies.refused[uid]
                continue
            refusal = self.policies.refusal(item, item.cluster_queue)
            # Refused with its flavors, it may be permitted with others.
            if refusal is None or (refusal.reason in REFUSED_IN_A_FLAVOR and any(flavor for flavor, _ in usage)):
                del self.policies.refused[uid]
                queue = self.forest.queue(item.cluster_queue)
                queue.pending.wake(item)
                self.mark_dirty(queue)
            elif refusal[:2] != item.last_park:
                self._unreported[uid] = item

    def evict_for_policies(self) -> list[Evict]:
        """Mark workloads as evicting that policies want to release their quota, and return their evictions."""
        evicted = []
        for uid, reason, message in self.policies.evictions():
            held = self.held.get(uid)
            if held is None or held.evicting:
                continue
            self._mark_evicted(uid)
            evicted.append(Evict(held.workload, reason, message))
        return evicted

    def tree_of(self, cluster_queue: str) -> Tree | None:
        """Return the quota tree of a ClusterQueue, another object after each change; None: it is in none."""
        queue = self.forest.queues.get(cluster_queue)
        return None if queue is None or queue not in self.forest.domain_of else queue.tree

    def blank_tree(self, cluster_queue: str, at: float) -> Tree:
        """Return a copy of the tree of a ClusterQueue, without usage, with the quotas of an instant (Unix time, s)."""
        return self.forest.blank(self.forest.domain_of[self.forest.queues[cluster_queue]], at)

    @property
    def has_changes(self) -> bool:
        """Whether queue objects or namespaces have changed since the last `refresh`."""
        return bool(self.objects_changed or self._local_queues_changed or self._namespaces_changed)

    def lowers(self, item: Item) -> str:
        """Return why a policy lowers the priority of a workload in a ClusterQueue, as a sentence; empty: none does."""
        usage, queue = item.shape.usage, self.forest.queues.get(item.cluster_queue)
        if queue is not None and any(PODS in group.covered_resources for group in queue.spec.resource_groups):
            usage = {**usage, ("", PODS): sum(each.count for each in item.shape.pod_sets)}
        return self.policies.lowers(item.workload, item.cluster_queue, usage)

    def lower(self) -> None:
        """Order workloads by another priority whose priority a policy lowers now, or no longer."""
        if not self.policies.lowering_changed():
            return
        for item in list(self.items.values()):
            if not item.cluster_queue:
                continue
            if bool(self.lowers(item)) is not item.lowered:
                self._dequeue(item)
                self._enqueue(item)
                self.stale_reasons[item.uid] = None
        for held in self.held.values():
            is_low = bool(self.policies.lowers(held.workload, held.queue.name, dict(held.usage)))
            if is_low is not held.lowered:
                held.queue.lower(held, lowered=is_low)
                held.queue.generation += 1
                if held.queue.moving is not None:
                    self.movers.follow(held)
                self.mark_dirty(held.queue)
                if (domain := self.forest.domain_of.get(held.queue)) is not None:
                    domain.freed = True  # others may preempt it now

    def refresh(self) -> list[Evict]:
        """Apply the recorded changes of queue objects; return the evictions they cause (stopPolicy HoldAndDrain)."""
        if not self.has_changes:
            return []
        self.policies.changed()
        intervals = {queue: queue.priority_interval for queue in self.forest.queues.values()}
        if self.objects_changed:
            self._rebuild()
        reordered = {
            queue.name for queue in self.forest.queues.values() if queue.priority_interval != intervals.get(queue, 0.0)
        }
        for item in list(self.items.values()):
            workload = item.workload
            moved = (workload.namespace, workload.queue) in self._local_queues_changed
            moved = moved or item.cluster_queue in reordered
            if (moved or workload.namespace in self._namespaces_changed) and item.uid not in self._on_hold:
                self._dequeue(item)
                self._enqueue(item)
                self.stale_reasons[item.uid] = None
        self.objects_changed = False
        self._local_queues_changed.clear()
        self._namespaces_changed.clear()
        evicted = self._drain()
        self.movers.refresh()
        return evicted

    def _drain(self) -> list[Evict]:
        """Mark workloads that hold quota of queues stopped with `HoldAndDrain` as evicting; return their evictions.

        As in Kueue's KEP 1284.
        """
        evicted = []
        for held in self.held.values():
            if held.evicting:
                continue
            local_queue = self.local_queues.get(held.local_queue)
            if held.queue.spec.stop_policy == "HoldAndDrain":
                reason, key = CLUSTER_QUEUE_STOPPED, (ClusterQueueObject.kind, "", held.queue.name)
            elif local_queue is not None and local_queue.stop_policy == "HoldAndDrain":
                reason, key = LOCAL_QUEUE_STOPPED, (LocalQueue.kind, *held.local_queue)
            else:
                continue
            text = sentences.drained(*key, self.stop_reasons.get(key, ""))
            evicted.append(Evict(held.workload, reason, text))
            held.evicting = True
        return evicted

    def _rebuild(self) -> None:
        inactive = {queue: queue.inactive for queue in self.forest.queues.values()}
        if self.placed is not None:
            self.placed.follow_flavors()
        rebuilt = self.forest.refresh()
        self._accepted.clear()
        for queue in self.forest.queues.values():
            # The reason may change if the ClusterQueue is or was inactive, or does not accept the namespace.
            for item in queue.pending.items():
                if queue.inactive or inactive.get(queue, "") or not item.accepted:
                    self.stale_reasons[item.uid] = None
                if queue.inactive:
                    self._unreported[item.uid] = item
        for domain in rebuilt:
            domain.usage_of = self.policies.victims_key if self.policies.ordering else None
            for queue in domain.queues:
                queue.pending.order_by(self.policies.order(queue.name, queue.spec))
                for item in queue.pending.items():
                    item.accepted = self.accepts(queue, item.workload.namespace)
                    if not item.accepted:
                        self.stale_reasons[item.uid] = None
                queue.pending.reconsider(self.now)

    def is_on_hold(self, uid: str) -> bool:
        """Whether a pending workload is on hold."""
        return uid in self._on_hold

    def newly_outside(self) -> list[Park]:
        """Return unreported reasons of workloads that take no part in cycles, as Kueue's messages."""
        parks = []
        for item in self._unreported.values():
            park = park_outside(self, item)
            if park is not None and item.last_park != park:
                item.last_park = park
                parks.append(Park(item.workload, *park))
        self._unreported.clear()
        return parks

    def cluster_queue_spec(self, name: str) -> ClusterQueueSpec | None:
        """Return the spec of a ClusterQueue as last observed; None: it does not exist."""
        return self.forest.specs.get(name)


_FIRST_REST: Final = 30.0
"""Seconds from the second preemption for the same workload until the victim queues again; doubled with each further
one."""
_LONGEST_REST: Final = 3600.0
"""The longest rest (s)."""
_CALM: Final = 600.0
"""Seconds for which a workload has held quota when it is preempted, after which earlier preemptions do not count."""


class Rests:
    """How often workloads were preempted for which other workload, and when their rest ends.

    Sluice's own (docs/semantics.md 10): several preemptors may keep each other from being admitted, and evict the same
    workloads again each time. Counts are lost at a restart.
    """

    def __init__(self) -> None:
        self._times: dict[str, dict[str, int]] = {}
        """Uid of a victim to the number of its preemptions by uid of the preemptor."""
        self._until: dict[str, float] = {}

    def preempted(self, held: Held, preemptor: str, now: float) -> None:
        """Count a preemption at `now` (Unix time, s) of a workload that still holds its quota."""
        uid = held.workload.uid
        times = self._times.setdefault(uid, {})
        if now - held.admitted_at >= _CALM:
            times.clear()
        times[preemptor] = again = times.get(preemptor, 0) + 1
        if again > 1:
            self._until[uid] = now + min(_FIRST_REST * 2.0 ** (again - 2), _LONGEST_REST)

    def until(self, uid: str) -> float:
        """Return when the last rest of a workload ends or has ended (Unix time, s); 0: it had none."""
        return self._until.get(uid, 0.0)

    def forget(self, uid: str) -> None:
        """Forget a workload that does not queue any more."""
        self._times.pop(uid, None)
        self._until.pop(uid, None)
