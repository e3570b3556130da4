"""Reports of what Budgets have left: their status in the database, and Events when half, 80 % or all of it is used."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from admission.cluster.events import ObjectReference
from admission.controller.state.repeating import repeat
from admission.engine import BudgetAccounts
from admission.model.queues import Budget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from admission.cluster.events import EventRecorder
    from admission.controller.state.faults import Faults
    from admission.engine import Engine
    from admission.model.budgets import Sum
    from admission.store.records import Document
    from admission.store.store import Store

log = logging.getLogger(__name__)

INTERVAL: Final = 10.0
"""Seconds between two reports."""
LEVELS: Final = (100, 80, 50)
"""Percentages of the hours at which an Event is written, the highest first."""


class BudgetReports:
    """Reports of the leader. `engine` returns its engine, or None while it decides nothing."""

    def __init__(
        self, store: Store, events: EventRecorder, engine: Callable[[], Engine | None], faults: Faults
    ) -> None:
        self._faults = faults
        self._store = store
        self._events = events
        self._engine = engine
        self._saved: dict[str, Document] | None = None
        """What was saved last; None: it is not known."""

    async def run(self) -> None:
        """Report every `INTERVAL` seconds until cancelled."""
        await repeat(self.report, self._faults, every=INTERVAL, name="the report of Budgets")

    async def report(self) -> None:
        """Write the status of all Budgets if it has changed, and due Events. Raises StoreError."""
        engine = self._engine()
        if engine is None or engine.lacks_history:
            return
        if self._saved is None:
            self._saved = await self._store.budget_sums.load()
        found: dict[str, Document] = {}
        reached: list[tuple[str, str, Document]] = []
        for accounts in engine.policies:
            if isinstance(accounts, BudgetAccounts):
                for name, _, bounds, sums in accounts.sums():
                    found[name] = _document(bounds, sums, accounts.used_up_since(name))
                    reached += self._alert(name, found[name], sums)
        if found != self._saved:
            await self._store.budget_sums.save(found, at=self._store.now())
            self._saved = found
        if reached:
            uids = {each.name: each.metadata.uid or "" for each in await self._store.queues.list(Budget.kind)}
            for name, begins, alert in reached:
                level, note, resource = alert["level"], alert["message"], alert["resource"]
                regarding = ObjectReference("sluice.dev/v1", Budget.kind, name, uids.get(name, ""))
                log.warning("%s", note)
                self._events.record(
                    regarding, reason=f"BudgetUsed{level}", action="Charge", note=note, warning=level >= LEVELS[1],
                    occasion=f"{resource} {begins}",
                )  # fmt: skip

    def _alert(self, name: str, document: Document, sums: list[Sum]) -> Iterator[tuple[str, str, Document]]:
        """Add its alerts to the document of a Budget; yield the new ones, with Budget and start of the period."""
        begins, saved = document["period"]["start"], (self._saved or {}).get(name, {})
        before = saved.get("alerts", []) if saved.get("period", {}).get("start") == begins else []
        alerts = {each["resource"]: each for each in before}
        for each in sums:
            resource = each.resource.name
            used = each.limit - each.left
            level = next((level for level in LEVELS if each.limit and used * 100 >= level * each.limit), 0)
            if level <= alerts.get(resource, {"level": 0})["level"]:
                continue
            spent, given = each.resource.text(used), each.resource.text(each.limit)
            note = f"Budget {name} has spent or reserved {spent} of {given} {each.resource.unit} ({level} %)"
            alerts[resource] = {"resource": resource, "level": level, "at": self._store.now(), "message": note}
            yield name, begins, alerts[resource]
        if alerts:
            document["alerts"] = list(alerts.values())


def _document(bounds: tuple[int, int], sums: list[Sum], used_up_since: float | None) -> Document:
    begins, ends = (_time(each // 1_000_000) for each in bounds)
    return {
        "period": {"start": begins, "end": ends},
        **({} if used_up_since is None else {"usedUpSince": _time(used_up_since)}),
        "resources": [
            {
                "name": each.resource.name,
                **({"flavors": list(each.resource.flavors)} if each.resource.flavors else {}),
                **{
                    field: each.resource.text(amount).replace(",", "")
                    for field, amount in (
                        ("hours", each.limit), ("spent", each.spent), ("reserved", each.reserved), ("left", each.left)
                    )
                },
            }
            for each in sums
        ],
    }  # fmt: skip


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
