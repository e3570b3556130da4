"""Preemption candidates and their order, for classical preemption and fair sharing alike."""

from __future__ import annotations

import re
from contextlib import contextmanager
from functools import cmp_to_key
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from admission.engine.events import Evict
from admission.engine.vocabulary import FOREIGN, PREEMPTED, PREEMPTION_TEXTS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from admission.engine.clusterqueue import ClusterQueue, Held
    from admission.engine.tree import Node
    from admission.model.workload import Workload


_PREEMPTOR = re.compile(r"\(UID: ([^()\s]+)\) due to ")


class Target(NamedTuple):
    """A workload to be preempted, its node in the tree, and Kueue's reason for the preemption."""

    held: Held
    node: Node
    reason: str


def eviction(target: Target, preemptor: Workload, node: Node) -> Evict:
    """The eviction of the target for a preemptor of the ClusterQueue at `node`."""
    # The people of the victim's namespace read that, and may not see what there is in others.
    is_near = preemptor.namespace == target.held.workload.namespace
    whom, where = (f"workload {preemptor.key}", f"preemptor path: {_path(node)}; ") if is_near else (FOREIGN, "")
    message = (
        f"Preempted to accommodate {whom} (UID: {preemptor.uid}) due to {PREEMPTION_TEXTS[target.reason]}; "
        f"{where}preemptee path: {_path(target.node)}"
    )
    return Evict(target.held.workload, PREEMPTED, message, preemptor.uid, target.reason)


def preemptor_in(message: str) -> str:
    """The uid of the preemptor that the message of such an eviction names; empty: it names none."""
    found = _PREEMPTOR.search(message)
    return found[1] if found else ""


def _path(node: Node) -> str:
    return "".join(f"/{ancestor.name}" for ancestor in reversed((node, *node.path)))


class Claim(NamedTuple):
    """The requests of a preemptor, and what of them is lacking."""

    queue: ClusterQueue
    node: Node
    priority: int
    since: float
    requests: Mapping[int, int]
    """Flavor-resource (index in the tree) to amount."""
    needed: frozenset[int]
    """The flavor-resources of which too little is free."""
    excluded: Mapping[str, object]
    """Uids of workloads that count as gone: their preemption was decided earlier in this cycle."""


def permitted(claim: Claim, queue: ClusterQueue, policy: str) -> Iterator[Held]:
    """Workloads of a ClusterQueue that use what is lacking and that the preemption policy permits."""
    if policy == "Never":
        return
    # LowerPriority: strictly lower; LowerOrNewerEqualPriority: also an equal one that has waited for less long.
    most = inf if policy == "Any" else claim.priority if policy == "LowerOrNewerEqualPriority" else claim.priority - 1
    for held in queue.held_at(most):
        workload = held.workload
        if workload.uid in claim.excluded or not any(fr in claim.needed for fr, _ in held.amounts):
            continue
        if policy == "LowerOrNewerEqualPriority" and workload.priority == claim.priority and claim.since >= held.since:
            continue
        yield held


def ordered(
    candidates: Iterable[Held], queue: ClusterQueue, usage: Callable[[Held], float] | None = None
) -> list[Held]:
    """In the order in which they are taken for a workload of `queue`.

    Already evicted before others, other ClusterQueues before the own, lower priority, later admitted. `usage` is that
    of the LocalQueue in admission fair sharing: within one ClusterQueue, LocalQueues that used more come first.
    """

    def rank(held: Held) -> tuple[int, float, str]:
        return held.workload.priority, -held.at, held.workload.uid

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
    """A context with the usage that there will be once these workloads are gone."""
    for held in gone:
        held.queue.uncount(held)
    yield
    for held in gone:
        held.queue.recount(held)


def fill_back(targets: list[Target], fit: Callable[[], bool]) -> list[Target]:
    """Put back, from the last but one to the first, those without whose eviction it still fits.

    All of `targets` must be uncounted; those in the answer are when it returns.
    """
    for index in range(len(targets) - 2, -1, -1):
        held = targets[index].held
        held.queue.recount(held)
        if fit():
            targets[index] = targets[-1]
            targets.pop()
        else:
            held.queue.uncount(held)
    return targets
