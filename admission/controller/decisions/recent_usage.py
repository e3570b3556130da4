"""Admission fair sharing after a restart: what each LocalQueue had used by then, as the ledger tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.engine.events import LocalQueueUsed
from admission.model.queues import ClusterQueue
from admission.store.ledger.recent_usage import Decay

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.engine import AdmissionFairSharing
    from admission.model.queues import QueueObject
    from admission.store.store import Store


async def used_lately(
    store: Store, sharing: AdmissionFairSharing, objects: Iterable[QueueObject], *, now: float
) -> list[LocalQueueUsed]:
    """To be told to an engine before what is held now."""
    decay = Decay(
        half_life=sharing.half_life,
        penalty=sharing.alpha(sharing.sampling_interval),
        charging={obj.name for obj in objects if isinstance(obj, ClusterQueue) and _by_usage(obj)},
    )
    used = await store.used_lately(decay, now=now)
    return [LocalQueueUsed(namespace, name, amounts, now) for (namespace, name), amounts in used.items()]


def _by_usage(queue: ClusterQueue) -> bool:
    scope = queue.spec.admission_scope
    return scope is not None and scope.admission_mode == "UsageBasedAdmissionFairSharing"
