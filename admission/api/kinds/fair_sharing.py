"""`status.fairSharing` of ClusterQueues and Cohorts."""

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
"""The trees of each store, and the objects that they were made of: making them takes longer than all the rest."""


def fair_sharing(share: int) -> Document:
    """This part of the status of an object with this share."""
    return {"fairSharing": {"weightedShare": share}}


async def weighted_shares(store: Store, numbers: Mapping[str, QueueStatus]) -> Callable[[QueueObject], int]:
    """Gives the share of each object. `numbers` say what is held of each ClusterQueue.

    The share of an object that was (or, in a dry run, would be) deleted is 0.
    """
    trees = await trees_of(store)
    shares = trees.at({name: status.usage for name, status in numbers.items()})
    return lambda item: shares.get((item.kind, item.name), 0)


async def trees_of(store: Store) -> WeightedShares:
    """The trees as they are now. What is in use is to be told before anything is asked."""
    queues, cohorts = await store.queues.list(ClusterQueue.kind), await store.queues.list(Cohort.kind)
    made = _TREES.get(store)
    if made is None or made[0] is not queues or made[1] is not cohorts:
        made = _TREES[store] = queues, cohorts, WeightedShares(queues, cohorts)
    return made[2]
