"""What Budgets have left, written by the leader a few times a minute: their status, which any replica can read."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import delete, select

from admission.store.database.tables import budget_sums

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.store.database.connection import Database
    from admission.store.records import Document


class BudgetAlert(NamedTuple):
    """Half, 80 % or all of a Budget's hours of a resource in a period was spent or reserved."""

    budget: str
    resource: str
    level: int
    """The percentage that was reached."""
    period: str
    """Start of the period (RFC 3339)."""
    at: float
    """When it was seen (Unix time, s)."""
    message: str


class BudgetSums:
    """The rows of `budget_sums`: documents of the status, by name of the Budget."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self) -> dict[str, Document]:
        """Return the latest documents. Raises StoreError."""
        columns = budget_sums.c
        async with self._database.read() as connection:
            rows = await connection.execute(select(columns.budget, columns.sums))
            return {row.budget: row.sums for row in rows}

    async def alerts(self) -> list[BudgetAlert]:
        """Return the alerts of the present periods, oldest first. Raises StoreError."""
        return sorted(
            (
                BudgetAlert(name, one["resource"], one["level"], sums["period"]["start"], one["at"], one["message"])
                for name, sums in (await self.load()).items()
                for one in sums.get("alerts", ())
            ),
            key=lambda alert: alert.at,
        )

    async def used_up_since(self) -> dict[str, int]:
        """Return since when Budgets with `PreemptAfter` are used up, in microseconds, by name. Raises StoreError."""
        found = {name: sums.get("usedUpSince") for name, sums in (await self.load()).items()}
        return {
            name: round(datetime.fromisoformat(since).timestamp()) * 1_000_000 for name, since in found.items() if since
        }

    async def save(self, sums: Mapping[str, Document], *, at: float) -> None:
        """Replace all documents; `at`: Unix time (s). Raises StoreError."""
        rows = [{"budget": name, "at": at, "sums": document} for name, document in sums.items()]
        async with self._database.write() as connection:
            await connection.execute(delete(budget_sums))
            if rows:
                await connection.execute(budget_sums.insert(), rows)
