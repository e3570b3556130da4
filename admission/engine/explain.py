"""Explanation of a workload's state: obstacles with amounts, queue position, workloads ahead of it, and what helps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from admission.engine.outside_cycles import why_outside
from admission.engine.preemption_hints import preemption_hint
from admission.engine.queue_positions import QueuePositions
from admission.engine.tree import available, narrowest
from admission.engine.verdicts import assign_without_preemption, verdict_of
from admission.engine.vocabulary import HOPELESS, Excess, Shortage
from admission.model import sentences
from admission.model.quantity import UNLIMITED, format_amount

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.engine.assignment import Attempt, PodSetResult
    from admission.engine.clusterqueue import ClusterQueue, Held
    from admission.engine.pending_item import Item
    from admission.engine.preemption_hints import PreemptionHint
    from admission.engine.registry import Registry

_AHEAD = 5  # workloads ahead that are named
_COUNTED = 5000  # workloads ahead that are counted at most


@dataclass(frozen=True, slots=True)
class Lack:
    """A flavor-resource of which less is available now than a pod set requests. Amounts as in the model."""

    pod_set: str
    flavor: str
    resource: str
    requested: int
    free: int
    """Quota available to the ClusterQueue now, including what it can borrow."""
    borrowable: int
    """The part of `free` that would be borrowed."""
    maximum: int
    """Quota available to the ClusterQueue if nothing else were in use."""
    refused_by: str
    """The node of the tree whose limit is too low, and the limit: `Cohort research: nominalQuota`.

    For a Cohort without quota of its own: `the ClusterQueues in Cohort research: nominalQuota`.
    """

    @property
    def missing(self) -> int:
        """The amount that would have to become free."""
        return self.requested - min(self.free, self.maximum)

    @property
    def hint(self) -> str:
        """What would help, for the user."""
        where, limit = f"{self.resource} in flavor {self.flavor}", sentences.limit_of(self.refused_by)
        if self.requested > self.maximum:
            excess = format_amount(self.resource, self.requested - self.maximum)
            return f"raise {limit} by {excess} of {where}, or ask for less"
        missing = format_amount(self.resource, self.missing)
        return f"{missing} of {where} must become free, or {limit} be raised by as much"


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
    not_before: float | None = None
    """Unix time (s) at which its requeue backoff ends; None: no backoff."""
    ahead: int = 0
    """Number of active workloads of its ClusterQueue that would be tried before it, counted up to a limit."""
    ahead_first: tuple[str, ...] = ()
    """`namespace/name` of the first of these."""
    attempts: tuple[tuple[str, Attempt], ...] = ()
    """(name of the pod set, flavor that was tried for it)."""
    lacks: tuple[Lack, ...] = ()
    """The flavor-resources of which too little is available."""
    preemption_hints: tuple[PreemptionHint, ...] = ()
    """What it might preempt, for each of `lacks` that could become free."""
    in_use: tuple[int, int] = (0, 0)
    """Usage of the first of `lacks`: by its ClusterQueue, and by all other ClusterQueues of the tree together."""


def explain_held(held: Held) -> Explanation:
    """Return the explanation of a workload that holds quota."""
    state = "Evicting" if held.evicting else "Admitted"
    return Explanation(state, cluster_queue=held.admission.cluster_queue)


def explain_waiting(registry: Registry, item: Item, *, ignore_undeclared: bool) -> Explanation:
    """Return the explanation of a pending workload at the current usage. Searches no preemption targets."""
    queue = registry.forest.queue(item.cluster_queue)
    reason, message = verdict_of(registry, item, ignore_undeclared=ignore_undeclared)
    base = _base_explanation(registry, item, ignore_undeclared=ignore_undeclared)
    if queue.node is None or why_outside(registry, item) or item.fault is not None or not item.accepted:
        return replace(base, reason=reason, message=message)
    ahead = queue.pending.ahead_of(item, _COUNTED)
    assignment = assign_without_preemption(queue, item, ignore_undeclared)
    lacks = tuple(
        _lack(queue, pod_set, cause)
        for pod_set in assignment.pod_sets
        for cause in pod_set.causes
        if isinstance(cause, Shortage | Excess)
    )
    return replace(
        base,
        reason=reason,
        message=message,
        ahead=len(ahead),
        ahead_first=tuple(other.workload.key for other in ahead[:_AHEAD]),
        attempts=tuple((pod_set.name, attempt) for pod_set in assignment.pod_sets for attempt in pod_set.attempts),
        lacks=lacks,
        preemption_hints=tuple(_preemption_hints(registry, queue, item, lacks)),
        in_use=_in_use(registry, queue, lacks[0]) if lacks and reason not in HOPELESS else (0, 0),
    )


def _in_use(registry: Registry, queue: ClusterQueue, lack: Lack) -> tuple[int, int]:
    assert queue.node is not None
    tree = registry.forest.domain_of[queue].tree
    fr = tree.index[lack.flavor, lack.resource]
    own = queue.node.usage[fr]
    return own, sum(node.usage[fr] for node in tree.queues.values()) - own


def _base_explanation(registry: Registry, item: Item, *, ignore_undeclared: bool) -> Explanation:
    """Return the parts of an explanation that do not depend on the reason: backoff and queue positions."""
    not_before = item.not_before if item.not_before > registry.now else None
    base = Explanation("Pending", cluster_queue=item.cluster_queue, not_before=not_before)
    if not item.cluster_queue:
        return base
    positions = QueuePositions(registry, registry.forest.queue(item.cluster_queue), ignore_undeclared=ignore_undeclared)
    in_cluster_queue, in_local_queue = positions.of(item)
    return replace(base, position_in_cluster_queue=in_cluster_queue, position_in_local_queue=in_local_queue)


def _preemption_hints(
    registry: Registry, queue: ClusterQueue, item: Item, lacks: tuple[Lack, ...]
) -> Iterator[PreemptionHint]:
    domain = registry.forest.domain_of[queue]
    short = {(lack.flavor, lack.resource, lack.missing) for lack in lacks if lack.requested <= lack.maximum}
    for flavor, resource, missing in sorted(short):
        yield preemption_hint(domain, queue, item, domain.tree.index[flavor, resource], missing)


def _lack(queue: ClusterQueue, pod_set: PodSetResult, cause: Shortage | Excess) -> Lack:
    tree, node = queue.tree, queue.node
    assert tree is not None
    assert node is not None
    fr = tree.index[cause.flavor, cause.resource]
    free = max(0, available(node, fr))
    requested = free + cause.missing if isinstance(cause, Shortage) else cause.before + cause.requested
    own = max(0, node.nominal[fr] - node.usage[fr])
    return Lack(
        pod_set.name,
        cause.flavor,
        cause.resource,
        requested,
        min(free, UNLIMITED),
        min(max(0, free - own), UNLIMITED),
        min(node.potential[fr], UNLIMITED),
        narrowest(node, fr, ever=isinstance(cause, Excess)),
    )
