"""Remedies: small changes of a pending workload, each of which alone would let it be admitted now.

Every remedy was verified by a flavor assignment at the current usage.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from admission.engine.assignment import Mode, Possibility
from admission.engine.flavors import Assigner
from admission.engine.lacks import lacks_of
from admission.engine.outside_cycles import why_outside
from admission.engine.pending_item import Item, Shape
from admission.engine.tree import lowest_subtree
from admission.engine.verdicts import assign_without_preemption
from admission.model.pod_set_names import is_computed, titled
from admission.model.resource_words import amount_number, amount_text
from admission.model.workload import Toleration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from admission.engine.assignment import Assignment
    from admission.engine.clusterqueue import ClusterQueue
    from admission.engine.forest import Domain
    from admission.engine.lacks import Lack
    from admission.engine.preemption import TargetSearch
    from admission.engine.registry import Registry
    from admission.model.workload import PodSet

_QUEUES = 100  # LocalQueues of the namespace that are tried at most
_PRIORITIES = 50  # priorities that are tried at most, from the lowest


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change of a workload with which it would be admitted now."""

    change: str
    """Pods, Request, Placement, LocalQueue, Borrowing or Priority."""
    hint: str
    """The change in words, to follow "It could start now"."""


def remedies(
    registry: Registry,
    item: Item,
    *,
    ignore_undeclared: bool,
    search: Callable[[Domain, ClusterQueue, Item], TargetSearch] | None,
) -> Iterator[Remedy]:
    """Yield the remedies found at the current usage; none for a workload that does not wait for quota.

    Those that change least come first: another LocalQueue, other nodes, fewer pods, smaller requests, a priority.

    `search` creates a search for preemption targets; None: priorities are not tried.
    """
    queue = registry.forest.queue(item.cluster_queue) if item.cluster_queue else None
    if queue is None or queue.node is None or why_outside(registry, item) is not None or not item.accepted:
        return
    if item.fault is not None or _fits(queue, item.shape, ignore_undeclared):
        return
    yield from _other_queues(registry, item, ignore_undeclared)
    if queue.spec.queueing_strategy != "StrictFIFO" or not queue.pending.ahead_of(item, 1):
        # In a StrictFIFO queue the workloads ahead of it would come first, whatever it requests.
        yield from _borrowing(queue, item, ignore_undeclared)
        yield from _other_nodes(queue, item, ignore_undeclared)
        yield from _fewer_pods(queue, item, ignore_undeclared)
        assignment = assign_without_preemption(queue, item, ignore_undeclared)
        lacks = lacks_of(queue, assignment, may_borrow=item.shape.terms.may_borrow)
        yield from _smaller_requests(queue, item, lacks, ignore_undeclared)
        if search is not None:
            yield from _higher_priority(registry, queue, item, search, ignore_undeclared)


def _assigned(queue: ClusterQueue, shape: Shape, ignore_undeclared: bool) -> Assignment | None:
    """Return the flavor assignment that a shape would get without preemption; None if the ClusterQueue is inactive."""
    node = queue.node
    if node is None or queue.inactive:
        return None
    found = (
        Assigner(
            queue,
            each,
            simulate=lambda fr, amount: (Possibility.NO_CANDIDATES, lowest_subtree(node, fr, amount)[0]),
            ignore_undeclared=ignore_undeclared,
        ).assign()
        for each in shape.alternatives
    )
    return max(found, key=lambda assignment: assignment.mode)


def _fits(queue: ClusterQueue, shape: Shape, ignore_undeclared: bool) -> bool:
    assignment = _assigned(queue, shape, ignore_undeclared)
    return assignment is not None and assignment.mode is Mode.FIT


def _shaped(item: Item, pod_sets: Sequence[PodSet], priority: int | None = None) -> Shape:
    changed = tuple(pod_sets)
    shape = item.shape
    own = shape.priority if priority is None else priority
    return Shape(changed, changed, own, terms=shape.terms, cluster=shape.cluster, clusters=shape.clusters)


def _with(item: Item, number: int, pod_set: PodSet) -> Shape:
    """Return the workload's shape with its pod set at position `number` replaced."""
    pod_sets = item.shape.pod_sets
    return _shaped(item, (*pod_sets[:number], pod_set, *pod_sets[number + 1 :]))


def _borrowing(queue: ClusterQueue, item: Item, ignore_undeclared: bool) -> Iterator[Remedy]:
    shape = item.shape
    if not shape.terms.may_borrow:
        other = Shape(shape.pod_sets, shape.pod_sets, shape.priority, cluster=shape.cluster, clusters=shape.clusters)
        if _fits(queue, other, ignore_undeclared):
            yield Remedy("Borrowing", "without its annotation cannot-borrow")


