"""The numbers of those queues alone that something was written of: what open pages ask for each second.

To count all takes ten times as long where there are a thousand queues. Counted anew are the queues in which changed
workloads are, and those of which they have held quota; all, where a LocalQueue leads elsewhere, or one that a changed
workload names leads nowhere. Where a workload waited before its label was changed is written nowhere: all are counted,
too, when the numbers do not add up to what waits.
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
_MOST: Final = 200
"""Of more places all are counted."""


class _Touched(NamedTuple):
    local_queues: set[tuple[str, str]]
    cluster_queues: set[str]


def cluster_queues(connection: Connection, known: dict[str, QueueStatus], since: int) -> dict[str, QueueStatus] | None:
    """`known`, which was counted at the revision `since`, brought up to date; None: all are to be counted."""
    touched = _touched(connection, since)
    if touched is None:
        return None
    doors = _doors(connection, touched)
    if touched.local_queues - doors.keys():
        return None
    targets = touched.cluster_queues | set(doors.values())
    if targets != touched.cluster_queues:
        doors |= _doors(connection, _Touched(set(), targets))
    counted_for = {door: (name,) for door, name in doors.items() if name in targets}
    found = _counted(connection, counted_for, _of_cluster_queues(), {"names": sorted(targets)})
    return _merged(known, targets, {name: each for (name,), each in found.items()})


def local_queues(
    connection: Connection, known: dict[tuple[str, str], QueueStatus], since: int
) -> dict[tuple[str, str], QueueStatus] | None:
    """As `cluster_queues`, of LocalQueues by namespace and name."""
    touched = _touched(connection, since)
    if touched is None:
        return None
    counted_for = {door: door for door in touched.local_queues}
    where = {"namespaces": _namespaces(touched.local_queues)}
    found = _counted(connection, counted_for, _of_local_queues(), where)
    return _merged(known, touched.local_queues, {(space, name): each for (space, name), each in found.items()})


def uncounted(connection: Connection, numbers: Mapping[K, QueueStatus]) -> int:
    """How many workloads wait that `numbers` do not count: in LocalQueues that lead nowhere.

    As long as nothing is written of those, it stays the same if the numbers are right.
    """
    waiting: int = connection.execute(_all_pending()).scalar_one()
    return waiting - sum(each.pending for each in numbers.values())


def _counted(
    connection: Connection,
    counted_for: Mapping[tuple[str, str], tuple[str, ...]],
    what: tuple[Select[Any], Select[Any]],
    where: dict[str, list[str]],
) -> dict[tuple[str, ...], QueueStatus]:
    """The numbers of what the LocalQueues in `counted_for` count for, and perhaps of others, which are incomplete."""
    holding, held = what
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


def _touched(connection: Connection, since: int) -> _Touched | None:
    """Where workloads are that were written after `since`; None: they are too many, or were led elsewhere."""
    if connection.execute(_rerouted(), {"since": since}).first() is not None:
        return None
    rows = connection.execute(_places(), {"since": since}).all()
    if len(rows) > _MOST:
        return None
    local = {(row.namespace, row.local_queue) for row in rows}
    return _Touched(local, {row.cluster_queue for row in rows if row.cluster_queue})


def _doors(connection: Connection, touched: _Touched) -> dict[tuple[str, str], str]:
    """The ClusterQueue that each LocalQueue leads to: of those touched, and of all that lead to one touched."""
    where = {"namespaces": _namespaces(touched.local_queues), "names": sorted(touched.cluster_queues)}
    rows = connection.execute(_leading(), where)
    return {
        (namespace, name): target
        for namespace, name, target in rows
        if target and ((namespace, name) in touched.local_queues or target in touched.cluster_queues)
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
    return union(now, before).limit(_MOST + 1)


@cache
def _rerouted() -> Select[Any]:
    versions = queue_object_versions.c
    is_new = versions.revision > bindparam("since")
    return select(versions.id).where(is_new, versions.kind == LocalQueue.kind).limit(1)


@cache
def _leading() -> Select[Any]:
    door = queue_objects.c
    is_meant = or_(_in(door.namespace, "namespaces"), _in(door.cluster_queue, "names"))
    return select(door.namespace, door.name, door.cluster_queue).where(door.kind == LocalQueue.kind, is_meant)


@cache
def _all_pending() -> Select[Any]:
    return select(func.count()).select_from(workloads).where(UNFINISHED, workloads.c.state == State.PENDING)


@cache
def _pending() -> Select[Any]:
    columns = workloads.c
    return queue_counts.pending(columns.namespace, columns.local_queue).where(_in(columns.namespace, "namespaces"))


@cache
def _of_cluster_queues() -> tuple[Select[Any], Select[Any]]:
    # Of all that is unfinished little holds quota: the ledger leads there sooner than the workloads.
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
