"""Recent rows of the ledger, for policies that depend on past usage: read once, at a leader's start."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sqlalchemy import literal, or_, select

from admission.engine.policies.contract import PastAdmission
from admission.store.database.instant import Instant
from admission.store.database.tables import admissions, head, usage_rollups, workloads
from admission.store.ledger.rollup import HOUR

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sqlalchemy.ext.asyncio import AsyncConnection

ROWS_AT_ONCE = 1000
"""Rows in a batch: some milliseconds of a policy's work, between which the event loop runs other tasks."""


async def past_admissions(connection: AsyncConnection, *, since: float) -> AsyncIterator[list[PastAdmission]]:
    """Yield the rows that end after `since` (Unix time, s) or are open, oldest first, in batches.

    Where retention has deleted rows, the hourly sums take the place of all rows: each is a row that was held for a
    second, and continues an earlier one.
    """
    pruned_to = await connection.scalar(select(head.c.pruned_to))
    kept = 0.0 if pruned_to is None or pruned_to <= since else math.ceil(pruned_to / HOUR) * HOUR
    if kept:
        async for sums in _hourly_sums(connection, since, kept):
            yield sums
    columns = admissions.c
    recent = or_(columns.to_at.is_(None), columns.to_at > literal(max(since, kept), Instant()))
    rows = await connection.stream(
        select(
            columns.workload_uid, columns.submitted_by, columns.namespace, columns.local_queue, columns.cluster_queue,
            columns.flavor, columns.resource, columns.amount, columns.from_at, columns.to_at,
            columns.began_at.is_not(None), workloads.c.submitter_groups,
        ).join(workloads, workloads.c.uid == columns.workload_uid, isouter=True)
        .where(recent, columns.flavor != "").order_by(columns.id)
    )  # fmt: skip
    async for batch in rows.partitions(ROWS_AT_ONCE):
        found = (PastAdmission._make((*row[:-1], tuple(row[-1] or ()))) for row in batch)
        yield [row._replace(from_at=kept, resized=True) if kept and row.from_at < kept else row for row in found]


async def _hourly_sums(connection: AsyncConnection, since: float, until: float) -> AsyncIterator[list[PastAdmission]]:
    columns = usage_rollups.c
    first = math.floor(since / HOUR) * HOUR
    rows = await connection.stream(
        select(
            columns.submitted_by, columns.namespace, columns.local_queue, columns.cluster_queue, columns.flavor,
            columns.resource, columns.amount_seconds, columns.hour,
        ).where(
            columns.hour >= literal(first, Instant()), columns.hour < literal(until, Instant()), columns.flavor != ""
        ).order_by(columns.hour)
    )  # fmt: skip
    async for batch in rows.partitions(ROWS_AT_ONCE):
        yield [
            PastAdmission._make(("", *whose, round(amount_seconds), hour, hour + 1.0, True, ()))
            for *whose, amount_seconds, hour in batch
        ]
