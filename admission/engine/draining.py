"""Eviction of workloads whose ClusterQueue or LocalQueue was stopped with `HoldAndDrain` (Kueue's KEP 1284)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.engine.events import Evict
from admission.engine.vocabulary import CLUSTER_QUEUE_STOPPED, LOCAL_QUEUE_STOPPED
from admission.model import sentences
from admission.model.queues import ClusterQueue, LocalQueue

if TYPE_CHECKING:
    from admission.engine.registry import Registry


def drain(registry: Registry) -> list[Evict]:
    """Mark workloads that hold quota of drained queues as evicting, and return their evictions."""
    evicted = []
    for held in registry.held.values():
        if held.evicting:
            continue
        local_queue = registry.local_queues.get(held.local_queue)
        if held.queue.spec.stop_policy == "HoldAndDrain":
            reason, key = CLUSTER_QUEUE_STOPPED, (ClusterQueue.kind, "", held.queue.name)
        elif local_queue is not None and local_queue.stop_policy == "HoldAndDrain":
            reason, key = LOCAL_QUEUE_STOPPED, (LocalQueue.kind, *held.local_queue)
        else:
            continue
        text = sentences.drained(*key, registry.stop_reasons.get(key, ""))
        evicted.append(Evict(held.workload, reason, text))
        held.evicting = True
    return evicted
