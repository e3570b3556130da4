"""Pages of the pending workloads of a ClusterQueue, with position, reason and message."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from admission.engine.line import Line
from admission.engine.verdicts import verdict_of

if TYPE_CHECKING:
    from admission.engine.pending_item import LocalQueueKey
    from admission.engine.registry import Registry
    from admission.model.workload import Workload


@dataclass(frozen=True, slots=True)
class Place:
    """A pending workload with its places in the line, from 1; 0 for one that can not be admitted as it is."""

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
    queue = registry.forest.queue(cluster_queue)
    line = Line(registry, queue, ignore_undeclared=ignore_undeclared)
    page = []
    for item in islice(queue.pending.ranking(local_queue).items(offset), limit):
        reason, message = verdict_of(registry, item, ignore_undeclared=ignore_undeclared)
        page.append(Place(item.workload, *line.places(item), reason, message))
    return tuple(page)
