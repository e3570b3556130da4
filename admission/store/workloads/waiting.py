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
    from sqlalchemy import Connection, FromClause, Join, Select

    from admission.store.database.connection import Database


def with_local_queue(rows: FromClause) -> Join:
    """Return rows with a `namespace` and a `local_queue`, joined with their LocalQueues, which need not exist."""
    queue = queue_objects.c
    return rows.outerjoin(
        queue_objects,
        and_(
            queue.kind == LocalQueue.kind,
            queue.namespace == rows.c.namespace,
            queue.name == rows.c.local_queue,
        ),
    )


WITH_LOCAL_QUEUE = with_local_queue(workloads)
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
    columns = workloads.c
    groups = columns.namespace, columns.local_queue, columns.reason
    counted = (
        select(*groups, func.count().label("number"), func.min(columns.queued_at).label("oldest"))
        .where(UNFINISHED, columns.state == State.PENDING)
        .group_by(*groups)
        .subquery()
    )
    return (
        select(WAITS_IN, *(counted.c[name] for name in ("namespace", "local_queue", "reason", "number", "oldest")))
        .select_from(with_local_queue(counted))
        .order_by(counted.c.oldest, counted.c.namespace, counted.c.local_queue, counted.c.reason)
    )
