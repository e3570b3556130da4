"""ClusterQueues as the API shows them: their status says what is used and whether they take workloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from admission.api.kinds.columns import ACTIVE, WORKLOADS, Column, at
from admission.api.kinds.descriptor import ObjectKind, Status
from admission.api.kinds.fair_sharing import fair_sharing, weighted_shares
from admission.api.kinds.object_schemas import ClusterQueueStatus
from admission.api.kinds.queue_status import (
    NO_WORKLOADS,
    cluster_queue_status,
    missing_checks,
    missing_flavors,
    surroundings_of,
)
from admission.model.queues import ClusterQueue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.api.http.responses import Document
    from admission.api.kinds.descriptor import Known
    from admission.api.kinds.queue_status import Surroundings
    from admission.store.records import QueueStatus
    from admission.store.store import Store


class _Facts(NamedTuple):
    numbers: QueueStatus
    surroundings: Surroundings
    share: int


async def _facts(store: Store, queues: Sequence[ClusterQueue]) -> list[_Facts]:
    surroundings, numbers = await surroundings_of(store), await store.workloads.cluster_queue_status()
    share = await weighted_shares(store, numbers)
    return [_Facts(numbers.get(queue.name, NO_WORKLOADS), surroundings, share(queue)) for queue in queues]


def _status(queue: ClusterQueue, facts: _Facts) -> Document:
    return cluster_queue_status(queue, facts.numbers, facts.surroundings) | fair_sharing(facts.share)


async def _warnings(store: Store, written: ClusterQueue, known: Known) -> list[str]:
    del known
    surroundings = await surroundings_of(store)
    missing = [f"ResourceFlavor {name}" for name in missing_flavors(written, surroundings)]
    missing += [f"AdmissionCheck {name}" for name in missing_checks(written, surroundings)]
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
        Column("Strategy", at("spec", "queueingStrategy"), "Whether one that does not fit blocks the rest", wide=True),
        *WORKLOADS,
        ACTIVE,
    ),
    selectable={"spec.cohortName": lambda queue: queue.spec.cohort_name},
    status_schema=ClusterQueueStatus,
    status=Status(_facts, _status),
    warnings=_warnings,
)
