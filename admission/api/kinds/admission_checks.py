"""API descriptor of AdmissionChecks; their status says whether the controller has ever answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.api.kinds.columns import ACTIVE, Column, at
from admission.api.kinds.descriptor import ObjectKind, Status
from admission.api.kinds.object_schemas import AdmissionCheckStatus
from admission.api.kinds.queue_status import admission_check_status, silences
from admission.model.queues import AdmissionCheck

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.api.kinds.descriptor import WarningContext
    from admission.store.store import Store


async def _inputs(store: Store, checks: Sequence[AdmissionCheck]) -> list[tuple[str, str]]:
    return await silences(store, checks)


async def _warnings(store: Store, written: AdmissionCheck, context: WarningContext) -> list[str]:
    del context
    if written.provisioning_config is not None:
        ((_, missing),) = await silences(store, [written])
        return [f"spec.parameters: {missing}"] if missing else []
    if not written.is_part_of_kueue:
        return []
    name = written.spec.controller_name
    return [f"spec.controllerName: {name} is a part of Kueue and does not answer Sluice; name another one"]


ADMISSION_CHECK: Final = ObjectKind(
    AdmissionCheck,
    columns=(
        Column("Controller", at("spec", "controllerName"), "Controller that answers the check", wide=True),
        ACTIVE,
    ),
    selectable_fields={"spec.controllerName": lambda check: check.spec.controller_name},
    status_schema=AdmissionCheckStatus,
    status=Status(_inputs, admission_check_status),
    warnings=_warnings,
)
