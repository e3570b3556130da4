"""Documents of queue objects and workloads as the API returns them, assembled from the store; and warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.api.documents.workload_documents import pod_set_documents, workload_document
from admission.api.kinds.all_kinds import KINDS
from admission.model.manifests import to_manifest
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from admission.api.http.responses import Document
    from admission.api.kinds.descriptor import WarningContext
    from admission.model.queues import QueueObject
    from admission.store.records import CheckRecord, WorkloadRecord
    from admission.store.store import Store


async def documents(store: Store, objects: Sequence[QueueObject]) -> list[Document]:
    """Return queue objects of one kind as documents with status. The number of queries does not depend on theirs."""
    status = KINDS[objects[0].kind].status if objects else None
    if status is None:
        return [_manifest(item) for item in objects]
    inputs = await status.inputs(store, objects)
    return [_manifest(item) | {"status": status.render(item, each)} for item, each in zip(objects, inputs, strict=True)]


def _manifest(item: QueueObject) -> Document:
    document = to_manifest(item)
    if item.metadata.managed_fields:
        document["metadata"]["managedFields"] = [dict(entry) for entry in item.metadata.managed_fields]
    return document


async def workload_documents(store: Store, records: Iterable[WorkloadRecord], *, now: float) -> list[Document]:
    """Return workloads as documents, with the orders of admins and the states of admission checks.

    `now`: Unix time (s).
    """
    found = [*records]
    news = await store.orders.of(record.workload.uid for record in found if record.state is not State.FINISHED)
    orders = {order.uid: order for order in news.orders}
    checks: dict[str, list[CheckRecord]] = {}
    for check in news.checks:
        checks.setdefault(check.uid, []).append(check)
    ended = [record.workload.uid for record in found if record.state is State.FINISHED]
    clusters = await store.workloads.last_clusters(ended) if ended else {}
    # Workloads of one shape, as most of a page are, share one tuple of pod sets: each is rendered once.
    shapes = {id(record.workload.pod_sets): record.workload.pod_sets for record in found}
    rendered = {key: pod_set_documents(pod_sets) for key, pod_sets in shapes.items()}
    return [
        workload_document(
            record,
            pod_sets=rendered[id(record.workload.pod_sets)],
            order=orders.get(record.workload.uid),
            checks=checks.get(record.workload.uid, ()),
            last_cluster=clusters.get(record.workload.uid, ""),
            now=now,
        )
        for record in found
    ]


async def warnings(store: Store, written: QueueObject, context: WarningContext) -> list[str]:
    """Return warnings for the author of a valid object that does not work as written, or not before others exist."""
    warnings_of = KINDS[written.kind].warnings
    return [] if warnings_of is None else await warnings_of(store, written, context)


async def deletion_warnings(store: Store, deleted: Iterable[QueueObject]) -> list[str]:
    """Return warnings for the user who deletes these objects, also in a dry run."""
    by_kind: dict[str, list[QueueObject]] = {}
    for item in deleted:
        by_kind.setdefault(item.kind, []).append(item)
    texts: list[str] = []
    for kind, items in by_kind.items():
        warnings_of = KINDS[kind].deletion_warnings
        if warnings_of is not None:
            texts += await warnings_of(store, items)
    return texts
