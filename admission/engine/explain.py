"""Explanation of a workload's state: obstacles with amounts, queue position, workloads ahead of it, and what helps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from admission.engine.assignment import Mode
from admission.engine.lacks import Lack, lacks_of, needed_now
from admission.engine.outside_cycles import why_outside
from admission.engine.preemption_hints import preemption_hint
from admission.engine.protection import Guard, began_at
from admission.engine.queue_positions import QueuePositions
from admission.engine.topology.advice import advice
from admission.engine.verdicts import (
    assign_without_preemption,
    lacks_by_cluster,
    never_fits,
    passed_over,
    unplaced,
    verdict_of,
)
from admission.model import sentences
from admission.model.resource_words import amount_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from admission.engine.assignment import Assignment, Attempt
    from admission.engine.clusterqueue import ClusterQueue, Held
    from admission.engine.pending_item import Item
    from admission.engine.preemption_hints import PreemptionHint
    from admission.engine.registry import Registry
    from admission.model.workload import Workload

_NAMED = 5  # workloads ahead, and workloads that use what is missing, that are named at most
_COUNTED = 5000  # workloads ahead, and admitted ones, that are looked at for that


@dataclass(frozen=True, slots=True)
class Holder:
    """An admitted workload that uses what is missing."""

    key: str
    """`namespace/name`."""
    amounts: tuple[int, ...]
    """What it uses of each of the missing flavor-resources, in their order."""


@dataclass(frozen=True, slots=True)
class Lent:
    """Quota of a ClusterQueue that a workload of it lacks, as others use it."""

    flavor: str
    cluster: str
    """The cluster of the flavor, if the workload is dispatched; else empty."""
    amount: str
    """`2 CPU`."""
    cluster_queue: str
    borrowers: tuple[str, ...]
    """Who borrows of this flavor and resource, the most first: `team-x borrows 2 CPU`; empty: it is not said."""

    def __str__(self) -> str:
        return sentences.lent(self.flavor, self.cluster, self.amount, self.cluster_queue, self.borrowers)


@dataclass(frozen=True, slots=True)
class Explanation:
    """State of a workload, and for a pending one what keeps it from being admitted."""

    state: str
    """Pending, Admitted or Evicting."""
    reason: str = ""
    """The pending reason, of the vocabulary or of a policy."""
    message: str = ""
    """The message for the reason, with what helps."""
    cluster_queue: str = ""
    """Name of its ClusterQueue; empty: it is in none."""
    position_in_cluster_queue: int = 0
    """From 1 (see `QueuePositions`); 0 if it is in no ClusterQueue, or cannot be admitted as it is."""
    position_in_local_queue: int = 0
    """From 1, like the position in the ClusterQueue."""
    waiting_in_cluster_queue: int = 0
    """Number of workloads that have a position in its ClusterQueue."""
    waiting_in_local_queue: int = 0
    """Number of workloads that have a position in its LocalQueue."""
    not_before: float | None = None
    """Unix time (s) at which its requeue backoff ends; None: no backoff."""
    ahead_first: tuple[str, ...] = ()
    """`namespace/name` of the first workloads ahead of it in its ClusterQueue of its own namespace and cluster."""
    attempts: tuple[tuple[str, Attempt], ...] = ()
    """(name of the pod set, flavor that was tried for it)."""
    lacks: tuple[Lack, ...] = ()
    """The flavor-resources of which too little is available."""
    preemption_hints: tuple[PreemptionHint, ...] = ()
    """What it might preempt, for each of `lacks` that could become free."""
    holders: tuple[Holder, ...] = ()
    """Admitted workloads of its own namespace and cluster that use what is missing, the largest first; not all."""
    other_holders: int = 0
    """Number of all others that do, counted up to a limit."""

    placement: tuple[str, ...] = ()
    """Sentences about the room for its pods where it has quota, but no place in its topology."""
    moves: str = ""
    """Of a workload that holds quota, a sentence about the flavors to which it would move; empty: it would to none."""
    drained: str = ""
    """Of a workload that holds quota, a sentence about a Drain of what it uses; empty: there is none."""
    lent: tuple[Lent, ...] = ()
    """Quota of its ClusterQueue that is missing, and that others borrow, up to a limit."""
    elsewhere: tuple[str, ...] = ()
    """Sentences about what is missing in clusters that it could be dispatched to, beside that of `lacks`."""
    passed_over: tuple[str, ...] = ()
    """Sentences about clusters that it could be dispatched to, and is not tried in now."""
    lowered: str = ""
    """Why it has the lowest priority, as a sentence; empty: it has its own."""
    protected: str = ""
    """Of a workload that holds quota, sentences about its protection from preemption and its time slice; empty: it has
    neither now."""

    @property
    def ahead(self) -> int:
        """Number of workloads ahead of it in its ClusterQueue."""
        return max(0, self.position_in_cluster_queue - 1)


def explain_held(registry: Registry, held: Held) -> Explanation:
    """Return the explanation of a workload that holds quota, and may still wait for a place in its topology."""
    state = "Evicting" if held.evicting else "Admitted"
    protected = "" if held.evicting else _protected(registry, held)
    placement: list[str] = []
    if registry.placed is not None and not held.evicting:
        workload = held.workload
        for pod_set, pods, flavors in registry.placed.waiting(held):
            for flavor in flavors:
                placement += advice(registry, flavor, pod_set, pods, uid=workload.uid, namespace=workload.namespace)
    moves = _moves(registry, held) if held.queue.moving is not None and not held.evicting else ""
    drains = registry.drains.of(held) if registry.drains and not held.evicting else ()
    told = [sentences.runs_while_drained(name, spec.deadline, spec.reason) for name, spec in drains]
    if registry.drains.reserved and not held.evicting:
        told += registry.drains.reserved.of(held)
    drained = " ".join(told)
    queue = held.admission.cluster_queue
    is_low = held.lowered and not held.evicting
    why = registry.policies.lowers(held.workload, queue, dict(held.usage)) if is_low else ""
    return Explanation(
        state, cluster_queue=queue, placement=tuple(placement), protected=protected, moves=moves, drained=drained,
        lowered=why,
    )  # fmt: skip


def _moves(registry: Registry, held: Held) -> str:
    """Return the sentence about the flavors to which a workload would move; empty: it could run in none of them."""
    mover, queue = registry.movers.by_uid.get(held.workload.uid), held.queue
    if mover is None:
        return ""
    flavors = [
        flavor
        for flavor in mover.workload.terms.flavors
        if not never_fits(registry, queue, mover.shape.limited_to(flavor), ignore_undeclared=False)
    ]
    later = mover.not_before if mover.not_before > registry.now else None
    return sentences.would_move(flavors, queue.name, later) if flavors else ""


def _protected(registry: Registry, held: Held) -> str:
    """Return sentences about a workload that is not preempted for some time, or has a time slice; empty: neither."""
    guard, time_slice = Guard(registry.forest.preemptions, registry.now), held.queue.time_slice
    end, found = guard.until(held), []
    if end > registry.now:
        found.append(sentences.protected(end, is_preempted_often=guard.is_preempted_often(held)))
    if time_slice is not None:
        found.append(sentences.gives_way(began_at(held) + time_slice))
    return " ".join(found)


def explain_waiting(
    registry: Registry, item: Item, *, ignore_undeclared: bool, fair_sharing: bool = False
) -> Explanation:
    """Return the explanation of a pending workload at the current usage. Searches no preemption targets."""
    queue = registry.forest.queue(item.cluster_queue)
    reason, message, _ = verdict_of(registry, item, ignore_undeclared=ignore_undeclared)
    base = _base_explanation(registry, item, ignore_undeclared=ignore_undeclared)
    if queue.node is None or why_outside(registry, item) or item.fault is not None or not item.accepted:
        return replace(base, reason=reason, message=message)
    assignment = assign_without_preemption(queue, item, ignore_undeclared)
    lacking = lacks_of(queue, assignment, may_borrow=item.shape.terms.may_borrow)
    lacks = tuple(_with_usage(registry, queue, lack) for lack in lacking)
    holders, other_holders = _holders(registry, queue, item, lacks)
    by_cluster = lacks_by_cluster(queue, item, ignore_undeclared)
    others = [(cluster, each) for cluster, each in by_cluster if cluster and each and each != lacking]
    return replace(
        base,
        reason=reason,
        message=message,
        lowered=registry.lowers(item) if item.lowered else "",
        attempts=tuple((pod_set.name, attempt) for pod_set in assignment.pod_sets for attempt in pod_set.attempts),
        lacks=lacks,
        preemption_hints=tuple(_preemption_hints(registry, queue, item, lacks, fair_sharing=fair_sharing)),
        holders=holders,
        other_holders=other_holders,
        placement=tuple(_placement(registry, queue, item, assignment)),
        lent=tuple(islice(_lent(queue, by_cluster), _NAMED)),
        elsewhere=tuple(sentences.needs_in(cluster, needed_now(each)) for cluster, each in others[:_NAMED]),
        passed_over=tuple(passed_over(registry, item, reason, ignore_undeclared=ignore_undeclared)),
    )


def _lent(queue: ClusterQueue, by_cluster: Iterable[tuple[str, tuple[Lack, ...]]]) -> Iterator[Lent]:
    """Yield the part of a ClusterQueue's quota that is missing because other ClusterQueues use it."""
    tree, node = queue.tree, queue.node
    assert tree is not None
    assert node is not None
    for cluster, lacks in by_cluster:
        for lack in lacks:
            fr = tree.index[lack.flavor, lack.resource]
            lent = min(node.nominal[fr] - node.usage[fr] - lack.free, lack.missing)
            if lent > 0 and not lack.exceeds:
                borrowed = {name: other.usage[fr] - other.nominal[fr] for name, other in tree.queues.items()}
                most = sorted((-amount, name) for name, amount in borrowed.items() if amount > 0)
                borrowers = tuple(f"{name} borrows {amount_text(lack.resource, -amount)}" for amount, name in most)
                yield Lent(lack.flavor, cluster, amount_text(lack.resource, lent), queue.name, borrowers)


