"""Warnings for the author of a ClusterQueue or Cohort whose usage exceeds its quota after the write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.api.kinds.fair_sharing import trees_of
from admission.model.quantity import format_amount
from admission.model.queues import ClusterQueue, Cohort

if TYPE_CHECKING:
    from admission.model.queues import QueueObject
    from admission.store.store import Store

_MOST_WARNINGS: Final = 5


async def overuse_warnings(store: Store, written: QueueObject) -> list[str]:
    """Return warnings about usage beyond quota in a written ClusterQueue or Cohort and the Cohorts above it."""
    if written.kind not in (ClusterQueue.kind, Cohort.kind):
        return []
    numbers, queues = await store.workloads.cluster_queue_status(), await store.queues.list(ClusterQueue.kind)
    converge = any(isinstance(queue, ClusterQueue) and queue.spec.over_quota is not None for queue in queues)
    stays = (
        "running workloads stay, except in ClusterQueues with spec.overQuota" if converge else "running workloads stay"
    )
    trees = await trees_of(store)
    trees.at({name: status.usage for name, status in numbers.items()})
    return [
        f"{over.kind} {over.name} uses {format_amount(over.resource, over.by)} of {over.resource} in flavor "
        f"{over.flavor} more than it may; {stays}"
        for over in [*trees.overuse(written.kind, written.name)][:_MOST_WARNINGS]
    ]
