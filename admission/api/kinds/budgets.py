"""API descriptor of Budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.api.kinds.columns import Column, at
from admission.api.kinds.descriptor import ObjectKind, Status
from admission.api.kinds.object_schemas import BudgetStatus
from admission.model.queues import Budget, ClusterQueue, Cohort, PriceBook, ResourceFlavor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.api.http.responses import Document
    from admission.api.kinds.columns import Cell
    from admission.api.kinds.descriptor import WarningContext
    from admission.store.store import Store


def _period(document: Document, now: float) -> object:
    del now
    period = document["spec"]["period"]
    if "every" in period:
        return period["every"]
    return f"{period['lastDays']}d" if "lastDays" in period else f"{period['firstDay']}..{period['lastDay']}"


def _of_resources(field: str) -> Cell:
    """Return an accessor of a number of hours: `1986.5` for one resource, `cpu=4,memory=5Ti` for several."""

    def read(document: Document, now: float) -> object:
        del now
        found = document.get("status", {}).get("resources", ())
        return ",".join(each[field] if len(found) == 1 else f"{each['name']}={each[field]}" for each in found)

    return read


async def _inputs(store: Store, budgets: Sequence[Budget]) -> list[Document]:
    sums = await store.budget_sums.load([budget.name for budget in budgets])
    return [sums.get(budget.name, {}) for budget in budgets]


def _status(budget: Budget, sums: Document) -> Document:
    del budget
    return sums


async def _warnings(store: Store, written: Budget, context: WarningContext) -> list[str]:
    names = await store.queues.names(Budget.kind, ClusterQueue.kind, Cohort.kind, ResourceFlavor.kind, PriceBook.kind)
    spec = written.spec
    missing = [f"PriceBook {name}" for name in spec.price_books if name not in names[PriceBook.kind]]
    if spec.parent and spec.parent not in names[Budget.kind]:
        missing.append(f"Budget {spec.parent}")
    if spec.scope is not None:
        missing += [
            f"ClusterQueue {name}" for name in spec.scope.cluster_queues if name not in names[ClusterQueue.kind]
        ]
        missing += [f"Cohort {name}" for name in spec.scope.cohorts if name not in names[Cohort.kind]]
        if context.namespaces:
            missing += [f"namespace {name}" for name in spec.scope.namespaces if name not in context.namespaces]
    flavors = {name for each in spec.resources for name in each.flavors}
    missing += [f"ResourceFlavor {name}" for name in sorted(flavors) if name not in names[ResourceFlavor.kind]]
    texts = [f"there is no {name}; it is counted when it is created" for name in missing]
    if spec.enforcement == "Reserve" and spec.assumed_seconds is None and spec.action == "StopAdmitting":
        texts.append("workloads without a time limit are not admitted: set assumedSeconds, or tell their users")
    return texts


BUDGET: Final = ObjectKind(
    Budget,
    columns=(
        Column("Period", _period, "Period for which the hours are given"),
        Column("Hours", _of_resources("hours"), "Hours given in the present period"),
        Column("Spent", _of_resources("spent"), "Hours charged so far"),
        Column("Reserved", _of_resources("reserved"), "Hours that running workloads may still use"),
        Column("Left", _of_resources("left"), "Hours that are neither spent nor reserved"),
        Column("Ends", at("status", "period", "end"), "End of the present period"),
    ),
    selectable_fields={"spec.parent": lambda budget: budget.spec.parent},
    status_schema=BudgetStatus,
    status=Status(_inputs, _status),
    warnings=_warnings,
)
