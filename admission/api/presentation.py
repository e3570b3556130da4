"""Queue objects as the API shows them: the manifest, the status of those that have one, and what to warn about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.api.status import cluster_queue_status, local_queue_status, missing_flavors
from admission.model.manifests import to_manifest
from admission.model.queues import ClusterQueue, LocalQueue, ResourceFlavor
from admission.store.records import QueueStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.api.replies import Document
    from admission.model.queues import QueueObject
    from admission.store.store import Store

_NOTHING = QueueStatus()


async def documents(store: Store, objects: Sequence[QueueObject]) -> list[Document]:
    """The objects, all of one kind, as JSON documents. A fixed number of queries, however many there are."""
    match objects:
        case [ClusterQueue(), *_]:
            statuses = await _cluster_queue_statuses(store, objects)
        case [LocalQueue(), *_]:
            statuses = await _local_queue_statuses(store, objects)
        case _:
            return [to_manifest(item) for item in objects]
    return [to_manifest(item) | {"status": status} for item, status in zip(objects, statuses, strict=True)]


async def warnings(store: Store, written: QueueObject) -> list[str]:
    """What was accepted, and yet will not work as written, or not before something else is there."""
    match written:
        case ClusterQueue():
            missing = missing_flavors(written, await _flavors(store))
            texts = [f"there is no ResourceFlavor {name}; nothing is admitted before it is created" for name in missing]
            if written.spec.admission_checks_strategy is not None:
                texts.append("spec.admissionChecksStrategy is not acted on: Sluice admits without admission checks")
            return texts
        case ResourceFlavor() if written.spec.topology_name is not None:
            return ["spec.topologyName is not acted on: Sluice does not look at the topology of nodes"]
        case LocalQueue() if written.spec.cluster_queue not in await _cluster_queues(store):
            return [f"there is no ClusterQueue {written.spec.cluster_queue}; nothing is admitted before it is created"]
        case _:
            return []


async def _cluster_queue_statuses(store: Store, objects: Sequence[QueueObject]) -> list[Document]:
    flavors = await _flavors(store)
    numbers = await store.workloads.cluster_queue_status()
    return [
        cluster_queue_status(item, numbers.get(item.name, _NOTHING), flavors)
        for item in objects
        if isinstance(item, ClusterQueue)
    ]


async def _local_queue_statuses(store: Store, objects: Sequence[QueueObject]) -> list[Document]:
    flavors, targets = await _flavors(store), await _cluster_queues(store)
    numbers = await store.workloads.local_queue_status()
    return [
        local_queue_status(
            item,
            numbers.get((item.metadata.namespace, item.name), _NOTHING),
            targets.get(item.spec.cluster_queue),
            flavors,
        )
        for item in objects
        if isinstance(item, LocalQueue)
    ]


async def _flavors(store: Store) -> set[str]:
    return {flavor.name for flavor in await store.queues.list(ResourceFlavor.kind)}


async def _cluster_queues(store: Store) -> dict[str, ClusterQueue]:
    found = await store.queues.list(ClusterQueue.kind)
    return {queue.name: queue for queue in found if isinstance(queue, ClusterQueue)}
