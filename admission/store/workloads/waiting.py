"""Counts of pending workloads, by LocalQueue and reason or by user, with the start of the longest wait."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, func, select

from admission.model.queues import LocalQueue
from admission.store.database.tables import queue_objects, workloads
from admission.store.records import State
from admission.store.workloads.loading import UNFINISHED

if TYPE_CHECKING:
    from sqlalchemy import Connection, Select

    from admission.store.database.connection import Database

WITH_LOCAL_QUEUE = workloads.outerjoin(
    queue_objects,
    and_(
        queue_objects.c.kind == LocalQueue.kind,
        queue_objects.c.namespace == workloads.c.namespace,
        queue_objects.c.name == workloads.c.local_queue,
    ),
)
"""Workloads, joined with their LocalQueues."""
WAITS_IN = func.coalesce(queue_objects.c.cluster_queue, "").label("waits_in")
"""In `WITH_LOCAL_QUEUE`: where a workload waits if it is pending; empty if its LocalQueue does not exist."""


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """The pending workloads of one LocalQueue with the same reason."""

    cluster_queue: str
    """ClusterQueue of the LocalQueue; empty if the LocalQueue does not exist."""
    namespace: str
    local_queue: str
    reason: str
    """Reason from the engine's vocabulary; empty while the workloads have not been evaluated."""
    count: int
    oldest: float
    """Start of the longest wait (Unix time, s)."""


@dataclass(frozen=True, slots=True)
class WaitingUser:
    """The pending workloads of one user."""

    user: str
    """User name; empty if the submitting user is unknown."""
    count: int
    oldest: float
    """Start of the longest wait (Unix time, s)."""


async def waiting_users(database: Database) -> tuple[WaitingUser, ...]:
    """Return the counts of all pending workloads by user, the longest wait first."""
    statement = _by_user()

    def query(connection: Connection) -> tuple[WaitingUser, ...]:
        return tuple(WaitingUser(*row) for row in connection.execute(statement).all())

    return await database.read_sync(query)


async def waiting(database: Database) -> tuple[WaitingRow, ...]:
    """Return the counts of all pending workloads by LocalQueue and reason, the longest wait first."""
    statement = _statement()

    def query(connection: Connection) -> tuple[WaitingRow, ...]:
        return tuple(WaitingRow(*row) for row in connection.execute(statement).all())

    return await database.read_sync(query)


@cache
def _by_user() -> Select[Any]:
    columns = workloads.c
    oldest = func.min(columns.queued_at)
    return (
        select(columns.submitted_by, func.count(), oldest)
        .where(UNFINISHED, columns.state == State.PENDING)
        .group_by(columns.submitted_by)
        .order_by(oldest, columns.submitted_by)
    )


@cache
def _statement() -> Select[Any]:
    columns, queue = workloads.c, queue_objects.c
    groups = columns.namespace, columns.local_queue, columns.reason
    counted = (
        select(*groups, func.count().label("number"), func.min(columns.queued_at).label("oldest"))
        .where(UNFINISHED, columns.state == State.PENDING)
        .group_by(*groups)
        .subquery()
    )
    is_local_queue = and_(
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
        .select_from(counted.outerjoin(queue_objects, is_local_queue))
        .order_by(counted.c.oldest, counted.c.namespace, counted.c.local_queue, counted.c.reason)
    )
