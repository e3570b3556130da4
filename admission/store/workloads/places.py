"""Places in the order of a ClusterQueue's pending workloads, set by an admin's order.

A place is a rank (priority, queueing time) that replaces the workload's own in the sort order. An admin of one
namespace only can let its workloads exchange the ranks that they have, which delays no workload of other namespaces.
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
from admission.store.workloads.loading import UNFINISHED

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, RowMapping, Select
    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.store.records import Document

_GAP: Final = 1.0
"""Seconds by which a new place is ahead of the next workload, if there is room. Halving it leaves some twenty more."""
_queue = func.coalesce(workload_orders.c.local_queue, workloads.c.local_queue)
_priority = func.coalesce(workload_orders.c.rank_priority, workload_orders.c.priority, workloads.c.priority)
_since = func.coalesce(workload_orders.c.rank_at, workloads.c.counts_from, workloads.c.created_at)


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """A place among a ClusterQueue's pending workloads: directly before one of them, or before all."""

    before: str = ""
    """Uid of the workload that follows; empty: before all."""
    name: str = ""
    """Name of that workload in messages; empty: its uid is used."""


MAX_EXCHANGED: Final = 1000
"""Maximum number of workloads whose places one order exchanges: their rows are all written in its transaction."""


class OrderChange(NamedTuple):
    """A workload's row, with its row of `workload_orders` before and after a change."""

    workload: RowMapping
    before: Document
    after: Document


async def order_row(connection: AsyncConnection, uid: str) -> Document:
    """Return a workload's row of `workload_orders`, or one without overrides."""
    statement = select(workload_orders).where(workload_orders.c.workload_uid == uid)
    row = (await connection.execute(statement)).mappings().one_or_none()
    if row is not None:
        return dict(row)
    nothing: Document = {column.name: None for column in workload_orders.c}
    return nothing | {"workload_uid": uid, "held": False, "author": "", "reason": "", "revision": 0}


def check_place(workload: RowMapping, place: QueuePlace, *, is_moved: bool) -> None:
    """Raise InvalidObject for a place before the workload itself, or of an admitted workload that is not moved."""
    subject = f'Workload "{workload["name"]}"'
    if place.before == workload["uid"]:
        raise InvalidObject([("spec.order.before", "is the workload itself; name another one")], subject=subject)
    if workload["state"] == State.ADMITTED and not is_moved:
        message = "it is admitted and does not wait: only what waits has a place in the queue"
        raise InvalidObject([("spec.order", message)], subject=subject)


def _title(place: QueuePlace) -> str:
    return f'workload "{place.name}"' if place.name else f"the workload with the uid {place.before}"


async def rank_at(
    connection: AsyncConnection, workload: RowMapping, queue: str | None, place: QueuePlace
) -> tuple[int, float]:
    """Return the rank (priority, since) that gives a workload this place in its ClusterQueue. Raises InvalidObject.

    `queue`: the LocalQueue that it is moved to; None: its present one.
    """
    if queue is None:
        queue = (await order_row(connection, workload["uid"]))["local_queue"] or workload["local_queue"]
    cluster_queue = await cluster_queue_of(connection, workload["namespace"], queue)
    waiting = _pending_in(cluster_queue, _priority, _since).where(workloads.c.uid != workload["uid"]).limit(1)
    if not place.before:
        first = (await connection.execute(waiting.order_by(_priority.desc(), _since))).one_or_none()
        return (workload["priority"], workload["created_at"]) if first is None else (first[0], first[1] - _GAP)
    other = (await connection.execute(waiting.where(workloads.c.uid == place.before))).one_or_none()
    if other is None:
        message = f"{_title(place)} does not wait in the same ClusterQueue; name one that does"
        raise InvalidObject([("spec.order.before", message)], subject=f'Workload "{workload["name"]}"')
    priority, since = other
    ahead = waiting.where(priority == _priority, since > _since).order_by(_since.desc())
    previous = (await connection.execute(ahead)).one_or_none()
    return priority, since - _GAP if previous is None else max((previous[1] + since) / 2, since - _GAP)


