"""Places in the line of a ClusterQueue: what order among those that wait an admin's order stands for.

A place is a rank (priority, since) by which a workload stands in the line instead of by its own. Who may order within
one namespace only lets its workloads exchange the ranks that they have, so that nobody else's waits longer for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import and_, func, literal, or_, select

from admission.model.errors import InvalidObject
from admission.model.queues import LocalQueue
from admission.store.database.instant import Instant
from admission.store.database.tables import queue_objects, workload_orders, workloads
from admission.store.records import State

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, RowMapping, Select
    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.store.records import Document

_ROOM: Final = 1.0
"""Seconds between a place and the one behind it, if nobody else stands there: room for some twenty more."""
_queue = func.coalesce(workload_orders.c.local_queue, workloads.c.local_queue)
_priority = func.coalesce(workload_orders.c.rank_priority, workload_orders.c.priority, workloads.c.priority)
_since = func.coalesce(workload_orders.c.rank_at, workloads.c.counts_from, workloads.c.created_at)


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the order of a ClusterQueue: directly before a workload, or before all that wait there."""

    before: str = ""
    """Its uid; empty: before all."""
    name: str = ""
    """What a message calls it; empty: by its uid."""


MOST_EXCHANGED: Final = 1000
"""Workloads of a namespace whose places one order exchanges, at most: all are written in its transaction."""


class Written(NamedTuple):
    """A workload with the row of its orders, before and after."""

    workload: RowMapping
    before: Document
    after: Document


async def order_row(connection: AsyncConnection, uid: str) -> Document:
    statement = select(workload_orders).where(workload_orders.c.workload_uid == uid)
    row = (await connection.execute(statement)).mappings().one_or_none()
    if row is not None:
        return dict(row)
    nothing: Document = {column.name: None for column in workload_orders.c}
    return nothing | {"workload_uid": uid, "held": False, "author": "", "reason": "", "revision": 0}


def check_place(workload: RowMapping, place: Place, *, is_moved: bool) -> None:
    """Raise InvalidObject for a place that means nothing: before itself, or for what runs and stays where it is."""
    subject = f'Workload "{workload["name"]}"'
    if place.before == workload["uid"]:
        raise InvalidObject([("spec.order.before", "is the workload itself; name another one")], subject=subject)
    if workload["state"] == State.ADMITTED and not is_moved:
        message = "it is admitted and does not wait: only what waits has a place in the line"
        raise InvalidObject([("spec.order", message)], subject=subject)


def _title(place: Place) -> str:
    return f'workload "{place.name}"' if place.name else f"the workload with the uid {place.before}"


async def rank_at(
    connection: AsyncConnection, workload: RowMapping, queue: str | None, place: Place
) -> tuple[int, float]:
    """(priority, since) with which a workload stands at a place among those that wait in its ClusterQueue."""
    if queue is None:
        queue = (await order_row(connection, workload["uid"]))["local_queue"] or workload["local_queue"]
    cluster_queue = await cluster_queue_of(connection, workload["namespace"], queue)
    waiting = _waiting(cluster_queue, _priority, _since).where(workloads.c.uid != workload["uid"]).limit(1)
    if not place.before:
        first = (await connection.execute(waiting.order_by(_priority.desc(), _since))).one_or_none()
        return (workload["priority"], workload["created_at"]) if first is None else (first[0], first[1] - _ROOM)
    other = (await connection.execute(waiting.where(workloads.c.uid == place.before))).one_or_none()
    if other is None:
        message = f"{_title(place)} does not wait in the same ClusterQueue; name one that does"
        raise InvalidObject([("spec.order.before", message)], subject=f'Workload "{workload["name"]}"')
    priority, since = other
    ahead = waiting.where(priority == _priority, since > _since).order_by(_since.desc())
    previous = (await connection.execute(ahead)).one_or_none()
    return priority, since - _ROOM if previous is None else max((previous[1] + since) / 2, since - _ROOM)


