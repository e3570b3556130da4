"""Workloads as users and dashboards read them: pages, single ones, and numbers for each queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import func, select, tuple_

from admission.store import loading, status
from admission.store.records import Page, State, Transition
from admission.store.tables import head, transitions, workloads

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import ColumnElement

    from admission.store.database import Database
    from admission.store.records import QueueStatus, WorkloadRecord

_KEY = (workloads.c.namespace, workloads.c.name, workloads.c.uid)


class Workloads:
    """The workloads in the database, for reading."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(
        self,
        *,
        namespace: str | None = None,
        queue: str | None = None,
        cluster_queue: str | None = None,
        states: Collection[State] | None = None,
        limit: int | None = None,
        after: tuple[str, str, str] | None = None,
    ) -> Page:
        """Workloads sorted by namespace, name and uid, at most `limit` of them, from `after` on (a page's `after`).

        `queue` is the name of a LocalQueue.
        """
        columns = workloads.c
        wanted = {columns.namespace: namespace, columns.local_queue: queue, columns.cluster_queue: cluster_queue}
        conditions: list[ColumnElement[bool]] = [
            column == value for column, value in wanted.items() if value is not None
        ]
        if states is not None:
            conditions.append(columns.state.in_(states))
        if after is not None:
            conditions.append(tuple_(*_KEY) > after)
        statement = loading.WORKLOAD.where(*conditions).order_by(*_KEY)
        async with self._database.read() as connection:
            revision = (await connection.execute(select(head.c.revision))).scalar_one()
            rows = (await connection.execute(statement.limit(limit))).all()
            remaining = 0
            if rows and len(rows) == limit:
                counting = select(func.count()).select_from(workloads).where(*conditions)
                remaining = (await connection.execute(counting)).scalar_one() - len(rows)
            found = await loading.records(connection, rows)
        end = (rows[-1].namespace, rows[-1].name, rows[-1].uid) if remaining else None
        return Page(found, revision, end, remaining)

    async def get(self, namespace: str, name: str) -> WorkloadRecord | None:
        """The workload of that name; of several, where one followed the other, the last."""
        columns = workloads.c
        statement = (
            loading.WORKLOAD.where(columns.namespace == namespace, columns.name == name)
            .order_by(columns.created_at.desc(), columns.uid.desc())
            .limit(1)
        )
        async with self._database.read() as connection:
            found = await loading.records(connection, (await connection.execute(statement)).all())
        return found[0] if found else None

    async def story(self, uid: str) -> tuple[Transition, ...]:
        """The transitions of a workload, oldest first."""
        columns = transitions.c
        statement = (
            select(columns.workload_uid, columns.at, columns.state, columns.reason, columns.message)
            .where(columns.workload_uid == uid)
            .order_by(columns.id)
        )
        async with self._database.read() as connection:
            rows = await connection.execute(statement)
            return tuple(Transition(uid, at, State(state), reason, text) for uid, at, state, reason, text in rows)

    async def cluster_queue_status(self) -> dict[str, QueueStatus]:
        """By name, for each ClusterQueue where something waits or that something is held of."""
        async with self._database.read() as connection:
            return await status.by_cluster_queue(connection)

    async def local_queue_status(self) -> dict[tuple[str, str], QueueStatus]:
        """By (namespace, name), for each LocalQueue where something waits or through which something is held."""
        async with self._database.read() as connection:
            return await status.by_local_queue(connection)
