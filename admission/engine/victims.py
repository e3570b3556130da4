"""Preemption candidates, their order, and preemption targets: shared by classical preemption and fair sharing.

Follows Kueue's `pkg/scheduler/preemption/common`.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from functools import cmp_to_key, partial
from math import inf
from typing import TYPE_CHECKING, NamedTuple, Protocol

from admission.engine.events import Evict
from admission.engine.vocabulary import (
    IN_CLUSTER_QUEUE,
    OF_ANOTHER_CLUSTER,
    OF_ANOTHER_NAMESPACE,
    PREEMPTED,
    PREEMPTION_TEXTS,
    TIME_SLICE,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from admission.engine.clusterqueue import ClusterQueue, Held
    from admission.engine.protection import Claim, Guard
    from admission.engine.tree import Node
    from admission.model.workload import Workload


_PREEMPTOR = re.compile(r"\(UID: ([^()\s]+)\) due to ")


class Target(NamedTuple):
    """A preemption target: a workload to preempt, its ClusterQueue's node, and Kueue's reason for the preemption."""

    held: Held
    node: Node
    reason: str


def eviction(target: Target, preemptor: Workload, node: Node) -> Evict:
    """Return the eviction of the target for a preemptor in the ClusterQueue at `node`."""
    # Users of the target's namespace read the message, and may not see names of other namespaces, or clusters.
    whom, where = f"workload {preemptor.key}", f"preemptor path: {_path(node)}; "
    if preemptor.namespace != target.held.workload.namespace:
        whom, where = OF_ANOTHER_NAMESPACE, ""
    elif preemptor.cluster != target.held.workload.cluster:
        whom = OF_ANOTHER_CLUSTER
    message = (
        f"Preempted to accommodate {whom} (UID: {preemptor.uid}) due to {PREEMPTION_TEXTS[target.reason]}; "
        f"{where}preemptee path: {_path(target.node)}"
    )
    return Evict(target.held.workload, PREEMPTED, message, preemptor.uid, target.reason)


def preemptor_in(message: str) -> str:
    """Return the preemptor's uid from the message of a preemption; empty: the message names none."""
    found = _PREEMPTOR.search(message)
    return found[1] if found else ""


def _path(node: Node) -> str:
    return "".join(f"/{ancestor.name}" for ancestor in reversed((node, *node.path)))


class Placing(Protocol):
    """Whether a workload can be placed by topology, beside quota."""

    def change(self, held: Held, *, gone: bool) -> None:
        """Count an admitted workload no more if it is gone, and again otherwise."""

    def fits(self) -> bool:
        """Whether the workload can be placed beside those that are counted."""


class Preemptor(NamedTuple):
    """A pending workload for which preemption targets are searched, and its requests with one flavor assignment."""

    queue: ClusterQueue
    node: Node
    priority: int
    since: float
    """Unix time (s) since when it has waited: its queue order timestamp."""
    requests: Mapping[int, int]
    """Flavor-resource (index in the tree) to amount."""
    needed: frozenset[int]
    """The requested flavor-resources of which too little is free (Kueue's `frsNeedPreemption`)."""
    excluded: Mapping[str, object]
    """Uids of workloads that are no candidates, as their preemption was decided earlier in this cycle."""
    placing: Placing | None = None
    """None: it is not placed by topology."""
    may_borrow: bool = True
    """Whether it may be admitted with borrowed quota."""
    guard: Guard | None = None
    """Protection of workloads from preemption; None: the tree has none."""
    put_back_at: float | None = None
    """Unix time (s) at which it was put at the end of the queue; None: it was not."""

    @property
    def turns(self) -> int | None:
        """The priority of the workloads in its ClusterQueue with which it takes turns; None: with none."""
        return None if self.queue.time_slice is None else self.priority


def permitted(preemptor: Preemptor, queue: ClusterQueue, policy: str, claim: Claim) -> Iterator[Held]:
    """Return the candidates of a ClusterQueue: workloads that use a needed flavor-resource and pass the policy.

    `policy` is `withinClusterQueue` or `reclaimWithinCohort` of the preemptor's ClusterQueue
    (Kueue's `WorkloadUsesResources` and `SatisfiesPreemptionPolicy`). Workloads that are protected from the `claim`
    are none.
    """
    if policy == "Never":
        return
    # LowerPriority: strictly lower; LowerOrNewerEqualPriority: also of equal priority if it began to wait later.
    slices = queue.time_slice is not None and claim == "own"
    equal = policy == "LowerOrNewerEqualPriority" or slices
    most = inf if policy == "Any" else preemptor.priority if equal else preemptor.priority - 1
    for held in queue.held_up_to_priority(most):
        workload = held.workload
        if workload.uid in preemptor.excluded or not any(fr in preemptor.needed for fr, _ in held.amounts):
            continue
        if (
            policy != "Any"
            and held.priority == preemptor.priority
            and not _is_newer(preemptor, held, policy)
            and not (slices and _gives_way(preemptor, held))
        ):
            continue
        if preemptor.guard is not None and preemptor.guard.covers(held, claim):
            continue
        yield held


