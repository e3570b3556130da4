"""Descriptor of the toy kind, as it would be in `admission/api/kinds/budgets.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from admission.api.kinds.columns import Column, at
from admission.api.kinds.descriptor import ObjectKind, Status
from admission.model.base import Model
from admission.model.queues import ClusterQueue
from tests.api.toy_kind.model import Budget

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.api.kinds.descriptor import WarningContext
    from admission.store.store import Store


class BudgetStatus(Model):
    """Remaining amount of a Budget."""

    gpu_hours_left: int
    """GPU hours that are left in this month."""


async def _inputs(store: Store, budgets: Sequence[Budget]) -> list[int]:
    del store
    return [budget.spec.gpu_hours for budget in budgets]


def _status(budget: Budget, left: int) -> dict[str, Any]:
    del budget
    return {"gpuHoursLeft": left}


async def _warnings(store: Store, written: Budget, context: WarningContext) -> list[str]:
    del context
    queue = written.spec.cluster_queue
    existing = (await store.queues.names(ClusterQueue.kind))[ClusterQueue.kind]
    return [] if queue in existing else [f"there is no ClusterQueue {queue}; nothing is counted before it is created"]


BUDGET = ObjectKind(
    Budget,
    columns=(
        Column("ClusterQueue", at("spec", "clusterQueue"), "ClusterQueue whose workloads the Budget limits"),
        Column("Left", at("status", "gpuHoursLeft"), "GPU hours left in this month", "integer"),
    ),
    selectable_fields={"spec.clusterQueue": lambda budget: budget.spec.cluster_queue},
    status_schema=BudgetStatus,
    status=Status(_inputs, _status),
    warnings=_warnings,
)
