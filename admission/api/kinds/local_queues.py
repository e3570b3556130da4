"""LocalQueues as the API shows them: their status says what is used and whether they take workloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.api.kinds.columns import ACTIVE, WORKLOADS, Column, at
from admission.api.kinds.descriptor import ObjectKind
from admission.api.kinds.object_schemas import LocalQueueStatus
from admission.api.kinds.queue_status import NO_WORKLOADS, local_queue_status, surroundings_of
from admission.model.queues import ClusterQueue, LocalQueue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from admission.api.http.responses import Document
    from admission.api.kinds.descriptor import Namespaces
    from admission.model.queues import QueueObject
    from admission.store.store import Store


async def _statuses(store: Store, queues: Sequence[LocalQueue]) -> list[Document]:
    targets = await store.queues.list(ClusterQueue.kind)
    surroundings = await surroundings_of(store, (queue for queue in targets if isinstance(queue, ClusterQueue)))
    numbers = await store.workloads.local_queue_status()
    return [
        local_queue_status(queue, numbers.get((queue.metadata.namespace, queue.name), NO_WORKLOADS), surroundings)
        for queue in queues
    ]


async def _warnings(store: Store, written: LocalQueue, namespaces: Namespaces) -> list[str]:
    target, namespace = written.spec.cluster_queue, written.metadata.namespace
    queues = {queue.name: queue for queue in await store.queues.list(ClusterQueue.kind)}
    missing = [] if target in queues else [f"ClusterQueue {target}"]
    texts = []
    if namespaces and namespace not in namespaces:
        missing.append(f"namespace {namespace}")
    elif namespaces and target in queues and not _accepts(queues[target], namespaces[namespace]):
        texts.append(
            f"ClusterQueue {target} admits nothing of namespace {namespace}: its spec.namespaceSelector does "
            "not match the namespace's labels"
        )
    return texts + [f"there is no {name}; nothing is admitted before it is created" for name in missing]


def _accepts(queue: QueueObject, labels: Mapping[str, str]) -> bool:
    assert isinstance(queue, ClusterQueue)
    selector = queue.spec.namespace_selector
    return selector is not None and selector.matches(labels)


LOCAL_QUEUE: Final = ObjectKind(
    LocalQueue,
    columns=(Column("ClusterQueue", at("spec", "clusterQueue"), "Backing ClusterQueue"), *WORKLOADS, ACTIVE),
    selectable={"spec.clusterQueue": lambda queue: queue.spec.cluster_queue},
    status_schema=LocalQueueStatus,
    statuses=_statuses,
    warnings=_warnings,
)