def _is_newer(preemptor: Preemptor, held: Held, policy: str) -> bool:
    """Whether a candidate of the same priority may be preempted as it began to wait later."""
    return policy == "LowerOrNewerEqualPriority" and preemptor.since < held.since


def _gives_way(preemptor: Preemptor, held: Held) -> bool:
    """Whether the time slice of a candidate of the same priority in the same ClusterQueue is over."""
    time_slice, guard = preemptor.queue.time_slice, preemptor.guard
    if time_slice is None or guard is None:
        return False
    return guard.gives_way(held, time_slice, put_back_at=preemptor.put_back_at)


def reason_in_own_queue(preemptor: Preemptor, held: Held) -> str:
    """Return why a candidate in the preemptor's ClusterQueue may be preempted."""
    if held.priority < preemptor.priority:
        return IN_CLUSTER_QUEUE
    newer = _is_newer(preemptor, held, preemptor.queue.spec.preemption.within_cluster_queue)
    return IN_CLUSTER_QUEUE if newer else TIME_SLICE


def ordered(
    candidates: Iterable[Held],
    queue: ClusterQueue,
    usage: Callable[[Held], float] | None = None,
    *,
    turns: int | None = None,
) -> list[Held]:
    """Sort candidates in the order in which they are preempted for a workload of `queue`.

    Evicted workloads first, then those of other ClusterQueues, then lower priority, later admission, uid. `usage`
    returns the usage of a workload's LocalQueue in admission fair sharing: within one ClusterQueue the higher usage
    comes first. (Kueue's `CandidatesOrdering`.) `turns`: the priority of those in `queue` that take turns with it, of
    which the one comes first that has run longest; None: there are none.
    """

    def rank(held: Held) -> tuple[int, float, str]:
        takes_turns = held.queue is queue and held.priority == turns
        return held.priority, held.admitted_at if takes_turns else -held.admitted_at, held.workload.uid

    if usage is None:
        return sorted(candidates, key=lambda held: (not held.evicting, held.queue is queue, *rank(held)))

    def compare(a: Held, b: Held) -> int:
        first = (not a.evicting, a.queue is queue), (not b.evicting, b.queue is queue)
        if first[0] != first[1]:
            return -1 if first[0] < first[1] else 1
        if a.queue is b.queue and (a.workload.namespace, a.workload.queue) != (b.workload.namespace, b.workload.queue):
            used_a, used_b = usage(a), usage(b)
            if used_a != used_b:
                return -1 if used_a > used_b else 1
        return -1 if rank(a) < rank(b) else 1

    return sorted(candidates, key=cmp_to_key(compare))


@contextmanager
def without(gone: Collection[Held]) -> Iterator[None]:
    """Context manager that removes the usage of these workloads from the trees, and adds it again at the end."""
    with without_quota(gone):
        for held in gone:
            held.queue.charge_places(held, -1)
        yield
        for held in gone:
            held.queue.charge_places(held, 1)


@contextmanager
def without_quota(gone: Collection[Held]) -> Iterator[None]:
    """Context manager that removes the usage of these workloads from the quota tree alone."""
    for held in gone:
        held.queue.uncount(held)
    yield
    for held in gone:
        held.queue.recount(held)


class Taking:
    """Targets that are taken one after the other until the workload fits; their usage is removed meanwhile."""

    def __init__(self, enough: Callable[[], bool], placing: Placing | None) -> None:
        """`enough`: whether quota suffices at the present usage."""
        self.targets: list[Target] = []
        self._fits = enough
        self._count: Count = change_usage
        if placing is not None:
            self._fits = lambda: enough() and placing.fits()
            self._count = partial(_change_both, placing)

    def take(self, target: Target) -> bool:
        """Take one more target; return whether they suffice now."""
        self._count(target, gone=True)
        self.targets.append(target)
        return self._fits()

    def end(self, *, found: bool) -> list[Target]:
        """Return the targets that are needed, none if they do not suffice, with the usage as it was before all."""
        targets = fill_back(self.targets, self._fits, self._count) if found else self.targets
        for target in targets:
            self._count(target, gone=False)
        return targets if found else []


def _change_both(placing: Placing, target: Target, *, gone: bool) -> None:
    change_usage(target, gone=gone)
    placing.change(target.held, gone=gone)


def change_usage(target: Target, *, gone: bool) -> None:
    """Remove the usage of a target from the quota tree, or add it again."""
    if gone:
        target.held.queue.uncount(target.held)
    else:
        target.held.queue.recount(target.held)


class Count(Protocol):
    """Counts a target no more if it is gone, and again otherwise."""

    def __call__(self, target: Target, *, gone: bool) -> None: ...


def fill_back(targets: list[Target], fit: Callable[[], bool], count: Count = change_usage) -> list[Target]:
    """Drop targets whose eviction is not needed, from the last but one to the first (Kueue's `fillBackWorkloads`).

    None of the `targets` may be counted; of the targets returned none is either. The order of the targets changes as in
    Kueue: the last one takes the place of a dropped one.
    """
    for index in range(len(targets) - 2, -1, -1):
        count(targets[index], gone=False)
        if fit():
            targets[index] = targets[-1]
            targets.pop()
        else:
            count(targets[index], gone=True)
    return targets
