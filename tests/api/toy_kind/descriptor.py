"""Descriptor of the toy kind, as it would be in `admission/api/kinds/allowances.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from admission.api.kinds.columns import at
from admission.api.kinds.descriptor import ObjectKind, Status, WarningContext
from admission.apimachinery.tables import Column
from admission.model.base import Model
from admission.model.queues import ClusterQueue
from admission.store.store import Store
from tests.api.toy_kind.model import Allowance


class AllowanceStatus(Model):
    """Remaining amount of an Allowance."""

    gpu_hours_left: int
    """GPU hours that are left in this month."""


async def _inputs(store: Store, allowances: Sequence[Allowance]) -> list[int]:
    del store
    return [allowance.spec.gpu_hours for allowance in allowances]


def _status(allowance: Allowance, left: int) -> dict[str, Any]:
    del allowance
    return {"gpuHoursLeft": left}


async def _warnings(store: Store, written: Allowance, context: WarningContext) -> list[str]:
    del context
    queue = written.spec.cluster_queue
    existing = (await store.queues.names(ClusterQueue.kind))[ClusterQueue.kind]
    return [] if queue in existing else [f"there is no ClusterQueue {queue}; nothing is counted before it is created"]


ALLOWANCE = ObjectKind(
    Allowance,
    columns=(
        Column("ClusterQueue", at("spec", "clusterQueue"), "ClusterQueue whose workloads the Allowance limits"),
        Column("Left", at("status", "gpuHoursLeft"), "GPU hours left in this month", "integer"),
    ),
    selectable_fields={"spec.clusterQueue": lambda allowance: allowance.spec.cluster_queue},
    status_schema=AllowanceStatus,
    status=Status(_inputs, _status),
    warnings=_warnings,
)
