"""Status counts of queues, summed up by the database: pending workloads, workloads with quota, quota in use."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, case, distinct, func, literal, select

from admission.model.quantity import UNLIMITED
from admission.model.queues import LocalQueue
from admission.store.database.tables import admissions, queue_objects, workloads
from admission.store.records import ClusterNumbers, HeldAmount, QueueStatus, State, UnfinishedCount
from admission.store.workloads.loading import UNFINISHED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import ColumnElement, CompoundSelect, Connection, Select
    from sqlalchemy.sql.base import ReadOnlyColumnCollection

_HALF = 2**32
"""Amounts are summed up in two halves of 32 bits, because the sum of 64-bit integers may overflow."""
_CHECKED = "checked"
# A workload with admission checks that are not Ready holds quota ("reserving"), but does not count as admitted.
_STATE = case(
    (and_(workloads.c.state == State.ADMITTED, workloads.c.checks_pending), _CHECKED), else_=workloads.c.state
).label("state")


_WITH_WORKLOADS = admissions.join(workloads, workloads.c.uid == admissions.c.workload_uid)


def by_cluster_queue(connection: Connection) -> dict[str, QueueStatus]:
    """Return the status counts of each ClusterQueue; workloads are pending there through any of its LocalQueues."""
    found = _numbers(connection, *_by_cluster_queue())
    return {name: status for (name,), status in found.items()}


def by_local_queue(connection: Connection) -> dict[tuple[str, str], QueueStatus]:
    """Return the status counts of each LocalQueue by (namespace, name)."""
    found = _numbers(connection, *_by_local_queue())
    return {(namespace, name): status for (namespace, name), status in found.items()}


# Statements are built once, because open pages of the dashboard execute them every second.
@cache
def _by_cluster_queue() -> tuple[CompoundSelect[Any], Select[Any]]:
    columns, queue = workloads.c, queue_objects.c
    # A pending workload belongs to the present ClusterQueue of its LocalQueue; one with quota to that of its admission.
    waiting = pending(columns.namespace, columns.local_queue).subquery()
    counts = (
        select(queue.cluster_queue, literal(State.PENDING.value), func.sum(waiting.c.number))
        .select_from(waiting.join(queue_objects, _is_local_queue(waiting.c)))
        .group_by(queue.cluster_queue)
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


def by_cluster(connection: Connection) -> dict[str, ClusterNumbers]:
    """Return the status counts of the clusters in which there are unfinished workloads, by name."""
    own = workloads.c.cluster
    cluster = func.coalesce(admissions.c.cluster, own)
    found: defaultdict[str, ClusterNumbers] = defaultdict(ClusterNumbers)
    waiting, queue = pending(own, workloads.c.namespace, workloads.c.local_queue).subquery(), queue_objects.c
    total = func.sum(waiting.c.number)
    by_queue = select(waiting.c.cluster, queue.cluster_queue, total).select_from(
        waiting.outerjoin(queue_objects, _is_local_queue(waiting.c))
    )
    for name, cluster_queue, number in connection.execute(by_queue.group_by(waiting.c.cluster, queue.cluster_queue)):
        found[name].pending += int(number)
        if cluster_queue:
            found[name].waiting[cluster_queue] = int(number)
    for name, _, number in connection.execute(holding(own)):
        found[name].reserving += int(number)
    # Those that were dispatched count where they run.
    sent = select(own, admissions.c.cluster, func.count(distinct(workloads.c.uid))).select_from(_WITH_WORKLOADS)
    is_sent = admissions.c.to_at.is_(None), admissions.c.cluster.is_not(None)
    for origin, name, number in connection.execute(sent.where(*is_sent).group_by(own, admissions.c.cluster)):
        found[origin].reserving -= int(number)
        found[name].reserving += int(number)
    amounts = held(cluster, admissions.c.cluster_queue).select_from(_WITH_WORKLOADS)
    for name, cluster_queue, flavor, resource, high, low in connection.execute(amounts):
        found[name].usage[cluster_queue, flavor, resource] = min(int(high) * _HALF + int(low), UNLIMITED)
    return dict(found)


def _is_local_queue(counted: ReadOnlyColumnCollection[str, Any]) -> ColumnElement[bool]:
    """Return the condition that a queue object is the LocalQueue of counted workloads."""
    queue = queue_objects.c
    return and_(queue.kind == LocalQueue.kind, queue.namespace == counted.namespace, queue.name == counted.local_queue)


def pending(*where: ColumnElement[str]) -> Select[Any]:
    """Return the query that counts pending workloads by the columns `where`.

    Nearly all unfinished workloads are pending, so it reads the index of unfinished workloads, which covers it.
    """
    is_pending = workloads.c.state == State.PENDING
    columns: list[Any] = [*where, func.count().label("number")]
    return select(*columns).where(UNFINISHED, is_pending).group_by(*where)


def holding(*where: ColumnElement[str]) -> Select[Any]:
    """Return the query that counts workloads with quota by the columns `where` and state."""
    holds = workloads.c.state != State.PENDING
    columns: list[Any] = [*where, _STATE, func.count()]
    return select(*columns).where(UNFINISHED, holds).group_by(*where, _STATE)


def unfinished_counts(connection: Connection) -> list[UnfinishedCount]:
    """Return the counts of all unfinished workloads by queue, state and reason."""
    columns, queue = workloads.c, queue_objects.c
    place = columns.namespace, columns.local_queue, columns.cluster_queue
    kind = columns.state, columns.checks_pending, columns.reason
    counted = select(*place, *kind, func.count().label("number")).where(UNFINISHED).group_by(*place, *kind).subquery()
    statement = select(counted, queue.cluster_queue.label("target")).select_from(
        counted.outerjoin(queue_objects, _is_local_queue(counted.c))
    )
    return [
        UnfinishedCount(
            row.namespace,
            row.local_queue,
            (row.target or "") if row.state == State.PENDING else row.cluster_queue,
            State(row.state),
            bool(row.checks_pending),
            row.reason,
            int(row.number),
        )
        for row in connection.execute(statement)
    ]


def held_amounts(connection: Connection) -> list[HeldAmount]:
    """Return the quota in use, summed up by LocalQueue, ClusterQueue, flavor and resource."""
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
    """Return the query that sums up quota in use, in halves (see `_HALF`), by `where`, flavor and resource."""
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
    """Return the status counts of each queue from its workload counts by state, and from rows of `held`."""
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
