"""What the quota trees say of ClusterQueues and Cohorts: `status.fairSharing`, and warnings of usage beyond quota."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from admission.engine.share_report import WeightedShares
from admission.model.quantity import format_amount
from admission.model.queues import ClusterQueue, Cohort

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from admission.api.http.responses import Document
    from admission.model.queues import QueueObject
    from admission.store.records import QueueStatus
    from admission.store.store import Store


_TREES: WeakKeyDictionary[Store, tuple[Any, Any, WeightedShares]] = WeakKeyDictionary()
"""By store: the lists of ClusterQueues and Cohorts, and the trees built from them.

Building them takes longer than the rest of the computation. The store returns the same list object until it changes.
"""


def fair_sharing(share: int) -> Document:
    """Return this part of the status."""
    return {"fairSharing": {"weightedShare": share}}


async def weighted_shares(store: Store, numbers: Mapping[str, QueueStatus]) -> Callable[[QueueObject], int]:
    """Return a function from a ClusterQueue or Cohort to its weighted share.

    `numbers`: status numbers by ClusterQueue, of which the usage is read. The share of an object that does not exist
    any more (or, in a dry run, would not) is 0.
    """
    trees = await trees_of(store)
    shares = trees.at({name: status.usage for name, status in numbers.items()})
    return lambda item: shares.get((item.kind, item.name), 0)


async def trees_of(store: Store) -> WeightedShares:
    """Return the current quota trees. Their usage must be set (`at`) before shares or overuse are computed."""
    queues, cohorts = await store.queues.list(ClusterQueue.kind), await store.queues.list(Cohort.kind)
    cached = _TREES.get(store)
    if cached is None or cached[0] is not queues or cached[1] is not cohorts:
        cached = _TREES[store] = queues, cohorts, WeightedShares(queues, cohorts)
    return cached[2]


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
