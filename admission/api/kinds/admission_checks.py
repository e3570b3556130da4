"""AdmissionChecks as the API shows them: their status says whether the controller was heard of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.api.kinds.columns import ACTIVE, Column, at
from admission.api.kinds.descriptor import ObjectKind, Status
from admission.api.kinds.object_schemas import AdmissionCheckStatus
from admission.api.kinds.queue_status import admission_check_status, is_answered_by_kueue
from admission.model.queues import AdmissionCheck

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.api.kinds.descriptor import Known
    from admission.store.store import Store


async def _facts(store: Store, checks: Sequence[AdmissionCheck]) -> list[bool]:
    answered = await store.orders.answered()
    return [check.name in answered for check in checks]


async def _warnings(store: Store, written: AdmissionCheck, known: Known) -> list[str]:
    del store, known
    if not is_answered_by_kueue(written):
        return []
    name = written.spec.controller_name
    return [f"spec.controllerName: {name} is a part of Kueue and does not answer to Sluice; name another one"]


ADMISSION_CHECK: Final = ObjectKind(
    AdmissionCheck,
    columns=(Column("Controller", at("spec", "controllerName"), "Who answers the check", wide=True), ACTIVE),
    selectable={"spec.controllerName": lambda check: check.spec.controller_name},
    status_schema=AdmissionCheckStatus,
    status=Status(_facts, admission_check_status),
    warnings=_warnings,
)
