"""What waits in the queues, summed up by the database: how many workloads for which reason, and since when."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, func, select

from admission.model.queues import LocalQueue
from admission.store.database.tables import queue_objects, workloads
from admission.store.records import State

if TYPE_CHECKING:
    from sqlalchemy import Connection, Select

    from admission.store.database.connection import Database


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """The pending workloads of one LocalQueue that wait for the same reason."""

    cluster_queue: str
    """Where the LocalQueue leads; empty if there is no such LocalQueue."""
    namespace: str
    local_queue: str
    reason: str
    """Of the engine's vocabulary; empty while it has not been evaluated."""
    count: int
    oldest: float
    """Since when the first of them waits, in seconds since the epoch."""


async def waiting(database: Database) -> tuple[WaitingRow, ...]:
    """All pending workloads by LocalQueue and reason, those that wait for longest first."""
    statement = _statement()

    def look(connection: Connection) -> tuple[WaitingRow, ...]:
        return tuple(WaitingRow(*row) for row in connection.execute(statement).all())

    return await database.look(look)


@cache
def _statement() -> Select[Any]:
    columns, queue = workloads.c, queue_objects.c
    groups = columns.namespace, columns.local_queue, columns.reason
    counted = (
        select(*groups, func.count().label("number"), func.min(columns.queued_at).label("oldest"))
        .where(columns.state == State.PENDING)
        .group_by(*groups)
        .subquery()
    )
    leads_there = and_(
        queue.kind == LocalQueue.kind, queue.namespace == counted.c.namespace, queue.name == counted.c.local_queue
    )
    return (
        select(
            func.coalesce(queue.cluster_queue, ""),
            counted.c.namespace,
            counted.c.local_queue,
            counted.c.reason,
            counted.c.number,
            counted.c.oldest,
        )
        .select_from(counted.outerjoin(queue_objects, leads_there))
        .order_by(counted.c.oldest, counted.c.namespace, counted.c.local_queue, counted.c.reason)
    )
