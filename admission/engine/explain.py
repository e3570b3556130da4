"""Why a workload does not run: what is missing where, who is ahead, and what would help."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from admission.engine.line import Line
from admission.engine.outside_cycles import why_outside
from admission.engine.preemption_hints import prospect
from admission.engine.tree import available, narrowest
from admission.engine.verdicts import judge, verdict_of
from admission.engine.vocabulary import HOPELESS, Excess, Shortage
from admission.model import sentences
from admission.model.quantity import UNLIMITED, format_amount

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.engine.assignment import Attempt, PodSetResult
    from admission.engine.clusterqueue import ClusterQueue, Held
    from admission.engine.pending_item import Item
    from admission.engine.preemption_hints import Prospect
    from admission.engine.registry import Registry

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
    """The node of the tree that has too little, and by which of its limits: `Cohort research: nominalQuota`.

    Of a Cohort without quota of its own: `the ClusterQueues in Cohort research: nominalQuota`.
    """

    @property
    def missing(self) -> int:
        """How much more would have to be free."""
        return self.asked - min(self.free, self.most)

    @property
    def hint(self) -> str:
        """What would help."""
        where, limit = f"{self.resource} in flavor {self.flavor}", sentences.limit_of(self.refused_by)
        if self.asked > self.most:
            excess = format_amount(self.resource, self.asked - self.most)
            return f"raise {limit} by {excess} of {where}, or ask for less"
        missing = format_amount(self.resource, self.missing)
        return f"{missing} of {where} must become free, or {limit} be raised by as much"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where a workload stands."""

    state: str
    """Pending, Admitted or Evicting."""
    reason: str = ""
    """Of the vocabulary, for one that waits."""
    message: str = ""
    """The sentence for it, with what helps."""
    cluster_queue: str = ""
    position_in_cluster_queue: int = 0
    """From 1 (see `line`); 0 if it waits in none, or can not be admitted as it is."""
    position_in_local_queue: int = 0
    not_before: float | None = None
    """Until when it takes no part (backoff), if it does not."""
    ahead: int = 0
    """How many of its ClusterQueue would be tried before it, as they are active; counted up to a limit."""
    ahead_first: tuple[str, ...] = ()
    """The keys of the first of them."""
    attempts: tuple[tuple[str, Attempt], ...] = ()
    """Each flavor that was considered, with the pod set for which."""
    lacks: tuple[Lack, ...] = ()
    prospects: tuple[Prospect, ...] = ()
    """What it might preempt of each that is lacking for the moment."""
    in_use: tuple[int, int] = (0, 0)
    """How much its ClusterQueue uses of the first that is lacking, and all others of the tree together."""


def explain_held(held: Held) -> Explanation:
    """Where a workload stands that holds quota."""
    state = "Evicting" if held.evicting else "Admitted"
    return Explanation(state, cluster_queue=held.admission.cluster_queue)


def explain_waiting(registry: Registry, item: Item, *, ignore_undeclared: bool) -> Explanation:
    """Where a waiting workload stands, at the usage that there is now. Looks for no victims of preemption."""
    queue = registry.forest.queue(item.cluster_queue)
    reason, message = verdict_of(registry, item, ignore_undeclared=ignore_undeclared)
    standing = _standing(registry, item, ignore_undeclared=ignore_undeclared)
    if queue.node is None or why_outside(registry, item) or item.fault is not None or not item.accepted:
        return replace(standing, reason=reason, message=message)
    ahead = queue.pending.ahead_of(item, _COUNTED)
    assignment = judge(queue, item, ignore_undeclared)
    lacks = tuple(
        _lack(queue, pod_set, cause)
        for pod_set in assignment.pod_sets
        for cause in pod_set.causes
        if isinstance(cause, Shortage | Excess)
    )
    return replace(
        standing,
        reason=reason,
        message=message,
        ahead=len(ahead),
        ahead_first=tuple(other.workload.key for other in ahead[:_AHEAD]),
        attempts=tuple((pod_set.name, attempt) for pod_set in assignment.pod_sets for attempt in pod_set.attempts),
        lacks=lacks,
        prospects=tuple(_prospects(registry, queue, item, lacks)),
        in_use=_in_use(registry, queue, lacks[0]) if lacks and reason not in HOPELESS else (0, 0),
    )


def _in_use(registry: Registry, queue: ClusterQueue, lack: Lack) -> tuple[int, int]:
    assert queue.node is not None
    tree = registry.forest.domain_of[queue].tree
    fr = tree.index[lack.flavor, lack.resource]
    own = queue.node.usage[fr]
    return own, sum(node.usage[fr] for node in tree.queues.values()) - own


def _standing(registry: Registry, item: Item, *, ignore_undeclared: bool) -> Explanation:
    not_before = item.not_before if item.not_before > registry.now else None
    standing = Explanation("Pending", cluster_queue=item.cluster_queue, not_before=not_before)
    if not item.cluster_queue:
        return standing
    line = Line(registry, registry.forest.queue(item.cluster_queue), ignore_undeclared=ignore_undeclared)
    place, place_here = line.places(item)
    return replace(standing, position_in_cluster_queue=place, position_in_local_queue=place_here)


def _prospects(registry: Registry, queue: ClusterQueue, item: Item, lacks: tuple[Lack, ...]) -> Iterator[Prospect]:
    domain = registry.forest.domain_of[queue]
    short = {(lack.flavor, lack.resource, lack.missing) for lack in lacks if lack.asked <= lack.most}
    for flavor, resource, missing in sorted(short):
        yield prospect(domain, queue, item, domain.tree.index[flavor, resource], missing)


def _lack(queue: ClusterQueue, pod_set: PodSetResult, cause: Shortage | Excess) -> Lack:
    tree, node = queue.tree, queue.node
    assert tree is not None
    assert node is not None
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
        narrowest(node, fr, ever=isinstance(cause, Excess)),
    )