def _pending_in(cluster_queue: str | None, *columns: ColumnElement[Any]) -> Select[Any]:
    """Return the query of a ClusterQueue's pending workloads, with orders (moves to other LocalQueues) applied."""
    local_queue = and_(
        queue_objects.c.kind == LocalQueue.kind,
        queue_objects.c.namespace == workloads.c.namespace,
        queue_objects.c.name == _queue,
        queue_objects.c.cluster_queue == cluster_queue,
    )
    found = select(*columns).select_from(workloads.outerjoin(workload_orders).join(queue_objects, local_queue))
    return found.where(UNFINISHED, workloads.c.state == State.PENDING)


async def cluster_queue_of(connection: AsyncConnection, namespace: str, queue: str) -> str | None:
    """Return the ClusterQueue of a LocalQueue; None if the LocalQueue does not exist."""
    columns = queue_objects.c
    statement = select(columns.cluster_queue).where(
        columns.kind == LocalQueue.kind, columns.namespace == namespace, columns.name == queue
    )
    name: str | None = (await connection.execute(statement)).scalar_one_or_none()
    return name


async def exchange_places(
    connection: AsyncConnection, moved: OrderChange, place: QueuePlace, cluster_queue: str | None
) -> list[OrderChange]:
    """Return the order changes that move a workload by exchanging ranks within its namespace. Raises InvalidObject.

    The namespace's pending workloads in the ClusterQueue are sorted in the new order, and get the present ranks in
    turn. The first change is that of the moved workload.
    """
    columns = [*workloads.c, _priority.label("slot_priority"), _since.label("slot_since")]
    statement = _pending_in(cluster_queue, *columns).where(workloads.c.namespace == moved.workload["namespace"])
    statement = statement.order_by(_priority.desc(), _since, workloads.c.uid).limit(MAX_EXCHANGED)
    rows = (await connection.execute(statement)).mappings().all()
    by_uid = {row["uid"]: row for row in rows}
    uid, target = moved.workload["uid"], place.before or (rows[0]["uid"] if rows else "")
    for needed, title in ((uid, "it"), (target, _title(place))):
        if needed not in by_uid:
            message = (
                f"{title} is not among the first {MAX_EXCHANGED} workloads of namespace "
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
            written[one] = OrderChange(by_uid[one], before, {**before})
        written[one].after.update(rank_priority=row["slot_priority"], rank_at=row["slot_since"])
    return [*written.values()]


async def check_overtakes_no_others(connection: AsyncConnection, one: OrderChange) -> None:
    """Raise InvalidObject if the change lets a workload overtake one of another namespace."""
    workload, namespace = one.workload, one.workload["namespace"]
    queues = [
        await cluster_queue_of(connection, namespace, row["local_queue"] or workload["local_queue"])
        for row in (one.before, one.after)
    ]
    # A rank from an order counts in the ClusterQueue for which it was given only.
    rank_before = _rank_of(workload, one.before if queues[0] == queues[1] else {})
    rank_after = _rank_of(workload, one.after)
    overtaken = _pending_in(queues[1], workloads.c.uid).where(
        workloads.c.namespace != namespace,
        or_(_priority > rank_before[0], and_(_priority == rank_before[0], _since < literal(rank_before[1], Instant()))),
        or_(_priority < rank_after[0], and_(_priority == rank_after[0], _since > literal(rank_after[1], Instant()))),
    )
    if (await connection.execute(overtaken.limit(1))).one_or_none() is not None:
        message = (
            "would come before workloads of other namespaces in its ClusterQueue, which requires the right to patch "
            "workloads in all namespaces; ask an admin"
        )
        raise InvalidObject([("spec", message)], subject=f'Workload "{workload["name"]}"')


def _rank_of(workload: RowMapping, order: Document) -> tuple[int, float]:
    """Return the rank (priority, since) by which a workload with this order row is sorted."""

    def first(*values: float | None) -> float:
        return next(value for value in values if value is not None)

    priority = first(order.get("rank_priority"), order.get("priority"), workload["priority"])
    return int(priority), first(order.get("rank_at"), workload["counts_from"], workload["created_at"])
