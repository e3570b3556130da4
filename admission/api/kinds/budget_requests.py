"""API descriptor of BudgetRequests; their status is the grant of the Budget that answers them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.api.kinds.columns import Column, at
from admission.api.kinds.descriptor import ObjectKind, Status
from admission.api.kinds.object_schemas import BudgetRequestStatus
from admission.model.quantity import parse_quantity
from admission.model.queues import Budget, BudgetRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.api.http.responses import Document
    from admission.api.kinds.descriptor import WarningContext
    from admission.model.budgets import BudgetGrant
    from admission.store.store import Store


def _key(request: BudgetRequest) -> str:
    return f"{request.metadata.namespace}/{request.name}"


async def _inputs(store: Store, requests: Sequence[BudgetRequest]) -> list[BudgetGrant | None]:
    budgets = [each for each in await store.queues.list(Budget.kind) if isinstance(each, Budget)]
    answers = {(each.name, grant.request): grant for each in budgets for grant in each.spec.grants if grant.request}
    return [answers.get((each.spec.budget, _key(each))) for each in requests]


def _status(request: BudgetRequest, answer: BudgetGrant | None) -> Document:
    del request
    if answer is None:
        return {"phase": "Open"}
    phase = "Granted" if parse_quantity(answer.hours) > 0 else "Declined"
    return {"phase": phase, "hours": answer.hours, "day": answer.day, "reason": answer.reason}


async def _warnings(store: Store, written: BudgetRequest, context: WarningContext) -> list[str]:
    del context
    budgets = {each.name: each for each in await store.queues.list(Budget.kind) if isinstance(each, Budget)}
    spec = written.spec
    if (budget := budgets.get(spec.budget)) is None:
        return [f"there is no Budget {spec.budget}"]
    known = sorted({each.name for each in budget.spec.resources})
    return [] if spec.resource in known else [f"Budget {spec.budget} has hours of {', '.join(known)} only"]


BUDGET_REQUEST: Final = ObjectKind(
    BudgetRequest,
    columns=(
        Column("Budget", at("spec", "budget"), "The Budget"),
        Column("Hours", at("spec", "hours"), "Hours that are asked for"),
        Column("State", at("status", "phase"), "Open, Granted or Declined"),
        Column("Resource", at("spec", "resource"), "The resource", wide=True),
        Column("Day", at("spec", "day"), "A day of the period that is to get them", wide=True),
        Column("Reason", at("spec", "reason"), "Why they are needed", wide=True),
    ),
    selectable_fields={"spec.budget": lambda request: request.spec.budget},
    status_schema=BudgetRequestStatus,
    status=Status(_inputs, _status),
    warnings=_warnings,
)
