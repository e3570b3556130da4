"""What the API shows: queue objects with their status, workloads with their orders and checks, and warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.api.documents.status import (
    Surroundings,
    admission_check_status,
    cluster_queue_status,
    is_answered_by_kueue,
    local_queue_status,
    missing_checks,
    missing_flavors,
)
from admission.api.documents.workload_documents import pod_set_documents, workload_document
from admission.model.manifests import to_manifest
from admission.model.names import listed
from admission.model.queues import AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor
from admission.store.records import QueueStatus, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from admission.api.http.responses import Document
    from admission.model.queues import QueueObject
    from admission.store.records import CheckRecord, WorkloadRecord
    from admission.store.store import Store

_NOTHING = QueueStatus()
_FLAVOR, _CHECK, _QUEUE = ResourceFlavor.kind, AdmissionCheck.kind, ClusterQueue.kind


async def documents(store: Store, objects: Sequence[QueueObject]) -> list[Document]:
    """The objects, all of one kind, as JSON documents. A fixed number of queries, however many there are."""
    match objects:
        case [ClusterQueue(), *_]:
            statuses = await _cluster_queue_statuses(store, objects)
        case [LocalQueue(), *_]:
            statuses = await _local_queue_statuses(store, objects)
        case [AdmissionCheck(), *_]:
            answered = await store.orders.answered()
            statuses = [admission_check_status(item, answered) for item in objects if isinstance(item, AdmissionCheck)]
        case _:
            return [_manifest(item) for item in objects]
    return [_manifest(item) | {"status": status} for item, status in zip(objects, statuses, strict=True)]


def _manifest(item: QueueObject) -> Document:
    document = to_manifest(item)
    if item.metadata.managed_fields:
        document["metadata"]["managedFields"] = [dict(entry) for entry in item.metadata.managed_fields]
    return document


async def workload_documents(store: Store, records: Iterable[WorkloadRecord], *, now: float) -> list[Document]:
    """The workloads as documents, with what is ordered and said about them."""
    found = [*records]
    news = await store.orders.of(record.workload.uid for record in found if record.state is not State.FINISHED)
    orders = {order.uid: order for order in news.orders}
    checks: dict[str, list[CheckRecord]] = {}
    for check in news.checks:
        checks.setdefault(check.uid, []).append(check)
    # Workloads of one shape, as most of a page are, have one tuple of pod sets in common.
    shapes = {id(record.workload.pod_sets): record.workload.pod_sets for record in found}
    shown = {key: pod_set_documents(pod_sets) for key, pod_sets in shapes.items()}
    return [
        workload_document(
            record,
            pod_sets=shown[id(record.workload.pod_sets)],
            order=orders.get(record.workload.uid),
            checks=checks.get(record.workload.uid, ()),
            now=now,
        )
        for record in found
    ]


async def warnings(store: Store, written: QueueObject, namespaces: Mapping[str, Mapping[str, str]]) -> list[str]:
    """What was accepted, and yet will not work as written, or not before something else is there.

    `namespaces` are those of the cluster with their labels; empty: they are not known.
    """
    texts: list[str] = []
    missing: list[str]
    match written:
        case ClusterQueue():
            surroundings = await _surroundings(store)
            missing = [f"ResourceFlavor {name}" for name in missing_flavors(written, surroundings)]
            missing += [f"AdmissionCheck {name}" for name in missing_checks(written, surroundings)]
            if written.spec.namespace_selector is None:
                texts.append(
                    "spec.namespaceSelector is not set, which matches no namespace: nothing is admitted; "
                    "set {} for all namespaces"
                )
        case LocalQueue():
            target, namespace = written.spec.cluster_queue, written.metadata.namespace
            queues = {queue.name: queue for queue in await store.queues.list(_QUEUE)}
            missing = [] if target in queues else [f"ClusterQueue {target}"]
            if namespaces and namespace not in namespaces:
                missing.append(f"namespace {namespace}")
            elif namespaces and target in queues and not _accepts(queues[target], namespaces[namespace]):
                texts.append(
                    f"ClusterQueue {target} admits nothing of namespace {namespace}: its spec.namespaceSelector does "
                    "not match the namespace's labels"
                )
        case ResourceFlavor() if written.spec.topology_name is not None:
            return ["spec.topologyName is not acted on: Sluice does not look at the topology of nodes"]
        case AdmissionCheck() if is_answered_by_kueue(written):
            name = written.spec.controller_name
            return [f"spec.controllerName: {name} is a part of Kueue and does not answer to Sluice; name another one"]
        case _:
            return []
    return texts + [f"there is no {name}; nothing is admitted before it is created" for name in missing]


def _accepts(queue: QueueObject, labels: Mapping[str, str]) -> bool:
    assert isinstance(queue, ClusterQueue)
    selector = queue.spec.namespace_selector
    return selector is not None and selector.matches(labels)


async def deletion_warnings(store: Store, deleted: Iterable[QueueObject]) -> list[str]:
    """What still names the Cohorts that were (or, in a dry run, would be) deleted, and what it has from them no more.

    That is no reason to refuse: as in Kueue, a Cohort exists also without an object, by being named.
    """
    gone = [item for item in deleted if isinstance(item, Cohort)]
    own = {f"{item.kind} {item.name}" for item in gone}
    texts = []
    for item in gone:
        members = [member for member in await store.queues.members(item.name) if member not in own]
        if members:
            cut_off = f"are cut off from Cohort {item.spec.parent_name}" if item.spec.parent_name else "lose its quota"
            texts.append(
                f"Cohort {item.name} is still named by {listed(members)}, which go on sharing with each other and "
                f"{cut_off}; create it again, or give them another one"
            )
    return texts


async def _cluster_queue_statuses(store: Store, objects: Sequence[QueueObject]) -> list[Document]:
    surroundings, numbers = await _surroundings(store), await store.workloads.cluster_queue_status()
    return [
        cluster_queue_status(item, numbers.get(item.name, _NOTHING), surroundings)
        for item in objects
        if isinstance(item, ClusterQueue)
    ]


async def _local_queue_statuses(store: Store, objects: Sequence[QueueObject]) -> list[Document]:
    targets = await store.queues.list(ClusterQueue.kind)
    surroundings = await _surroundings(store, (queue for queue in targets if isinstance(queue, ClusterQueue)))
    numbers = await store.workloads.local_queue_status()
    return [
        local_queue_status(item, numbers.get((item.metadata.namespace, item.name), _NOTHING), surroundings)
        for item in objects
        if isinstance(item, LocalQueue)
    ]


async def _surroundings(store: Store, targets: Iterable[ClusterQueue] = ()) -> Surroundings:
    names = await store.queues.names(_FLAVOR, _CHECK)
    return Surroundings(names[_FLAVOR], names[_CHECK], {queue.name: queue for queue in targets})
