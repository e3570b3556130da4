"""`status.fairSharing` of ClusterQueues and Cohorts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.engine.share_report import weighted_shares
from admission.model.queues import ClusterQueue, Cohort

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from admission.api.http.responses import Document
    from admission.model.queues import QueueObject
    from admission.store.records import QueueStatus
    from admission.store.store import Store


async def fair_sharing(store: Store, numbers: Mapping[str, QueueStatus]) -> Callable[[QueueObject], Document]:
    """Gives this part of the status of each object. `numbers` say what is held of each ClusterQueue.

    The share of an object that was (or, in a dry run, would be) deleted is 0.
    """
    objects = [*await store.queues.list(ClusterQueue.kind), *await store.queues.list(Cohort.kind)]
    shares = weighted_shares(objects, {name: status.usage or {} for name, status in numbers.items()})
    return lambda item: {"fairSharing": {"weightedShare": shares.get((item.kind, item.name), 0)}}
