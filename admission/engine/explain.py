"""Why a workload does not run: what is missing where, who is ahead, and what would help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from admission.engine.assignment import Attempt, Mode, Possibility
from admission.engine.flavors import Assigner
from admission.engine.tree import available, lowest_subtree
from admission.engine.vocabulary import (
    MISCONFIGURED,
    NAMESPACE_MISMATCH,
    PENDING_EVALUATION,
    WAITING_FOR_QUOTA,
    Excess,
    Shortage,
)
from admission.model.quantity import UNLIMITED, format_amount

if TYPE_CHECKING:
    from admission.engine.assignment import Assignment, PodSetResult
    from admission.engine.clusterqueue import ClusterQueue, Held
    from admission.engine.pending import Item
    from admission.engine.registry import Registry
    from admission.engine.tree import Node, Tree

_AHEAD = 5  # how many of those ahead are named
_COUNTED = 5000  # how many are counted


@dataclass(frozen=True, slots=True)
class Lack:
    """One resource of one flavor of which a pod set cannot get enough now. Amounts as in the model."""

    pod_set: str
    flavor: str
    resource: str
    asked: int
    free: int
    """What the ClusterQueue could use now, borrowing included."""
    borrowable: int
    """How much of `free` would be borrowed."""
    most: int
    """What it could use if nobody else used anything."""
    refused_by: str
    """The node of the tree that has too little, and by which of its limits: `Cohort research: nominalQuota`."""

    @property
    def hint(self) -> str:
        """What would help."""
        missing = format_amount(self.resource, self.asked - min(self.free, self.most))
        where = f"{self.resource} in flavor {self.flavor}"
        if self.asked > self.most:
            return f"raise {self.refused_by} by {missing} of {where}, or ask for less"
        return f"{missing} of {where} must become free, or {self.refused_by} be raised by as much"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where a workload stands."""

    state: str
    """Pending, Admitted or Evicting."""
    reason: str = ""
    """Of the vocabulary, for one that waits."""
    message: str = ""
    cluster_queue: str = ""
    ahead: int = 0
    """How many of its ClusterQueue would be tried before it; counted up to a limit."""
    ahead_first: tuple[str, ...] = ()
    """The keys of the first of them."""
    attempts: tuple[tuple[str, Attempt], ...] = ()
    """Each flavor that was considered, with the pod set for which."""
    lacks: tuple[Lack, ...] = ()


def explain_held(held: Held) -> Explanation:
    """Where a workload stands that holds quota."""
    state = "Evicting" if held.evicting else "Admitted"
    return Explanation(state, cluster_queue=held.admission.cluster_queue)


def explain_waiting(registry: Registry, item: Item) -> Explanation:
    """Where a waiting workload stands, at the usage that there is now. Looks for no victims of preemption."""
    outside = registry.why_outside(item)
    if outside is not None:
        return Explanation("Pending", *outside, cluster_queue=item.cluster_queue)
    queue = registry.forest.queue(item.cluster_queue)
    ahead = queue.pending.ahead_of(item, _COUNTED)
    keys = tuple(other.workload.key for other in ahead[:_AHEAD])
    standing = Explanation("Pending", cluster_queue=queue.name, ahead=len(ahead), ahead_first=keys)
    if queue.node is None or queue.tree is None:
        return standing
    if item.fault is not None or not item.accepted:
        reason, message = item.fault or (MISCONFIGURED, NAMESPACE_MISMATCH)
        return _replace(standing, reason, message)
    node = queue.node
    assigner = Assigner(
        queue, item.shape, simulate=lambda fr, amount: (Possibility.NO_CANDIDATES, lowest_subtree(node, fr, amount)[0])
    )
    return _judged(standing, item, queue, assigner.assign())


def _judged(standing: Explanation, item: Item, queue: ClusterQueue, assignment: Assignment) -> Explanation:
    assert queue.tree is not None
    assert queue.node is not None
    if item.said is not None:
        reason, message = item.said
    elif assignment.mode is Mode.FIT:
        reason, message = PENDING_EVALUATION, "The workload was not tried yet"
    else:
        reason = assignment.reason() if assignment.mode is Mode.NO_FIT else WAITING_FOR_QUOTA
        message = assignment.message()
    attempts = tuple((pod_set.name, attempt) for pod_set in assignment.pod_sets for attempt in pod_set.attempts)
    lacks = tuple(
        _lack(queue.tree, queue.node, pod_set, cause)
        for pod_set in assignment.pod_sets
        for cause in pod_set.causes
        if isinstance(cause, Shortage | Excess)
    )
    return _replace(standing, reason, message, attempts, lacks)


def _replace(
    standing: Explanation,
    reason: str,
    message: str,
    attempts: tuple[tuple[str, Attempt], ...] = (),
    lacks: tuple[Lack, ...] = (),
) -> Explanation:
    return Explanation(
        standing.state,
        reason,
        message,
        standing.cluster_queue,
        standing.ahead,
        standing.ahead_first,
        attempts,
        lacks,
    )


def _lack(tree: Tree, node: Node, pod_set: PodSetResult, cause: Shortage | Excess) -> Lack:
    fr = tree.index[cause.flavor, cause.resource]
    free = max(0, available(node, fr))
    asked = free + cause.missing if isinstance(cause, Shortage) else cause.before + cause.asked
    own = max(0, node.nominal[fr] - node.usage[fr])
    return Lack(
        pod_set.name,
        cause.flavor,
        cause.resource,
        asked,
        min(free, UNLIMITED),
        min(max(0, free - own), UNLIMITED),
        min(node.potential[fr], UNLIMITED),
        _refusing(node, fr, ever=isinstance(cause, Excess)),
    )


def _refusing(node: Node, fr: int, *, ever: bool) -> str:
    """The node on the path that is the narrowest: now, or (`ever`) with nothing in use."""
    narrowest, limit, least = node, "nominalQuota", None
    for at in (node, *node.path):
        used = 0 if ever else at.usage[fr]
        if at.parent is None:
            room, what = at.quota[fr] - used, "nominalQuota"
        elif (borrowing := at.borrowing[fr]) is not None:
            room, what = at.quota[fr] + borrowing - used, "borrowingLimit"
        else:
            continue
        if least is None or room < least:
            narrowest, limit, least = at, what, room
    kind = "ClusterQueue" if narrowest.leaf else "Cohort"
    return f"{kind} {narrowest.name}: {limit}"