def _fewer_pods(queue: ClusterQueue, item: Item, ignore_undeclared: bool) -> Iterator[Remedy]:
    """Yield, for each pod set, the largest number of its pods with which the workload fits."""
    for number, pod_set in enumerate(item.shape.pod_sets):
        fitting, too_many = 0, pod_set.count
        while too_many - fitting > 1:
            count = (fitting + too_many) // 2
            if _fits(queue, _with(item, number, replace(pod_set, count=count)), ignore_undeclared):
                fitting = count
            else:
                too_many = count
        if fitting:
            where = "" if is_computed(pod_set.name) else f" in {titled(pod_set.name)}"
            yield Remedy("Pods", f"with {fitting} instead of {pod_set.count} pods{where}")


def _smaller_requests(
    queue: ClusterQueue, item: Item, lacks: Sequence[Lack], ignore_undeclared: bool
) -> Iterator[Remedy]:
    """Yield, for each flavor, requests reduced to the free amounts, if the workload fits with them."""
    for flavor in dict.fromkeys(lack.flavor for lack in lacks):
        for number, pod_set in enumerate(item.shape.pod_sets):
            if not pod_set.count:
                continue
            # What is free, without what the other pod sets request of it.
            cut = {
                lack.resource: (
                    min(lack.free, lack.maximum) - lack.requested + pod_set.requests[lack.resource] * pod_set.count
                )
                // pod_set.count
                for lack in lacks
                if lack.flavor == flavor and lack.resource in pod_set.requests
            }
            if not cut or min(cut.values()) <= 0:
                continue  # a request of zero is no useful advice
            smaller = replace(pod_set, requests={**pod_set.requests, **cut})
            if _fits(queue, _with(item, number, smaller), ignore_undeclared):
                amounts = ", ".join(
                    f"{amount_number(name, amount)} instead of {amount_text(name, pod_set.requests[name])}"
                    for name, amount in cut.items()
                )
                each = "each of" if is_computed(pod_set.name) else "each pod of"
                yield Remedy("Request", f"if {each} {titled(pod_set.name)} asked for {amounts}")


def _other_nodes(queue: ClusterQueue, item: Item, ignore_undeclared: bool) -> Iterator[Remedy]:
    """Yield flavors with enough quota that node selector, affinity or missing tolerations exclude."""
    everywhere = Toleration(operator="Exists")
    unrestricted = [
        replace(pod_set, node_selector={}, affinity=None, tolerations=(everywhere,)) for pod_set in item.shape.pod_sets
    ]
    assignment = _assigned(queue, _shaped(item, unrestricted), ignore_undeclared)
    if assignment is None or assignment.mode is not Mode.FIT:
        return
    flavors = dict.fromkeys(choice.flavor for result in assignment.pod_sets for choice in result.choices.values())
    named = ", ".join(flavors)
    yield Remedy("Placement", f"in flavor {named}, which its node selector, affinity or missing tolerations exclude")


def _other_queues(registry: Registry, item: Item, ignore_undeclared: bool) -> Iterator[Remedy]:
    """Yield the first LocalQueue of the namespace whose ClusterQueue has enough free quota, and no admission checks.

    With checks the workload would not start, but wait for them, perhaps forever.
    """
    namespace = item.workload.namespace
    names = sorted(name for own, name in registry.local_queues if own == namespace and name != item.workload.queue)
    for name in names[:_QUEUES]:
        spec = registry.local_queues[namespace, name]
        other = registry.forest.queues.get(spec.cluster_queue)
        if other is None or spec.stop_policy != "None" or spec.cluster_queue == item.cluster_queue:
            continue
        checks = other.spec.admission_checks_strategy
        if checks is not None and checks.admission_checks:
            continue
        blocked = other.spec.queueing_strategy == "StrictFIFO" and len(other.pending) > 0
        if not blocked and registry.accepts(other, namespace) and _fits(other, item.shape, ignore_undeclared):
            yield Remedy("LocalQueue", f"in LocalQueue {name}")
            return


def _higher_priority(
    registry: Registry,
    queue: ClusterQueue,
    item: Item,
    search: Callable[[Domain, ClusterQueue, Item], TargetSearch],
    ignore_undeclared: bool,
) -> Iterator[Remedy]:
    """Yield the lowest priority with which preemption would make room for the workload."""
    domain = registry.forest.domain_of[queue]
    held = {one.priority + 1 for other in domain.queues for one in other.held.values() if not one.evicting}
    for priority in sorted(one for one in held if one > item.shape.priority)[:_PRIORITIES]:
        shape = _shaped(item, item.shape.pod_sets, priority)
        raised = Item(replace(item.workload, priority=priority), shape)
        found = search(domain, queue, raised)
        assignments = [
            Assigner(queue, each, simulate=found.simulate, ignore_undeclared=ignore_undeclared).assign()
            for each in shape.alternatives
        ]
        assignment = max(assignments, key=lambda each: each.mode)
        if assignment.mode is Mode.PREEMPT and (targets := found.targets(assignment)):
            targets = [target for target in targets if not target.held.evicting]
            if not targets:  # it only has to wait for workloads that are being evicted already
                return
            others = "another workload" if len(targets) == 1 else f"{len(targets)} other workloads"
            yield Remedy("Priority", f"with priority {priority} or more, by preemption of {others}")
            return
