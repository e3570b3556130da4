"""Estimated starts of pending workloads, kept over restarts and for replicas that do not lead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import delete, insert, select

from admission.store.database.tables import start_estimates

if TYPE_CHECKING:
    from admission.store.database.connection import Database


class SavedEstimates(NamedTuple):
    """What the process that estimates starts wrote last."""

    at: float
    """When the estimates were made (Unix time, s)."""
    shown: dict[str, Any]
    """The estimates."""
    learned: dict[str, Any]
    """What they were learned from."""


class StartEstimates:
    """The row of `start_estimates`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self) -> SavedEstimates | None:
        """Return what was saved last; None: nothing. Raises StoreError."""
        columns = start_estimates.c
        async with self._database.read() as connection:
            row = (await connection.execute(select(columns.at, columns.shown, columns.learned))).one_or_none()
        return None if row is None else SavedEstimates(*row)

    async def save(self, estimates: SavedEstimates) -> None:
        """Replace what was saved before. Raises StoreError."""
        async with self._database.write() as connection:
            await connection.execute(delete(start_estimates))
            await connection.execute(insert(start_estimates).values(id=1, **estimates._asdict()))
