"""Computation of `status.fairSharing` of ClusterQueues and Cohorts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from admission.engine.share_report import WeightedShares
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
