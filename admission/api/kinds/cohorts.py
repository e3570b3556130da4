"""API descriptor of Cohorts; their status has the fair share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.api.kinds.columns import Column, at
from admission.api.kinds.descriptor import ObjectKind, Status
from admission.api.kinds.fair_sharing import fair_sharing, weighted_shares
from admission.api.kinds.object_schemas import CohortStatus
from admission.model.names import listed
from admission.model.queues import Cohort

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.api.http.responses import Document
    from admission.store.store import Store


async def _inputs(store: Store, cohorts: Sequence[Cohort]) -> list[int]:
    share = await weighted_shares(store, await store.workloads.cluster_queue_status())
    return [share(cohort) for cohort in cohorts]


def _status(cohort: Cohort, share: int) -> Document:
    del cohort
    return fair_sharing(share)


async def _deletion_warnings(store: Store, deleted: Sequence[Cohort]) -> list[str]:
    """Warn about ClusterQueues and Cohorts that name a deleted Cohort as parent, and what they lose.

    The deletion is not refused: as in Kueue, a Cohort also exists without an object, by being named.
    """
    own = {f"{item.kind} {item.name}" for item in deleted}
    texts = []
    for item in deleted:
        members = [member for member in await store.queues.members(item.name) if member not in own]
        if members:
            parent = item.spec.parent_name
            lost = f"its quota, its limits and all of Cohort {parent}" if parent else "its quota and its limits"
            texts.append(
                f"Cohort {item.name} is still named by {listed(members)}: deleting its object takes {lost} from them; "
                f"name another Cohort there, or restore it by `sluice rollback cohort/{item.name}`"
            )
    return texts


COHORT: Final = ObjectKind(
    Cohort,
    columns=(Column("Parent", at("spec", "parentName"), "Cohort that the Cohort belongs to"),),
    selectable_fields={"spec.parentName": lambda cohort: cohort.spec.parent_name},
    status_schema=CohortStatus,
    status=Status(_inputs, _status),
    deletion_warnings=_deletion_warnings,
)