def _placement(registry: Registry, queue: ClusterQueue, item: Item, assignment: Assignment) -> Iterator[str]:
    if assignment.mode is not Mode.FIT or queue.topologies is None:
        return
    if (found := unplaced(queue, item.shape, assignment)) is not None:
        index, workload = found[0], item.workload
        result, pod_set = assignment.pod_sets[index], item.shape.written[index]
        for flavor in sorted({choice.flavor for choice in result.choices.values()}):
            yield from advice(registry, flavor, pod_set, result.pods, uid=workload.uid, namespace=workload.namespace)


def _with_usage(registry: Registry, queue: ClusterQueue, lack: Lack) -> Lack:
    assert queue.node is not None
    tree = registry.forest.domain_of[queue].tree
    fr = tree.index[lack.flavor, lack.resource]
    own = queue.node.usage[fr]
    return replace(lack, used=own, used_by_others=sum(node.usage[fr] for node in tree.queues.values()) - own)


def _holders(
    registry: Registry, queue: ClusterQueue, item: Item, lacks: tuple[Lack, ...]
) -> tuple[tuple[Holder, ...], int]:
    """Return `holders` and `other_holders` of the explanation."""
    domain = registry.forest.domain_of[queue]
    frs = [domain.tree.index[lack.flavor, lack.resource] for lack in lacks]
    own: list[Holder] = []
    others = 0
    if all(lack.exceeds for lack in lacks):
        return (), 0  # nothing that could become free is missing
    for held in islice((held for other in domain.queues for held in other.held.values()), _COUNTED):
        amounts = dict(held.amounts)
        used = tuple(amounts.get(fr, 0) for fr in frs)
        if not any(used):
            continue
        if _is_near(held.workload, item.workload):
            own.append(Holder(held.workload.key, used))
        else:
            others += 1
    own.sort(key=lambda one: [-amount for amount in one.amounts])
    return tuple(own[:_NAMED]), others + len(own[_NAMED:])


