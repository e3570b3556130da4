"""What admins order about workloads and what admission checks say of them: written on any replica, read by the leader.

A write is one transaction: check, write the row, give the workload the revision, add the audit's record. The leader
reads what is newer than it knows, and makes it so; until then the workload's record tells what was before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack

from sqlalchemy import and_, func, select, update

from admission.model.errors import InvalidObject
from admission.model.queues import LocalQueue
from admission.store import audit_log
from admission.store.database.dialects import among, upsert
from admission.store.database.tables import queue_objects, workload_checks, workload_orders, workloads
from admission.store.errors import Conflict, NotFound
from admission.store.records import CheckRecord, Order, State
from admission.store.workloads import checks
from admission.store.workloads.commit import next_revision

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sqlalchemy import Connection, RowMapping
    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.model.checks import CheckReport
    from admission.store.audit_log import Author
    from admission.store.database.connection import Database
    from admission.store.records import Document

_ROOM = 1.0
"""Seconds between a place and the one behind it, if nobody else stands there: room for some twenty more."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the order of a ClusterQueue: directly before a workload, or before all that wait there."""

    before: str = ""
    """Its uid; empty: before all."""


class Ordered(TypedDict, total=False):
    """What can be ordered; what is left out stays as it was ordered before."""

    local_queue: str | None
    """Move it to this LocalQueue of its namespace; None: back to that of its object's label."""
    priority: int | None
    """Instead of that of its priority class; None: that again."""
    held: bool
    active: bool
    place: Place | None
    """None: its own place again."""


class News(NamedTuple):
    """What was ordered and said lately."""

    orders: tuple[Order, ...]
    checks: tuple[CheckRecord, ...]


class Orders:
    """Orders of admins and answers of admission checks."""

    def __init__(self, database: Database, *, clock: Callable[[], float], changed: Callable[[int], None]) -> None:
        self._database = database
        self._clock = clock
        self._changed = changed

    async def give(
        self,
        uid: str,
        *,
        author: Author,
        resource_version: str = "",
        dry_run: bool = False,
        **ordered: Unpack[Ordered],
    ) -> Order:
        """Order something about a workload that is not finished; all that is in force about it then.

        Raises NotFound, Conflict (it is finished, or not that `resource_version` any more), and InvalidObject for a
        LocalQueue or a place that does not exist.
        """
        async with self._database.write(dry_run=dry_run) as connection:
            revision = await connection.run_sync(next_revision)
            workload = await _unfinished(connection, uid, resource_version)
            before = await _order(connection, uid)
            row = before | await _columns(connection, workload, ordered)
            if row == before:
                await connection.rollback()
                return checks.as_order(before)
            row |= {"author": author.name, "reason": author.reason, "revision": revision}
            await connection.execute(upsert(connection.dialect.name, workload_orders), row)
            await _touch(connection, uid, revision)
            await audit_log.record(
                connection,
                author,
                "patch",
                _key(workload),
                at=self._clock(),
                revision=revision,
                before=_document(before),
                after=_document(row),
            )
        self._announce(revision, dry_run=dry_run)
        return checks.as_order(row)

    async def report(
        self,
        uid: str,
        reports: Iterable[CheckReport],
        *,
        author: Author,
        resource_version: str = "",
        dry_run: bool = False,
    ) -> tuple[CheckRecord, ...]:
        """Take in what checks say of a workload that holds quota; all that is known of its checks then.

        Raises NotFound, Conflict (it holds no quota, or is being stopped; not that `resource_version` any more), and
        InvalidObject for a check that it was not asked for.
        """
        async with self._database.write(dry_run=dry_run) as connection:
            revision = await connection.run_sync(next_revision)
            workload = await _unfinished(connection, uid, resource_version)
            if workload["state"] != State.ADMITTED:
                raise Conflict(
                    f"workload {workload['namespace']}/{workload['name']} holds no quota now; its checks are asked "
                    "when it has got some"
                )
            known = await connection.run_sync(checks.checks, workloads.c.uid == uid)
            now = self._clock()
            fresh = _answers(known, reports, now)
            if not fresh:
                await connection.rollback()
                return known
            rows = [checks.check_row(check, revision) for check in fresh]
            await connection.execute(upsert(connection.dialect.name, workload_checks), rows)
            await _touch(connection, uid, revision)
            after = await connection.run_sync(checks.checks, workloads.c.uid == uid)
            await audit_log.record(
                connection,
                author,
                "patch",
                _key(workload),
                at=now,
                revision=revision,
                before=_said(known),
                after=_said(after),
            )
        self._announce(revision, dry_run=dry_run)
        return after

    async def since(self, revision: int) -> News:
        """All that was ordered or said after `revision`, by whomever."""

        def look(connection: Connection) -> News:
            return News(
                checks.orders(connection, workload_orders.c.revision > revision),
                checks.checks(connection, workload_checks.c.revision > revision),
            )

        return await self._database.look(look)

    async def of(self, uids: Iterable[str]) -> News:
        """All that is in force about these workloads."""
        wanted = [*uids]

        def look(connection: Connection) -> News:
            condition = among(connection.dialect.name, workloads.c.uid, wanted)
            return News(checks.orders(connection, condition), checks.checks(connection, condition))

        return await self._database.look(look)

    async def answered(self) -> set[str]:
        """The names of the checks that have said something of a workload that is known."""
        column = workload_checks.c.name
        statement = select(column).where(workload_checks.c.state != "Pending").distinct()
        return await self._database.look(lambda connection: set(connection.execute(statement).scalars()))

    def _announce(self, revision: int, *, dry_run: bool) -> None:
        if not dry_run:
            self._changed(revision)


