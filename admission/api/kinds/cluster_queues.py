"""API descriptor of ClusterQueues; their status has usage, fair share and whether they admit workloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from admission.api.kinds.columns import ACTIVE, WORKLOADS, Column, at
from admission.api.kinds.descriptor import ObjectKind, Status
from admission.api.kinds.fair_sharing import fair_sharing, weighted_shares
from admission.api.kinds.object_schemas import ClusterQueueStatus
from admission.api.kinds.queue_status import (
    NO_WORKLOADS,
    cluster_queue_status,
    existing_objects,
    missing_checks,
    missing_flavors,
)
from admission.model.queues import ClusterQueue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.api.http.responses import Document
    from admission.api.kinds.descriptor import WarningContext
    from admission.api.kinds.queue_status import ExistingObjects
    from admission.store.records import QueueStatus
    from admission.store.store import Store


class _Inputs(NamedTuple):
    numbers: QueueStatus
    existing: ExistingObjects
    share: int


async def _inputs(store: Store, queues: Sequence[ClusterQueue]) -> list[_Inputs]:
    existing, numbers = await existing_objects(store), await store.workloads.cluster_queue_status()
    share = await weighted_shares(store, numbers)
    return [_Inputs(numbers.get(queue.name, NO_WORKLOADS), existing, share(queue)) for queue in queues]


def _status(queue: ClusterQueue, inputs: _Inputs) -> Document:
    return cluster_queue_status(queue, inputs.numbers, inputs.existing) | fair_sharing(inputs.share)


async def _warnings(store: Store, written: ClusterQueue, context: WarningContext) -> list[str]:
    del context
    existing = await existing_objects(store)
    missing = [f"ResourceFlavor {name}" for name in missing_flavors(written, existing)]
    missing += [f"AdmissionCheck {name}" for name in missing_checks(written, existing)]
    texts = []
    if written.spec.namespace_selector is None:
        texts.append(
            "spec.namespaceSelector is not set, which matches no namespace: nothing is admitted; "
            "set {} for all namespaces"
        )
    return texts + [f"there is no {name}; nothing is admitted before it is created" for name in missing]


CLUSTER_QUEUE: Final = ObjectKind(
    ClusterQueue,
    columns=(
        Column("Cohort", at("spec", "cohortName"), "Cohort that the ClusterQueue belongs to"),
        Column(
            "Strategy",
            at("spec", "queueingStrategy"),
            "Whether a workload that does not fit blocks those behind it",
            wide=True,
        ),
        *WORKLOADS,
        ACTIVE._replace(wide=False),  # otherwise a stopped queue would look as an open one
    ),
    selectable_fields={"spec.cohortName": lambda queue: queue.spec.cohort_name},
    status_schema=ClusterQueueStatus,
    status=Status(_inputs, _status),
    warnings=_warnings,
)
