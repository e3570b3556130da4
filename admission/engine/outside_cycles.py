"""Reasons why a pending workload takes no part in cycles: on hold, queue stopped or missing, backoff, policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.engine.forest import NOT_FOUND
from admission.engine.vocabulary import MISCONFIGURED, ON_HOLD, PENDING_EVALUATION, SUSPENDED
from admission.model import sentences

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.engine.clusterqueue import ClusterQueue, Held
    from admission.engine.pending_item import Item
    from admission.engine.registry import Registry
    from admission.model.workload import Workload


def runs_elsewhere(workload: Workload, queue: ClusterQueue, held: Mapping[str, Held]) -> bool:
    """Whether the workload that this one `replaces` holds quota of another ClusterQueue; then it gets none in this one.

    `held`: workloads that hold quota, by uid.
    """
    replaced = held.get(workload.replaces)
    if replaced is None or replaced.workload.namespace != workload.namespace:
        return False
    return replaced.queue is not queue


def park_outside(registry: Registry, item: Item) -> tuple[str, str] | None:
    """Return reason and message as decisions have them, in Kueue's words; None: it takes part in cycles."""
    workload = item.workload
    if registry.is_on_hold(item.uid):
        return ON_HOLD, "The workload is on hold"
    local_queue = registry.local_queues.get(item.local_queue)
    if local_queue is None:
        return MISCONFIGURED, f"LocalQueue {workload.queue} doesn't exist"
    if local_queue.stop_policy != "None":
        return SUSPENDED, f"LocalQueue {workload.queue} is stopped"
    queue = registry.forest.queue(local_queue.cluster_queue)
    if workload.replaces and runs_elsewhere(workload, queue, registry.held):
        return SUSPENDED, f"LocalQueue {workload.queue} has another ClusterQueue than the workload that it replaces"
    if not queue.inactive:
        if item.not_before > registry.now:
            return PENDING_EVALUATION, "The workload waits for its backoff"
        return _refusal(registry, item, queue)
    if queue.inactive == NOT_FOUND:
        return MISCONFIGURED, f"ClusterQueue {queue.name} doesn't exist"
    return SUSPENDED, f"ClusterQueue {queue.name} {queue.inactive}"


def why_outside(registry: Registry, item: Item) -> tuple[str, str] | None:
    """Return reason and message, by `admission.model.sentences`; None: it takes part in cycles."""
    workload = item.workload
    if registry.is_on_hold(item.uid):
        return ON_HOLD, sentences.ON_HOLD
    local_queue = registry.local_queues.get(item.local_queue)
    if local_queue is None:
        return MISCONFIGURED, sentences.no_local_queue(workload.namespace, workload.queue)
    if local_queue.stop_policy != "None":
        return SUSPENDED, _stopped(registry, "LocalQueue", item.local_queue, local_queue.stop_policy)
    queue = registry.forest.queue(local_queue.cluster_queue)
    if workload.replaces and runs_elsewhere(workload, queue, registry.held):
        return SUSPENDED, sentences.runs_elsewhere(workload.queue, queue.name)
    if queue.inactive == NOT_FOUND:
        return MISCONFIGURED, sentences.no_cluster_queue(workload.queue, queue.name)
    if queue.inactive and queue.spec.stop_policy != "None":
        return SUSPENDED, _stopped(registry, "ClusterQueue", ("", queue.name), queue.spec.stop_policy)
    if queue.inactive:
        return SUSPENDED, sentences.incomplete(queue.name, queue.inactive)
    if item.not_before > registry.now:
        return PENDING_EVALUATION, sentences.backing_off(item.not_before)
    return _refusal(registry, item, queue)


def _stopped(registry: Registry, kind: str, key: tuple[str, str], policy: str) -> str:
    return sentences.stopped(kind, *key, policy, registry.stop_reasons.get((kind, *key), ""))


def _refusal(registry: Registry, item: Item, queue: ClusterQueue) -> tuple[str, str] | None:
    """Return the refusal of a policy; None: none refuses it, or it has a fault, so that policies do not matter."""
    if not item.accepted or item.fault is not None:
        return None
    refusal = registry.policies.refusal(item, queue.name)
    return None if refusal is None else (refusal.reason, refusal.message)
