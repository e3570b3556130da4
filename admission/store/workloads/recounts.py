"""The numbers of those queues alone that something was written of: what open pages ask for each second.

To count all takes four times as long where there are a thousand queues. Counted anew are the queues in which changed
workloads are, and those of which they have held quota; all, where an admin has moved one of them, or a LocalQueue leads
elsewhere. A workload whose own label has changed while it waited still counts in the queue that it was in, until all
are counted.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from sqlalchemy import bindparam, or_, select, union

from admission.model.queues import LocalQueue
from admission.store.database.tables import admissions, queue_object_versions, queue_objects, workload_orders, workloads
from admission.store.records import QueueStatus, State
from admission.store.workloads import queue_counts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import CompoundSelect, Connection, Select

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
    targets = touched.cluster_queues | set(doors.values())
    names = sorted(targets)
    doors |= _doors(connection, _Touched(set(), targets))
    states: dict[tuple[str, ...], dict[str, int]] = {}
    for namespace, local_queue, count in connection.execute(_pending(), {"namespaces": _namespaces(doors)}):
        name = doors.get((namespace, local_queue))
        if name is not None and name in targets:
            counts = states.setdefault((name,), {})
            counts[State.PENDING] = counts.get(State.PENDING, 0) + count
    for name, state, count in connection.execute(_holding_of_cluster_queues(), {"names": names}):
        states.setdefault((name,), {})[state] = count
    usage = connection.execute(_held_of_cluster_queues(), {"names": names}).all()
    return _merged(known, names, {name: each for (name,), each in queue_counts.summed(states, usage).items()})


def local_queues(
    connection: Connection, known: dict[tuple[str, str], QueueStatus], since: int
) -> dict[tuple[str, str], QueueStatus] | None:
    """As `cluster_queues`, of LocalQueues by namespace and name."""
    touched = _touched(connection, since)
    if touched is None:
        return None
    where = {"namespaces": _namespaces(touched.local_queues)}
    states: dict[tuple[str, ...], dict[str, int]] = {}
    for *key, count in connection.execute(_pending(), where):
        states.setdefault(tuple(key), {})[State.PENDING] = count
    for *key, state, count in connection.execute(_holding_of_local_queues(), where):
        states.setdefault(tuple(key), {})[state] = count
    usage = connection.execute(_held_of_local_queues(), where).all()
    found = {(namespace, name): each for (namespace, name), each in queue_counts.summed(states, usage).items()}
    return _merged(known, touched.local_queues, found)


def _merged(known: dict[K, QueueStatus], keys: Iterable[K], found: dict[K, QueueStatus]) -> dict[K, QueueStatus]:
    merged = dict(known)
    for key in keys:
        if (status := found.get(key)) is None:
            merged.pop(key, None)
        else:
            merged[key] = status
    return merged


def _touched(connection: Connection, since: int) -> _Touched | None:
    """Where workloads are that were written after `since`; None: they are too many, or were moved or led elsewhere."""
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
def _rerouted() -> CompoundSelect[Any]:
    versions, orders = queue_object_versions.c, workload_orders.c
    doors = select(versions.id).where(versions.revision > bindparam("since"), versions.kind == LocalQueue.kind)
    moved = (
        select(orders.revision)
        .select_from(workloads.join(workload_orders, orders.workload_uid == workloads.c.uid))
        .where(workloads.c.revision > bindparam("since"), orders.local_queue.is_not(None))
    )
    return union(doors, moved).limit(1)


@cache
def _leading() -> Select[Any]:
    door = queue_objects.c
    is_meant = or_(door.namespace.in_(_several("namespaces")), door.cluster_queue.in_(_several("names")))
    return select(door.namespace, door.name, door.cluster_queue).where(door.kind == LocalQueue.kind, is_meant)


@cache
def _pending() -> Select[Any]:
    columns = workloads.c
    where = columns.namespace, columns.local_queue
    return queue_counts.pending(*where).where(columns.namespace.in_(_several("namespaces")))


@cache
def _holding_of_cluster_queues() -> Select[Any]:
    name = workloads.c.cluster_queue
    return queue_counts.holding(name).where(name.in_(_several("names")))


@cache
def _holding_of_local_queues() -> Select[Any]:
    columns = workloads.c
    return queue_counts.holding(columns.namespace, columns.local_queue).where(
        columns.namespace.in_(_several("namespaces"))
    )


@cache
def _held_of_cluster_queues() -> Select[Any]:
    name = admissions.c.cluster_queue
    return queue_counts.held(name).where(name.in_(_several("names")))


@cache
def _held_of_local_queues() -> Select[Any]:
    columns = admissions.c
    return queue_counts.held(columns.namespace, columns.local_queue).where(
        columns.namespace.in_(_several("namespaces"))
    )


def _several(name: str) -> Any:
    return bindparam(name, expanding=True)