async def _unfinished(connection: AsyncConnection, uid: str, resource_version: str) -> RowMapping:
    row = (await connection.execute(select(workloads).where(workloads.c.uid == uid))).mappings().one_or_none()
    if row is None:
        raise NotFound(f"there is no workload with the uid {uid}")
    title = f"workload {row['namespace']}/{row['name']}"
    if row["state"] == State.FINISHED:
        raise Conflict(f"{title} is finished; nothing can be ordered about it any more")
    if resource_version and resource_version != str(row["revision"]):
        raise Conflict(
            f"{title} has changed meanwhile (resourceVersion {row['revision']}, not {resource_version}); read it again"
        )
    return row


async def _order(connection: AsyncConnection, uid: str) -> Document:
    statement = select(workload_orders).where(workload_orders.c.workload_uid == uid)
    row = (await connection.execute(statement)).mappings().one_or_none()
    if row is not None:
        return dict(row)
    nothing: Document = {column.name: None for column in workload_orders.c}
    return nothing | {"workload_uid": uid, "held": False, "author": "", "reason": "", "revision": 0}


async def _columns(connection: AsyncConnection, workload: RowMapping, ordered: Ordered) -> Document:
    columns: Document = {name: value for name, value in ordered.items() if name != "place"}
    queue = ordered.get("local_queue")
    if queue is not None and await _cluster_queue(connection, workload["namespace"], queue) is None:
        message = f'LocalQueue "{workload["namespace"]}/{queue}" does not exist; create it first'
        raise InvalidObject([("spec.queueName", message)])
    if "place" in ordered:
        place = ordered["place"]
        there = (None, None) if place is None else await _rank(connection, workload, queue, place)
        columns["rank_priority"], columns["rank_at"] = there
    return columns


async def _touch(connection: AsyncConnection, uid: str, revision: int) -> None:
    await connection.execute(update(workloads).where(workloads.c.uid == uid).values(revision=revision))


# --- places

_QUEUE = func.coalesce(workload_orders.c.local_queue, workloads.c.local_queue)
_PRIORITY = func.coalesce(workload_orders.c.rank_priority, workload_orders.c.priority, workloads.c.priority)
_SINCE = func.coalesce(workload_orders.c.rank_at, workloads.c.counts_from, workloads.c.created_at)