def _waiting(cluster_queue: str | None, *columns: ColumnElement[Any]) -> Select[Any]:
    """The workloads that wait in a ClusterQueue, by whatever orders they have."""
    door = and_(
        queue_objects.c.kind == LocalQueue.kind,
        queue_objects.c.namespace == workloads.c.namespace,
        queue_objects.c.name == _queue,
        queue_objects.c.cluster_queue == cluster_queue,
    )
    found = select(*columns).select_from(workloads.outerjoin(workload_orders).join(queue_objects, door))
    return found.where(workloads.c.state == State.PENDING)


async def cluster_queue_of(connection: AsyncConnection, namespace: str, queue: str) -> str | None:
    columns = queue_objects.c
    statement = select(columns.cluster_queue).where(
        columns.kind == LocalQueue.kind, columns.namespace == namespace, columns.name == queue
    )
    name: str | None = (await connection.execute(statement)).scalar_one_or_none()
    return name


async def exchanged(
    connection: AsyncConnection, moved: Written, place: Place, cluster_queue: str | None
) -> list[Written]:
    """The workloads of a namespace that wait in a ClusterQueue, in a new order of the places that they have."""
    columns = [*workloads.c, _priority.label("slot_priority"), _since.label("slot_since")]
    line = _waiting(cluster_queue, *columns).where(workloads.c.namespace == moved.workload["namespace"])
    line = line.order_by(_priority.desc(), _since, workloads.c.uid).limit(MOST_EXCHANGED)
    rows = (await connection.execute(line)).mappings().all()
    by_uid = {row["uid"]: row for row in rows}
    uid, target = moved.workload["uid"], place.before or (rows[0]["uid"] if rows else "")
    for wanted, title in ((uid, "it"), (target, _title(place))):
        if wanted not in by_uid:
            message = (
                f"{title} is not among the first {MOST_EXCHANGED} workloads of namespace "
                f"{moved.workload['namespace']} that wait in the ClusterQueue"
            )
            raise InvalidObject([("spec.order", message)], subject=f'Workload "{moved.workload["name"]}"')
    order = [one for one in by_uid if one != uid]
    order.insert(order.index(target) if target != uid else 0, uid)
    written = {uid: moved}
    for row, one in zip(rows, order, strict=True):
        if row["uid"] == one:
            continue
        if one != uid:
            before = await order_row(connection, one)
            written[one] = Written(by_uid[one], before, {**before})
        written[one].after.update(rank_priority=row["slot_priority"], rank_at=row["slot_since"])
    return [*written.values()]


async def check_passes_nobody(connection: AsyncConnection, one: Written) -> None:
    """Raise InvalidObject if it comes before a workload of another namespace that it stands behind now."""
    workload, namespace = one.workload, one.workload["namespace"]
    queues = [
        await cluster_queue_of(connection, namespace, row["local_queue"] or workload["local_queue"])
        for row in (one.before, one.after)
    ]
    # What it was given in one ClusterQueue is no claim to a place in another one.
    stands = _rank_of(workload, one.before if queues[0] == queues[1] else {})
    comes = _rank_of(workload, one.after)
    passed = _waiting(queues[1], workloads.c.uid).where(
        workloads.c.namespace != namespace,
        or_(_priority > stands[0], and_(_priority == stands[0], _since < literal(stands[1], Instant()))),
        or_(_priority < comes[0], and_(_priority == comes[0], _since > literal(comes[1], Instant()))),
    )
    if (await connection.execute(passed.limit(1))).one_or_none() is not None:
        message = (
            "would come before workloads of other namespaces in its ClusterQueue, which takes the right to patch "
            "workloads in all namespaces; ask an admin"
        )
        raise InvalidObject([("spec", message)], subject=f'Workload "{workload["name"]}"')


def _rank_of(workload: RowMapping, order: Document) -> tuple[int, float]:
    """(priority, since) by which a workload stands in the line under an order."""

    def first(*values: float | None) -> float:
        return next(value for value in values if value is not None)

    priority = first(order.get("rank_priority"), order.get("priority"), workload["priority"])
    return int(priority), first(order.get("rank_at"), workload["counts_from"], workload["created_at"])
