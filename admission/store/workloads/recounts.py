"""Incremental status counts: only queues with writes since the last count are counted again.

Open pages of the dashboard request these counts every second, and with a thousand queues a full count takes ten times
as long. Counted again are the queues of changed workloads, and those of which these have held quota. A full count is
needed when a LocalQueue was changed, or one that a changed workload names has no ClusterQueue. It is also needed when
the pending counts do not add up to the number of pending workloads, because the queue in which a workload was pending
before its label was changed is stored nowhere.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from sqlalchemy import bindparam, func, or_, select, union

from admission.model.queues import LocalQueue
from admission.store.database.tables import admissions, queue_object_versions, queue_objects, workloads
from admission.store.records import QueueStatus, State
from admission.store.workloads import queue_counts
from admission.store.workloads.loading import UNFINISHED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlalchemy import ColumnElement, CompoundSelect, Connection, Select

K = TypeVar("K")
_MAX_PLACES: Final = 200
"""Number of changed (namespace, LocalQueue, ClusterQueue) above which all queues are counted."""


class _ChangedQueues(NamedTuple):
    """Queues whose counts may have changed. LocalQueues are (namespace, name)."""

    local_queues: set[tuple[str, str]]
    cluster_queues: set[str]


def cluster_queues(connection: Connection, known: dict[str, QueueStatus], since: int) -> dict[str, QueueStatus] | None:
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


def local_queues(
    connection: Connection, known: dict[tuple[str, str], QueueStatus], since: int
) -> dict[tuple[str, str], QueueStatus] | None:
    """Return counts of LocalQueues by (namespace, name), like `cluster_queues`."""
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
    pending: int = connection.execute(_all_pending()).scalar_one()
    return pending - sum(each.pending for each in numbers.values())


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
    holding, held = statements
    states: dict[tuple[str, ...], dict[str, int]] = {}
    for namespace, local_queue, count in connection.execute(_pending(), {"namespaces": _namespaces(counted_for)}):
        if (key := counted_for.get((namespace, local_queue))) is not None:
            counts = states.setdefault(key, {})
            counts[State.PENDING] = counts.get(State.PENDING, 0) + count
    for *place, state, count in connection.execute(holding, where):
        states.setdefault(tuple(place), {})[state] = count
    return queue_counts.summed(states, connection.execute(held, where).all())


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
    return queue_counts.pending(columns.namespace, columns.local_queue).where(_in(columns.namespace, "namespaces"))


@cache
def _of_cluster_queues() -> tuple[Select[Any], Select[Any]]:
    # Few of the unfinished workloads hold quota: they are found faster by open ledger rows than among the workloads.
    open_rows = select(admissions.c.workload_uid).where(
        admissions.c.to_at.is_(None), _in(admissions.c.cluster_queue, "names")
    )
    holding = queue_counts.holding(workloads.c.cluster_queue).where(
        workloads.c.uid.in_(open_rows), _in(workloads.c.cluster_queue, "names")
    )
    held = queue_counts.held(admissions.c.cluster_queue).where(_in(admissions.c.cluster_queue, "names"))
    return holding, held


@cache
def _of_local_queues() -> tuple[Select[Any], Select[Any]]:
    holding, held = (
        of(table.c.namespace, table.c.local_queue).where(_in(table.c.namespace, "namespaces"))
        for of, table in ((queue_counts.holding, workloads), (queue_counts.held, admissions))
    )
    return holding, held


def _in(column: ColumnElement[str], name: str) -> ColumnElement[bool]:
    return column.in_(bindparam(name, expanding=True))
