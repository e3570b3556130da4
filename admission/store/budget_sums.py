"""What Budgets have left, written by the leader a few times a minute: their status, which any replica can read."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from sqlalchemy import delete, select

from admission.store.database.tables import budget_sums

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from admission.store.database.connection import Database
    from admission.store.records import Document

_MOST_NAMES: Final = 500
"""Names by which documents are selected; for more, all are read."""


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

    async def load(self, names: Collection[str] | None = None) -> dict[str, Document]:
        """Return the latest documents, of all Budgets or of those with these names. Raises StoreError."""
        columns = budget_sums.c
        statement = select(columns.budget, columns.sums)
        if names is not None and len(names) <= _MOST_NAMES:
            statement = statement.where(columns.budget.in_(names))
        async with self._database.read() as connection:
            return {row.budget: row.sums for row in await connection.execute(statement)}

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

    async def used_up_since(self, names: Collection[str]) -> dict[str, int]:
        """Return since when these Budgets are used up, if they are, in microseconds. Raises StoreError."""
        found = {name: sums.get("usedUpSince") for name, sums in (await self.load(names)).items()}
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
