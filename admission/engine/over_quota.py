"""Usage above quota, as when quota is lowered: where it is, and the eviction of workloads for it (`overQuota`).

The eviction is an extension of Kueue, off unless a ClusterQueue has `overQuota`. For it a ClusterQueue is over quota in
a flavor-resource while its usage exceeds its nominal quota and `available` is negative, because of its own limit or
that of a node above: usage within the nominal quota is never evicted. After the delay, workloads of all such
ClusterQueues of the tree are evicted, lowest priority first, of equal ones the one admitted last, just enough that none
is over quota any more. The delay counts from when the engine first saw the ClusterQueue over quota, after a restart
from the start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from admission.engine.events import Evict
from admission.engine.tree import available, limits_below
from admission.engine.victims import Target, fill_back
from admission.engine.vocabulary import OVER_QUOTA, over_quota_text
from admission.model import sentences

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.engine.clusterqueue import ClusterQueue, Held
    from admission.engine.forest import Domain
    from admission.engine.tree import Node, Tree


def converge(domain: Domain, now: float) -> list[Evict]:
    """Record since when ClusterQueues of the tree are over quota, and return evictions where the delay has ended."""
    if not domain.changed:  # admissions bring no ClusterQueue over quota: only known ones need a check
        first = deadline(domain)
        if first is None or not (domain.dirty or first <= now):
            return []
    domain.changed = False
    # Workloads that are being evicted count as if their quota were released.
    leaving = [held for queue in domain.queues for held in queue.held.values() if held.evicting]
    for held in leaving:
        held.queue.uncount(held)
    due = []
    for queue in domain.converging:
        if not _exceeded(queue):
            queue.over_since = None
            continue
        if queue.over_since is None:
            queue.over_since = now
        if _deadline(queue) <= now:
            due.append(queue)
            queue.over_since = None
    evicted = _evict(due) if due else []
    for held in leaving:
        held.queue.recount(held)
    return evicted


def deadline(domain: Domain) -> float | None:
    """Return the Unix time (s) at which the first delay of the tree's ClusterQueues ends; None: none is over quota."""
    return min((_deadline(queue) for queue in domain.converging if queue.over_since is not None), default=None)


def _deadline(queue: ClusterQueue) -> float:
    assert queue.spec.over_quota is not None
    assert queue.over_since is not None
    return queue.over_since + queue.spec.over_quota.evict_after_seconds


def _exceeded(queue: ClusterQueue) -> list[int]:
    """Return the flavor-resources in which a ClusterQueue is over quota."""
    node = queue.node
    assert node is not None
    return [fr for fr, used in enumerate(node.usage) if used > node.nominal[fr] and available(node, fr) < 0]


def _evict(queues: list[ClusterQueue]) -> list[Evict]:
    """Return evictions, and mark these workloads as evicting, so that none of the ClusterQueues is over quota."""
    targets: list[Target] = []
    messages: dict[str, str] = {}
    for held in sorted((held for queue in queues for held in queue.held.values() if not held.evicting), key=_rank):
        exceeded = set(_exceeded(held.queue))
        fr = next((fr for fr, _ in held.amounts if fr in exceeded), None)
        if fr is None:
            continue
        assert held.queue.node is not None
        messages[held.workload.uid] = _message(held.queue, fr)
        held.queue.uncount(held)
        targets.append(Target(held, held.queue.node, OVER_QUOTA))
    targets = fill_back(targets, lambda: not any(map(_exceeded, queues)))
    for target in targets:
        target.held.queue.recount(target.held)
        target.held.queue.generation += 1
        target.held.evicting = True
    return [Evict(target.held.workload, OVER_QUOTA, messages[target.held.workload.uid]) for target in targets]


def _rank(held: Held) -> tuple[int, float, str]:
    return held.priority, -held.admitted_at, held.workload.uid


def _message(queue: ClusterQueue, fr: int) -> str:
    assert queue.node is not None
    assert queue.tree is not None
    assert queue.spec.over_quota is not None
    node = queue.node
    excess = min(-available(node, fr), node.usage[fr] - node.nominal[fr])
    delay = queue.spec.over_quota.evict_after_seconds
    limit = sentences.limit_of(limits_below(node, fr, 0)[0][0])
    return over_quota_text(queue.name, queue.tree.frs[fr], node.usage[fr], excess, limit, delay)


@dataclass(frozen=True, slots=True)
class Overuse:
    """A flavor-resource in which the usage of a ClusterQueue or Cohort exceeds its quota. Amounts as in the model."""

    kind: str
    """ClusterQueue or Cohort."""
    name: str
    flavor: str
    resource: str
    by: int
    """The amount by which usage exceeds the quota."""


def overuse(tree: Tree) -> Iterator[Overuse]:
    """Yield overuse of all nodes: of a root above its quota, of other nodes above quota plus borrowing limit."""
    for node in (*tree.queues.values(), *tree.cohorts.values()):
        for fr, used in enumerate(node.usage):
            most = _most(node, fr)
            if most is not None and used > most:
                flavor, resource = tree.frs[fr]
                yield Overuse("ClusterQueue" if node.leaf else "Cohort", node.name, flavor, resource, used - most)


def _most(node: Node, fr: int) -> int | None:
    """Return the most usage that the node's own limits permit; None: no limit."""
    if node.parent is None:
        return node.quota[fr]
    limit = node.borrowing[fr]
    return None if limit is None else node.quota[fr] + limit