async def _rank(
    connection: AsyncConnection, workload: RowMapping, queue: str | None, place: Place
) -> tuple[int, float]:
    """(priority, since) with which a workload stands at a place among those that wait in its ClusterQueue."""
    if queue is None:
        queue = (await _order(connection, workload["uid"]))["local_queue"] or workload["local_queue"]
    cluster_queue = await _cluster_queue(connection, workload["namespace"], queue)
    door = and_(
        queue_objects.c.kind == LocalQueue.kind,
        queue_objects.c.namespace == workloads.c.namespace,
        queue_objects.c.name == _QUEUE,
        queue_objects.c.cluster_queue == cluster_queue,
    )
    waiting = (
        select(_PRIORITY, _SINCE)
        .select_from(workloads.outerjoin(workload_orders).join(queue_objects, door))
        .where(workloads.c.state == State.PENDING, workloads.c.uid != workload["uid"])
        .limit(1)
    )
    if not place.before:
        first = (await connection.execute(waiting.order_by(_PRIORITY.desc(), _SINCE))).one_or_none()
        return (workload["priority"], workload["created_at"]) if first is None else (first[0], first[1] - _ROOM)
    other = (await connection.execute(waiting.where(workloads.c.uid == place.before))).one_or_none()
    if other is None:
        message = f'no workload with the uid "{place.before}" waits in the same ClusterQueue'
        raise InvalidObject([("spec.order.before", message)])
    priority, since = other
    ahead = waiting.where(priority == _PRIORITY, since > _SINCE).order_by(_SINCE.desc())
    previous = (await connection.execute(ahead)).one_or_none()
    return priority, since - _ROOM if previous is None else max((previous[1] + since) / 2, since - _ROOM)


async def _cluster_queue(connection: AsyncConnection, namespace: str, queue: str) -> str | None:
    columns = queue_objects.c
    statement = select(columns.cluster_queue).where(
        columns.kind == LocalQueue.kind, columns.namespace == namespace, columns.name == queue
    )
    name: str | None = (await connection.execute(statement)).scalar_one_or_none()
    return name


# --- checks


def _answers(known: tuple[CheckRecord, ...], reports: Iterable[CheckReport], now: float) -> list[CheckRecord]:
    """The checks of which something else is said now."""
    by_name = {check.name: check for check in known}
    fresh = []
    for report in reports:
        before = by_name.get(report.name)
        if before is None:
            asked = ", ".join(by_name) or "none"
            message = f'"{report.name}" is no check that it was asked for; these are: {asked}'
            raise InvalidObject([("status.admissionChecks", message)])
        said = CheckRecord(
            uid=before.uid,
            name=report.name,
            state=report.state,
            at=before.at if report.state == before.state else now,
            message=report.message,
            requeue_after_seconds=report.requeue_after_seconds,
            retries=before.retries,
            pod_set_updates=report.pod_set_updates,
            revision=before.revision,
        )
        if said != before:
            fresh.append(said)
    return fresh


# --- for the audit


def _key(workload: RowMapping) -> tuple[str, str, str]:
    return "Workload", workload["namespace"], workload["name"]


_SPELLINGS = {"local_queue": "queueName", "priority": "priority", "held": "hold", "active": "active"}


def _document(row: Document) -> Document:
    spec: dict[str, Any] = {spelling: row[name] for name, spelling in _SPELLINGS.items() if row[name] is not None}
    if row["rank_priority"] is not None:
        spec["order"] = {"priority": row["rank_priority"], "since": row["rank_at"]}
    return {"spec": spec}


def _said(known: Iterable[CheckRecord]) -> Document:
    states = [{"name": check.name, "state": check.state, "message": check.message} for check in known]
    return {"status": {"admissionChecks": states}}
