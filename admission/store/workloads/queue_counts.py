"""Numbers for each queue, summed by the database: pending workloads, workloads with quota, amounts held."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, case, func, literal, select

from admission.model.quantity import UNLIMITED
from admission.model.queues import LocalQueue
from admission.store.database.tables import admissions, queue_objects, workloads
from admission.store.records import HeldAmount, QueueStatus, State, UnfinishedCount
from admission.store.workloads.loading import UNFINISHED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import ColumnElement, CompoundSelect, Connection, Select

_HALF = 2**32
"""Upper and lower half of the bits of amounts are added up apart: the sum of whole ones may have more than 64."""
_CHECKED = "checked"
# A workload whose admission checks are not all ready holds quota, and is not admitted yet.
_STATE = case(
    (and_(workloads.c.state == State.ADMITTED, workloads.c.checks_pending), _CHECKED), else_=workloads.c.state
).label("state")


def by_cluster_queue(connection: Connection) -> dict[str, QueueStatus]:
    """What waits for each ClusterQueue, by way of whichever LocalQueue, and what is held of it."""
    found = _numbers(connection, *_by_cluster_queue())
    return {name: status for (name,), status in found.items()}


def by_local_queue(connection: Connection) -> dict[tuple[str, str], QueueStatus]:
    """By (namespace, name) of the LocalQueue: what waits in it, and what its workloads hold."""
    found = _numbers(connection, *_by_local_queue())
    return {(namespace, name): status for (namespace, name), status in found.items()}


# Statements are made once: open pages look each second.
@cache
def _by_cluster_queue() -> tuple[CompoundSelect[Any], Select[Any]]:
    columns, door = workloads.c, queue_objects.c
    # Where a workload waits follows from its LocalQueue as it is now; where it holds quota is written down.
    waiting = pending(columns.namespace, columns.local_queue).subquery()
    leads_there = and_(
        door.kind == LocalQueue.kind, door.namespace == waiting.c.namespace, door.name == waiting.c.local_queue
    )
    counts = (
        select(door.cluster_queue, literal(State.PENDING.value), func.sum(waiting.c.number))
        .select_from(waiting.join(queue_objects, leads_there))
        .group_by(door.cluster_queue)
        .union_all(holding(columns.cluster_queue))
    )
    return counts, held(admissions.c.cluster_queue)


@cache
def _by_local_queue() -> tuple[CompoundSelect[Any], Select[Any]]:
    where = workloads.c.namespace, workloads.c.local_queue
    waiting = pending(*where).subquery()
    columns = waiting.c.namespace, waiting.c.local_queue
    counts = select(*columns, literal(State.PENDING.value), waiting.c.number).union_all(holding(*where))
    return counts, held(admissions.c.namespace, admissions.c.local_queue)


def pending(*where: ColumnElement[str]) -> Select[Any]:
    """How many wait, by LocalQueue. Nearly all that is unfinished waits, and an index has all that this needs."""
    waits = workloads.c.state == State.PENDING
    columns: list[Any] = [*where, func.count().label("number")]
    return select(*columns).where(UNFINISHED, waits).group_by(*where)


def holding(*where: ColumnElement[str]) -> Select[Any]:
    """How many hold quota, by state."""
    holds = workloads.c.state != State.PENDING
    columns: list[Any] = [*where, _STATE, func.count()]
    return select(*columns).where(UNFINISHED, holds).group_by(*where, _STATE)


def unfinished_counts(connection: Connection) -> list[UnfinishedCount]:
    """All unfinished workloads, counted by where and why they are in their state."""
    columns, door = workloads.c, queue_objects.c
    place = columns.namespace, columns.local_queue, columns.cluster_queue
    kind = columns.state, columns.checks_pending, columns.reason
    counted = select(*place, *kind, func.count().label("number")).where(UNFINISHED).group_by(*place, *kind).subquery()
    leads_there = and_(
        door.kind == LocalQueue.kind, door.namespace == counted.c.namespace, door.name == counted.c.local_queue
    )
    statement = select(counted, door.cluster_queue.label("leads_to")).select_from(
        counted.outerjoin(queue_objects, leads_there)
    )
    return [
        UnfinishedCount(
            row.namespace,
            row.local_queue,
            (row.leads_to or "") if row.state == State.PENDING else row.cluster_queue,
            State(row.state),
            bool(row.checks_pending),
            row.reason,
            int(row.number),
        )
        for row in connection.execute(statement)
    ]


def held_amounts(connection: Connection) -> list[HeldAmount]:
    """The amounts that are held, summed by queue, flavor and resource."""
    columns = admissions.c
    place = columns.namespace, columns.local_queue, columns.cluster_queue, columns.flavor, columns.resource
    checked = workloads.c.checks_pending
    halves = func.sum(columns.amount // _HALF).label("high"), func.sum(columns.amount % _HALF).label("low")
    statement = (
        select(*place, checked, *halves)
        .join(workloads, workloads.c.uid == columns.workload_uid)
        .where(columns.to_at.is_(None), columns.resource != "")
        .group_by(*place, checked)
    )
    return [
        HeldAmount(*row[:5], bool(row[5]), min(int(row.high) * _HALF + int(row.low), UNLIMITED))
        for row in connection.execute(statement)
    ]


def held(*where: ColumnElement[str]) -> Select[Any]:
    """The amounts that are held, in halves."""
    columns: list[Any] = [*where, admissions.c.flavor, admissions.c.resource]
    halves = func.sum(admissions.c.amount // _HALF), func.sum(admissions.c.amount % _HALF)
    holds = admissions.c.to_at.is_(None), admissions.c.resource != ""
    return select(*columns, *halves).where(*holds).group_by(*columns)


def _numbers(
    connection: Connection, counts: CompoundSelect[Any], amounts: Select[Any]
) -> dict[tuple[str, ...], QueueStatus]:
    states: dict[tuple[str, ...], dict[str, int]] = {}
    for *key, state, count in connection.execute(counts).all():
        states.setdefault(tuple(key), {})[state] = int(count)
    return summed(states, connection.execute(amounts).all())


def summed(
    states: dict[tuple[str, ...], dict[str, int]], amounts: Iterable[Sequence[Any]]
) -> dict[tuple[str, ...], QueueStatus]:
    """The numbers of each place from how many are there by state, and from rows of `held`."""
    usage: dict[tuple[str, ...], dict[tuple[str, str], int]] = {}
    for *key, flavor, resource, high, low in amounts:
        usage.setdefault(tuple(key), {})[flavor, resource] = min(int(high) * _HALF + int(low), UNLIMITED)
    return {key: _status(states.get(key, {}), usage.get(key, {})) for key in {**states, **usage}}


def _status(states: dict[str, int], usage: dict[tuple[str, str], int]) -> QueueStatus:
    admitted = states.get(State.ADMITTED, 0)
    return QueueStatus(
        pending=states.get(State.PENDING, 0),
        reserving=admitted + states.get(State.EVICTING, 0) + states.get(_CHECKED, 0),
        admitted=admitted,
        usage=usage,
    )
