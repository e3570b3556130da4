"""Recent rows of the ledger, for policies that depend on past usage: read once, at a leader's start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import or_, select

from admission.engine.policies.contract import PastAdmission
from admission.store.database.tables import admissions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sqlalchemy.ext.asyncio import AsyncConnection

ROWS_AT_ONCE = 1000
"""Rows in a batch: some milliseconds of a policy's work, between which the event loop runs other tasks."""


async def past_admissions(connection: AsyncConnection, *, since: float) -> AsyncIterator[list[PastAdmission]]:
    """Yield the rows that end after `since` (Unix time, s) or are open, oldest first, in batches."""
    columns = admissions.c
    recent = or_(columns.to_at.is_(None), columns.to_at > since)
    rows = await connection.stream(
        select(
            columns.workload_uid, columns.submitted_by, columns.namespace, columns.local_queue, columns.cluster_queue,
            columns.flavor, columns.resource, columns.amount, columns.from_at, columns.to_at,
            columns.began_at.is_not(None),
        ).where(recent, columns.flavor != "").order_by(columns.id)
    )  # fmt: skip
    async for batch in rows.partitions(ROWS_AT_ONCE):
        yield [PastAdmission(*row) for row in batch]
