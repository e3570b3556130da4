"""What Budgets have left, written by the leader a few times a minute: their status, which any replica can read."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import delete, select

from admission.store.database.tables import budget_sums

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.store.database.connection import Database
    from admission.store.records import Document


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
