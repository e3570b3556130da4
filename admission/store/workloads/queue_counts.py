"""Status counts of queues, summed up by the database: pending workloads, workloads with quota, quota in use.

Open pages of the dashboard request these counts every second, and with a thousand queues a full count takes ten times
as long as one of the queues with writes since the last count. Counted again are the queues of changed workloads, and
those of which these have held quota. A full count is needed when a LocalQueue was changed, or one that a changed
workload names has no ClusterQueue. It is also needed when the pending counts do not add up to the number of pending
workloads, because the queue in which a workload was pending before its label was changed is stored nowhere.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from sqlalchemy import and_, bindparam, case, distinct, func, literal, or_, select, union

from admission.model.quantity import UNLIMITED
from admission.model.queues import LocalQueue
from admission.store.database.tables import admissions, queue_object_versions, queue_objects, workloads
from admission.store.records import ClusterNumbers, HeldAmount, QueueStatus, State, UnfinishedCount
from admission.store.workloads.loading import UNFINISHED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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
    """Return the query for quota in use by `where`, flavor and resource.

    High and low bits (`_HALF`) are summed up apart, as a sum may exceed the integers of the database.
    """
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


K = TypeVar("K")
_MAX_PLACES: Final = 200
"""Number of changed (namespace, LocalQueue, ClusterQueue) above which all queues are counted."""


class _ChangedQueues(NamedTuple):
    """Queues whose counts may have changed. LocalQueues are (namespace, name)."""

    local_queues: set[tuple[str, str]]
    cluster_queues: set[str]


def recounted_cluster_queues(
    connection: Connection, known: dict[str, QueueStatus], since: int
) -> dict[str, QueueStatus] | None:
    """Return the counts `known` of revision `since`, brought up to date; None: a full count is needed."""
    changed = _changed_queues(connection, since)
    if changed is None:
        return None
    targets_of = _targets_of(connection, changed)
    if changed.local_queues - targets_of.keys():
        return None
    targets = changed.cluster_queues | set(targets_of.values())
    if targets != changed.cluster_queues:
        targets_of |= _targets_of(connection, _ChangedQueues(set(), targets))
    counted_for = {queue: (name,) for queue, name in targets_of.items() if name in targets}
    found = _counted(connection, counted_for, _of_cluster_queues(), {"names": sorted(targets)})
    return _merged(known, targets, {name: each for (name,), each in found.items()})


def recounted_local_queues(
    connection: Connection, known: dict[tuple[str, str], QueueStatus], since: int
) -> dict[tuple[str, str], QueueStatus] | None:
    """Return counts of LocalQueues by (namespace, name), like `recounted_cluster_queues`."""
    changed = _changed_queues(connection, since)
    if changed is None:
        return None
    counted_for = {queue: queue for queue in changed.local_queues}
    where = {"namespaces": _namespaces(changed.local_queues)}
    found = _counted(connection, counted_for, _of_local_queues(), where)
    return _merged(known, changed.local_queues, {(space, name): each for (space, name), each in found.items()})


def uncounted(connection: Connection, numbers: Mapping[K, QueueStatus]) -> int:
    """Return the number of pending workloads that `numbers` do not include: in LocalQueues without a ClusterQueue.

    If the numbers are right, it changes only with writes of those workloads.
    """
    all_pending: int = connection.execute(_all_pending()).scalar_one()
    return all_pending - sum(each.pending for each in numbers.values())


def _counted(
    connection: Connection,
    counted_for: Mapping[tuple[str, str], tuple[str, ...]],
    statements: tuple[Select[Any], Select[Any]],
    where: dict[str, list[str]],
) -> dict[tuple[str, ...], QueueStatus]:
    """Return the counts by the keys in `counted_for`, and possibly incomplete ones by other keys.

    `counted_for`: the key under which the pending workloads of each LocalQueue are counted. `statements`: the queries
    of workloads with quota, and of quota in use; `where`: their parameters.
    """
    with_quota, in_use = statements
    states: dict[tuple[str, ...], dict[str, int]] = {}
    for namespace, local_queue, count in connection.execute(_pending(), {"namespaces": _namespaces(counted_for)}):
        if (key := counted_for.get((namespace, local_queue))) is not None:
            counts = states.setdefault(key, {})
            counts[State.PENDING] = counts.get(State.PENDING, 0) + count
    for *place, state, count in connection.execute(with_quota, where):
        states.setdefault(tuple(place), {})[state] = count
    return summed(states, connection.execute(in_use, where).all())


def _merged(known: dict[K, QueueStatus], keys: Iterable[K], found: dict[K, QueueStatus]) -> dict[K, QueueStatus]:
    merged = dict(known)
    for key in keys:
        if (status := found.get(key)) is None:
            merged.pop(key, None)
        else:
            merged[key] = status
    return merged


def _changed_queues(connection: Connection, since: int) -> _ChangedQueues | None:
    """Return the queues of workloads written after `since`; None: too many, or a LocalQueue has changed."""
    if connection.execute(_changed_local_queues(), {"since": since}).first() is not None:
        return None
    rows = connection.execute(_places(), {"since": since}).all()
    if len(rows) > _MAX_PLACES:
        return None
    local = {(row.namespace, row.local_queue) for row in rows}
    return _ChangedQueues(local, {row.cluster_queue for row in rows if row.cluster_queue})


def _targets_of(connection: Connection, changed: _ChangedQueues) -> dict[tuple[str, str], str]:
    """Return the ClusterQueue of each changed LocalQueue, and of each LocalQueue of a changed ClusterQueue."""
    where = {"namespaces": _namespaces(changed.local_queues), "names": sorted(changed.cluster_queues)}
    rows = connection.execute(_local_queues(), where)
    return {
        (namespace, name): target
        for namespace, name, target in rows
        if target and ((namespace, name) in changed.local_queues or target in changed.cluster_queues)
    }


def _namespaces(keys: Iterable[tuple[str, str]]) -> list[str]:
    return sorted({namespace for namespace, _ in keys})


@cache
def _places() -> CompoundSelect[Any]:
    changed, held = workloads.c, admissions.c
    is_new = changed.revision > bindparam("since")
    now = select(changed.namespace, changed.local_queue, changed.cluster_queue).where(is_new)
    before = (
        select(held.namespace, held.local_queue, held.cluster_queue)
        .select_from(workloads.join(admissions, held.workload_uid == changed.uid))
        .where(is_new)
    )
    return union(now, before).limit(_MAX_PLACES + 1)


@cache
def _changed_local_queues() -> Select[Any]:
    versions = queue_object_versions.c
    is_new = versions.revision > bindparam("since")
    return select(versions.id).where(is_new, versions.kind == LocalQueue.kind).limit(1)


@cache
def _local_queues() -> Select[Any]:
    queue = queue_objects.c
    matches = or_(_in(queue.namespace, "namespaces"), _in(queue.cluster_queue, "names"))
    return select(queue.namespace, queue.name, queue.cluster_queue).where(queue.kind == LocalQueue.kind, matches)


@cache
def _all_pending() -> Select[Any]:
    return select(func.count()).select_from(workloads).where(UNFINISHED, workloads.c.state == State.PENDING)


@cache
def _pending() -> Select[Any]:
    columns = workloads.c
    return pending(columns.namespace, columns.local_queue).where(_in(columns.namespace, "namespaces"))


@cache
def _of_cluster_queues() -> tuple[Select[Any], Select[Any]]:
    # Few of the unfinished workloads hold quota: they are found faster by open ledger rows than among the workloads.
    open_rows = select(admissions.c.workload_uid).where(
        admissions.c.to_at.is_(None), _in(admissions.c.cluster_queue, "names")
    )
    with_quota = holding(workloads.c.cluster_queue).where(
        workloads.c.uid.in_(open_rows), _in(workloads.c.cluster_queue, "names")
    )
    in_use = held(admissions.c.cluster_queue).where(_in(admissions.c.cluster_queue, "names"))
    return with_quota, in_use


@cache
def _of_local_queues() -> tuple[Select[Any], Select[Any]]:
    with_quota, in_use = (
        of(table.c.namespace, table.c.local_queue).where(_in(table.c.namespace, "namespaces"))
        for of, table in ((holding, workloads), (held, admissions))
    )
    return with_quota, in_use


def _in(column: ColumnElement[str], name: str) -> ColumnElement[bool]:
    return column.in_(bindparam(name, expanding=True))
