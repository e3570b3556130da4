"""Rows into records: everything unfinished at the start, and single workloads and pages of them later."""

from __future__ import annotations

from sys import intern
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlalchemy import bindparam, select

from admission.model.workload import Admission, PodSetAssignment, Workload
from admission.store.dialects import among
from admission.store.documents import pod_set
from admission.store.records import DEQUEUED, State, WorkloadRecord
from admission.store.tables import admissions, pod_sets, workloads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Row
    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.model.workload import PodSet

WORKLOAD = select(*workloads.c)
"""Its rows are what `records` takes."""
UNFINISHED = workloads.c.state != bindparam("finished", State.FINISHED.value, literal_execute=True)
"""Written out in the statement, so that the partial index serves it."""
_PARTITION = 5_000
_ENDED = 20_000
"""So many ends no API server lags behind."""

_Assigned: TypeAlias = tuple[dict[str, str], dict[str, int], int]


async def unfinished(connection: AsyncConnection) -> tuple[WorkloadRecord, ...]:
    """All workloads that are not finished, oldest first."""
    shapes = await _shapes(connection, select(workloads.c.shape).where(UNFINISHED).distinct())
    held = await _held(connection, None)
    found: list[WorkloadRecord] = []
    result = await connection.stream(WORKLOAD.where(UNFINISHED).order_by(workloads.c.created_at, workloads.c.uid))
    async for rows in result.partitions(_PARTITION):
        found.extend(_record(row, shapes, held) for row in rows)
    return tuple(found)


async def ended(connection: AsyncConnection) -> frozenset[str]:
    """The uids of the last that are finished and cannot come back, as those can whose queue label was removed."""
    columns = workloads.c
    statement = (
        select(columns.uid)
        .where(columns.state == State.FINISHED, columns.outcome != DEQUEUED)
        .order_by(columns.revision.desc())
        .limit(_ENDED)
    )
    return frozenset((await connection.execute(statement)).scalars())


async def records(connection: AsyncConnection, rows: Sequence[Row[Any]]) -> tuple[WorkloadRecord, ...]:
    """The records of a few rows of `WORKLOAD`, in the same order."""
    shapes = await _shapes(connection, {row.shape for row in rows})
    held = await _held(connection, [row.uid for row in rows])
    return tuple(_record(row, shapes, held) for row in rows)


async def _shapes(connection: AsyncConnection, names: Any) -> dict[str, tuple[PodSet, ...]]:
    rows = await connection.execute(
        select(pod_sets).where(pod_sets.c.shape.in_(names)).order_by(pod_sets.c.shape, pod_sets.c.position)
    )
    shapes: dict[str, tuple[PodSet, ...]] = {}
    for row in rows.mappings():
        shapes[row["shape"]] = (*shapes.get(row["shape"], ()), pod_set(dict(row)))
    return shapes


async def _held(connection: AsyncConnection, uids: list[str] | None) -> dict[str, Admission]:
    """The admissions that are open in the ledger; `uids`: of these workloads only."""
    columns = admissions.c
    conditions: list[ColumnElement[bool]] = [columns.to_at.is_(None)]
    if uids is not None:
        conditions.append(among(connection.dialect.name, columns.workload_uid, uids))
    rows = await connection.execute(
        select(
            columns.workload_uid, columns.pod_set, columns.resource, columns.flavor, columns.amount, columns.count,
            columns.cluster_queue,
        ).where(*conditions).order_by(columns.id)
    )  # fmt: skip
    found: dict[str, tuple[str, dict[str, _Assigned]]] = {}
    for uid, name, resource, flavor, amount, count, cluster_queue in rows:
        sets = found.setdefault(uid, (cluster_queue, {}))[1]
        flavors, usage, _ = sets.setdefault(name, ({}, {}, count))
        if resource:
            usage[intern(resource)] = amount
        if flavor:
            flavors[intern(resource)] = intern(flavor)
    return {
        uid: Admission(intern(queue), tuple(map(_assignment, sets.items()))) for uid, (queue, sets) in found.items()
    }


def _assignment(item: tuple[str, _Assigned]) -> PodSetAssignment:
    name, (flavors, usage, count) = item
    return PodSetAssignment(intern(name), flavors, usage, count)


def _record(row: Sequence[Any], shapes: dict[str, tuple[PodSet, ...]], held: dict[str, Admission]) -> WorkloadRecord:
    (
        uid, namespace, name, kind, local_queue, cluster_queue, priority, priority_class, submitted_by, created_at,
        shape, state, reason, message, evict_reason, outcome, queued_at, counts_from, admitted_at, finished_at,
        original, revision, active, checks_pending, cleared_at, ready_at, unready_at, requeues, not_before,
        past_seconds, first_revision,
    ) = row  # fmt: skip
    return WorkloadRecord(
        workload=Workload(
            uid=uid,
            namespace=intern(namespace),
            name=name,
            queue=intern(local_queue),
            priority=priority,
            created=created_at,
            pod_sets=shapes[shape],
            kind=intern(kind),
            priority_class=intern(priority_class),
            user=intern(submitted_by),
            queued_at=counts_from,
        ),
        state=State(state),
        queued_at=queued_at,
        cluster_queue=intern(cluster_queue),
        reason=intern(reason),
        message=message,
        evict_reason=evict_reason,
        admission=held.get(uid),
        original=original,
        admitted_at=admitted_at,
        finished_at=finished_at,
        outcome=outcome,
        active=active,
        checks_pending=checks_pending,
        cleared_at=cleared_at,
        ready_at=ready_at,
        unready_at=unready_at,
        requeues=requeues,
        not_before=not_before,
        past_seconds=past_seconds,
        first_revision=first_revision,
        revision=revision,
    )
