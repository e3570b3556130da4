"""Pages of the pending workloads of a ClusterQueue, with position, reason and message.

The counterpart of Kueue's pending workloads visibility (KEP 168-2).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from admission.engine.queue_positions import QueuePositions
from admission.engine.verdicts import verdict_of

if TYPE_CHECKING:
    from admission.engine.lacks import Lack
    from admission.engine.pending_item import LocalQueueKey
    from admission.engine.registry import Registry
    from admission.model.workload import Workload


@dataclass(frozen=True, slots=True)
class ListedWorkload:
    """A pending workload with its positions, which count from 1; 0 for one that cannot be admitted as it is."""

    workload: Workload
    position_in_cluster_queue: int
    position_in_local_queue: int
    reason: str
    """A reason of the vocabulary, or of a policy."""
    message: str
    lacks: tuple[Lack, ...]
    """What is missing, if it does not fit."""


def pending_workloads(
    registry: Registry,
    cluster_queue: str,
    local_queue: LocalQueueKey | None,
    limit: int,
    offset: int,
    *,
    ignore_undeclared: bool,
) -> tuple[ListedWorkload, ...]:
    """Return a page of the pending workloads in queue order; only those of `local_queue`, if given."""
    queue = registry.forest.queue(cluster_queue)
    positions = QueuePositions(registry, queue, ignore_undeclared=ignore_undeclared)
    page = []
    for item in islice(queue.pending.ranking(local_queue).items(offset), limit):
        verdict = verdict_of(registry, item, ignore_undeclared=ignore_undeclared)
        page.append(ListedWorkload(item.workload, *positions.of(item), *verdict[:2], verdict.lacks))
    return tuple(page)
