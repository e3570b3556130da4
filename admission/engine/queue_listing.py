"""Pages of the pending workloads of a ClusterQueue, with position, reason and message."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from admission.engine.explain import Verdict, verdict_of

if TYPE_CHECKING:
    from admission.engine.equivalence import Shape
    from admission.engine.pending_item import Item, LocalQueueKey
    from admission.engine.registry import Registry
    from admission.model.workload import Workload


@dataclass(frozen=True, slots=True)
class Place:
    """A pending workload with its positions, which count from 1 and include inadmissible workloads."""

    workload: Workload
    position_in_cluster_queue: int
    position_in_local_queue: int
    reason: str
    """A reason of the vocabulary, or of a policy."""
    message: str


def places(
    registry: Registry,
    cluster_queue: str,
    local_queue: LocalQueueKey | None,
    limit: int,
    offset: int,
    *,
    ignore_undeclared: bool,
) -> tuple[Place, ...]:
    """A page of the pending workloads, in order; only of `local_queue`, if given."""
    pending = registry.forest.queue(cluster_queue).pending
    verdicts: dict[Shape, Verdict] = {}
    page = []
    for item in islice(pending.ranking(local_queue).items(offset), limit):
        ahead, ahead_here = pending.position(item)
        reason, message = _why(registry, item, verdicts, ignore_undeclared)
        page.append(Place(item.workload, ahead + 1, ahead_here + 1, reason, message))
    return tuple(page)


def _why(registry: Registry, item: Item, verdicts: dict[Shape, Verdict], ignore_undeclared: bool) -> Verdict:
    told = registry.why_outside(item) or item.said
    if told is not None:
        return told
    if item.fault is not None or not item.accepted:
        return verdict_of(registry, item, ignore_undeclared=ignore_undeclared)
    # All of a shape get the same answer, and hundreds of them may be on one page.
    if item.shape not in verdicts:
        verdicts[item.shape] = verdict_of(registry, item, ignore_undeclared=ignore_undeclared)
    return verdicts[item.shape]
