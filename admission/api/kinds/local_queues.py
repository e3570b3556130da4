"""API descriptor of LocalQueues; their status has usage and whether they accept workloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from admission.api.kinds.columns import ACTIVE, WORKLOADS, Column, at
from admission.api.kinds.descriptor import ObjectKind, Status
from admission.api.kinds.object_schemas import LocalQueueStatus
from admission.api.kinds.queue_status import NO_WORKLOADS, existing_objects, local_queue_status
from admission.model.names import is_label_value
from admission.model.queues import ClusterQueue, LocalQueue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from admission.api.http.responses import Document
    from admission.api.kinds.descriptor import WarningContext
    from admission.api.kinds.queue_status import ExistingObjects
    from admission.model.queues import QueueObject
    from admission.store.records import QueueStatus
    from admission.store.store import Store


class _LocalQueueInputs(NamedTuple):
    numbers: QueueStatus
    existing: ExistingObjects


async def _inputs(store: Store, queues: Sequence[LocalQueue]) -> list[_LocalQueueInputs]:
    targets = await store.queues.list(ClusterQueue.kind)
    existing = await existing_objects(store, (queue for queue in targets if isinstance(queue, ClusterQueue)))
    numbers = await store.workloads.local_queue_status()
    return [
        _LocalQueueInputs(numbers.get((queue.metadata.namespace, queue.name), NO_WORKLOADS), existing)
        for queue in queues
    ]


def _status(queue: LocalQueue, inputs: _LocalQueueInputs) -> Document:
    return local_queue_status(queue, *inputs)


async def _warnings(store: Store, written: LocalQueue, context: WarningContext) -> list[str]:
    target, namespace, namespaces = written.spec.cluster_queue, written.metadata.namespace, context.namespaces
    queues = {queue.name: queue for queue in await store.queues.list(ClusterQueue.kind)}
    missing = [] if target in queues else [f"ClusterQueue {target}"]
    texts = [] if is_label_value(written.name) else [_UNNAMEABLE.format(len(written.name))]
    if namespaces and namespace not in namespaces:
        missing.append(f"namespace {namespace}")
    elif namespaces and target in queues and not _accepts(queues[target], namespaces[namespace]):
        texts.append(
            f"ClusterQueue {target} admits nothing of namespace {namespace}: its spec.namespaceSelector does "
            "not match the namespace's labels"
        )
    return texts + [f"there is no {name}; nothing is admitted before it is created" for name in missing]


_UNNAMEABLE: Final = (
    "its name has {} characters, but labels have at most 63: no Job can name it; create one with a shorter name"
)


def _accepts(queue: QueueObject, labels: Mapping[str, str]) -> bool:
    assert isinstance(queue, ClusterQueue)
    selector = queue.spec.namespace_selector
    return selector is not None and selector.matches(labels)


LOCAL_QUEUE: Final = ObjectKind(
    LocalQueue,
    columns=(Column("ClusterQueue", at("spec", "clusterQueue"), "Backing ClusterQueue"), *WORKLOADS, ACTIVE),
    selectable_fields={"spec.clusterQueue": lambda queue: queue.spec.cluster_queue},
    status_schema=LocalQueueStatus,
    status=Status(_inputs, _status),
    warnings=_warnings,
)
