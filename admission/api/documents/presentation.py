"""What the API shows: queue objects with their status, workloads with their orders and checks, and warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.api.documents.workload_documents import pod_set_documents, workload_document
from admission.api.kinds.all_kinds import KINDS
from admission.model.manifests import to_manifest
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from admission.api.http.responses import Document
    from admission.api.kinds.descriptor import Known
    from admission.model.queues import QueueObject
    from admission.store.records import CheckRecord, WorkloadRecord
    from admission.store.store import Store


async def documents(store: Store, objects: Sequence[QueueObject]) -> list[Document]:
    """The objects, all of one kind, as JSON documents. A fixed number of queries, however many there are."""
    of_kind = KINDS[objects[0].kind].status if objects else None
    if of_kind is None:
        return [_manifest(item) for item in objects]
    facts = await of_kind.facts(store, objects)
    return [_manifest(item) | {"status": of_kind.shown(item, each)} for item, each in zip(objects, facts, strict=True)]


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


async def warnings(store: Store, written: QueueObject, known: Known) -> list[str]:
    """What was accepted, and yet will not work as written, or not before something else is there."""
    warnings_of = KINDS[written.kind].warnings
    return [] if warnings_of is None else await warnings_of(store, written, known)


async def deletion_warnings(store: Store, deleted: Iterable[QueueObject]) -> list[str]:
    """What those should know who delete these objects, or would in a dry run."""
    by_kind: dict[str, list[QueueObject]] = {}
    for item in deleted:
        by_kind.setdefault(item.kind, []).append(item)
    texts: list[str] = []
    for kind, items in by_kind.items():
        warnings_of = KINDS[kind].deletion_warnings
        if warnings_of is not None:
            texts += await warnings_of(store, items)
    return texts
