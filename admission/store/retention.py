"""Retention: deletion of old finished workloads with all their rows, and of old audit records.

Usage is kept in the roll-ups: a ledger row is deleted with its workload, and only after the hour of its end was summed
up. Versions of queue objects are kept, because usage is split into nominal and borrowed by the quota of its time. Each
transaction is small, so that it does not delay decisions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import case, delete, func, literal, select, update

from admission.store.database.instant import Instant
from admission.store.database.tables import (
    admissions,
    audit_records,
    head,
    measured_usage,
    notification_progress,
    pod_sets,
    transitions,
    workloads,
)
from admission.store.errors import StaleEpoch
from admission.store.ledger.rollup import DAY, hour_of
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import RowMapping
    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.store.database.connection import Database

BATCH = 500
"""Workloads, shapes of pod sets, or audit records that one transaction deletes at most."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention periods, in seconds."""

    finished: float = 90 * DAY
    """For workloads, from their end."""
    audit: float = 365 * DAY
    """For audit records."""


async def prune(database: Database, policy: Retention, *, now: float, epoch: int) -> int:
    """Delete rows older than the periods of `policy`; return the number of workloads deleted. Raises StaleEpoch."""
    found = 0
    while count := await _prune_workloads(database, now - policy.finished, epoch):
        found += count
    while found and await _prune_shapes(database, epoch):
        pass
    while await _prune_audit(database, now - policy.audit, epoch):
        pass
    return found


async def _prune_workloads(database: Database, before: float, epoch: int) -> int:
    columns, rows = workloads.c, admissions.c
    async with database.write() as connection:
        locked = await _lock(connection, epoch)
        if locked["rolled_up_to"] is None:
            return 0
        limit = literal(hour_of(min(before, locked["rolled_up_to"])), Instant())
        still = select(rows.id).where(rows.workload_uid == columns.uid, rows.to_at.is_(None) | (rows.to_at > limit))
        statement = (
            select(columns.uid)
            .where(_FINISHED, columns.finished_at < limit, ~still.exists())
            .order_by(columns.finished_at)
            .limit(BATCH)
        )
        uids: Sequence[str] = (await connection.scalars(statement)).all()
        if uids:
            await connection.execute(delete(admissions).where(rows.workload_uid.in_(uids)))
            await connection.execute(delete(measured_usage).where(measured_usage.c.workload_uid.in_(uids)))
            await connection.execute(delete(workloads).where(columns.uid.in_(uids)))
            await connection.execute(_LOWER_PROGRESS)
            later = case((head.c.pruned_to > limit, head.c.pruned_to), else_=limit)
            await connection.execute(update(head).values(pruned_to=later))
    return len(uids)


async def _prune_shapes(database: Database, epoch: int) -> int:
    """Delete pod sets of shapes that no workload has; return the number of rows.

    The search runs in a read transaction; the write transaction excludes shapes that were used again since.
    """
    columns = pod_sets.c
    async with database.read() as connection:
        revision: int = (await connection.execute(select(head.c.revision))).scalar_one()
        unused = select(columns.shape).where(columns.shape.not_in(select(workloads.c.shape))).distinct().limit(BATCH)
        shapes: Sequence[str] = (await connection.scalars(unused)).all()
    if not shapes:
        return 0
    async with database.write() as connection:
        await _lock(connection, epoch)
        used_since = select(workloads.c.shape).where(workloads.c.revision > revision)
        statement = delete(pod_sets).where(columns.shape.in_(shapes), columns.shape.not_in(used_since))
        return (await connection.execute(statement)).rowcount


async def _prune_audit(database: Database, before: float, epoch: int) -> int:
    columns = audit_records.c
    async with database.write() as connection:
        await _lock(connection, epoch)
        old = select(columns.id).where(columns.at < literal(before, Instant())).order_by(columns.at).limit(BATCH)
        ids: Sequence[int] = (await connection.scalars(old)).all()
        if ids:
            await connection.execute(delete(audit_records).where(columns.id.in_(ids)))
    return len(ids)


async def _lock(connection: AsyncConnection, epoch: int) -> RowMapping:
    """Lock and return the row of `head`. Raises StaleEpoch if another leader has taken over."""
    statement = select(head.c.epoch, head.c.rolled_up_to).with_for_update()
    row = (await connection.execute(statement)).mappings().one()
    if row["epoch"] != epoch:
        raise StaleEpoch(f"this Sluice is no longer the leader (its epoch is {epoch}); no old rows were deleted")
    return row


_NEWEST = select(func.coalesce(func.max(transitions.c.id), 0)).scalar_subquery()
_LOWER_PROGRESS = update(notification_progress).values(
    transition_id=case(
        (notification_progress.c.transition_id > _NEWEST, _NEWEST), else_=notification_progress.c.transition_id
    )
)
"""Lowers the notifications' cursor to the newest transition: SQLite reuses the ids of deleted rows at the end of a
table, so transitions with those ids may follow that were not read yet."""
_FINISHED = workloads.c.state == literal(State.FINISHED.value, literal_execute=True)
"""Rendered as a literal, because a partial index is used only for its own constant."""