def _is_near(one: Workload, other: Workload) -> bool:
    """Return whether users of the one may know the other's name."""
    return (one.namespace, one.cluster) == (other.namespace, other.cluster)


def _base_explanation(registry: Registry, item: Item, *, ignore_undeclared: bool) -> Explanation:
    """Return the parts of an explanation that do not depend on the reason: backoff and queue positions."""
    not_before = item.not_before if item.not_before > registry.now else None
    base = Explanation("Pending", cluster_queue=item.cluster_queue, not_before=not_before)
    if not item.cluster_queue:
        return base
    queue = registry.forest.queue(item.cluster_queue)
    positions = QueuePositions(registry, queue, ignore_undeclared=ignore_undeclared)
    in_cluster_queue, in_local_queue = positions.of(item)
    waiting, waiting_here = positions.waiting(item.local_queue)
    ahead = positions.ahead(item, _COUNTED) if in_cluster_queue > 1 else ()
    own = (other.workload.key for other in ahead if _is_near(other.workload, item.workload))
    return replace(
        base,
        position_in_cluster_queue=in_cluster_queue,
        position_in_local_queue=in_local_queue,
        waiting_in_cluster_queue=waiting,
        waiting_in_local_queue=waiting_here,
        ahead_first=tuple(islice(own, _NAMED)),
    )


def _preemption_hints(
    registry: Registry, queue: ClusterQueue, item: Item, lacks: tuple[Lack, ...], *, fair_sharing: bool
) -> Iterator[PreemptionHint]:
    domain = registry.forest.domain_of[queue]
    short = {(lack.flavor, lack.resource, lack.missing) for lack in lacks if not lack.exceeds}
    for flavor, resource, missing in sorted(short):
        fr, guard = domain.tree.index[flavor, resource], registry.guard_aside(domain)
        yield preemption_hint(domain, queue, item, fr, missing, guard=guard, fair_sharing=fair_sharing)
