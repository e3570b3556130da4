"""Admins' orders and states of admission checks: written on any replica, applied by the leader.

A write is one transaction: check it, write the row, set the workload's revision, add the audit record. The leader reads
newer rows and applies them; until then the workload's record shows the former state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack

from sqlalchemy import func, select, update

from admission.model.errors import InvalidObject
from admission.model.text import clean
from admission.store import audit_log
from admission.store.database.dialects import in_list, upsert
from admission.store.database.tables import transitions, workload_checks, workload_orders, workloads
from admission.store.errors import Conflict, NotFound
from admission.store.records import CheckRecord, Order, State
from admission.store.workloads import checks, loading
from admission.store.workloads.commit import next_revision
from admission.store.workloads.loading import UNFINISHED
from admission.store.workloads.places import (
    OrderChange,
    QueuePlace,
    check_overtakes_no_others,
    check_place,
    cluster_queue_of,
    exchange_places,
    order_row,
    rank_at,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sqlalchemy import ColumnElement, Connection, RowMapping
    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.model.checks import CheckReport
    from admission.model.workload import Workload
    from admission.store.audit_log import Author
    from admission.store.database.connection import Database
    from admission.store.records import Document


DELETION_ORDERED, NOT_DELETED = "DeletionOrdered", "NotDeleted"
"""Reasons of lines of the history: a cancellation, and that it failed. Persisted: do not rename."""


class OrderFields(TypedDict, total=False):
    """Fields of an order; fields that are left out stay unchanged."""

    local_queue: str | None
    """LocalQueue of its namespace to move it to; None: back to the one of its object's label."""
    priority: int | None
    """Priority in place of that of its priority class; None: that of the class again."""
    held: bool
    active: bool
    place: QueuePlace | None
    """Place among the pending workloads of its ClusterQueue; None: its own place again."""


class OrdersAndChecks(NamedTuple):
    """Orders and admission checks that a query has found."""

    orders: tuple[Order, ...]
    checks: tuple[CheckRecord, ...]


class Orders:
    """Admins' orders and the states that controllers of admission checks report."""

    def __init__(self, database: Database, *, clock: Callable[[], float], on_commit: Callable[[int], None]) -> None:
        self._database = database
        self._clock = clock
        self._on_commit = on_commit

    async def give(
        self,
        uid: str,
        *,
        author: Author,
        resource_version: str = "",
        dry_run: bool = False,
        within_namespace: bool = False,
        **fields: Unpack[OrderFields],
    ) -> Order:
        """Change the order about an unfinished workload; return the whole order that is then in force.

        `within_namespace`: the workload must not overtake workloads of other namespaces. A place is then one among the
        workloads of its namespace, which exchange the places that they have.

        Raises NotFound, Conflict (it is finished, or has changed since `resource_version`), and InvalidObject for a
        LocalQueue or place that does not exist, or that `within_namespace` does not allow.
        """
        async with self._database.write(dry_run=dry_run) as connection:
            revision = await connection.run_sync(next_revision)
            workload = await _unfinished(connection, uid, resource_version)
            if place := fields.get("place"):
                check_place(workload, place, is_moved=fields.get("local_queue") is not None)
            if within_namespace:
                written = await _within_namespace(connection, workload, fields)
            else:
                before = await order_row(connection, uid)
                written = [OrderChange(workload, before, before | await _columns(connection, workload, fields))]
            changed = [one for one in written if one.after != one.before]
            if not changed:
                await connection.rollback()
            for number, one in enumerate(changed):
                if number:  # a watch that breaks between two of their events resumes behind the first one
                    revision = await connection.run_sync(next_revision)
                one.after.update(author=author.name, reason=author.reason, revision=revision)
                await connection.execute(upsert(connection.dialect.name, workload_orders), one.after)
                await _touch(connection, one.workload["uid"], revision)
                await connection.run_sync(
                    audit_log.record,
                    author,
                    "patch",
                    _key(one.workload),
                    at=self._clock(),
                    revision=revision,
                    before=_document(one.before),
                    after=_document(one.after),
                )
        if changed:
            self._announce(revision, dry_run=dry_run)
        return checks.as_order(written[0].after)

    async def cancel(self, uid: str, *, author: Author) -> None:
        """Write to the history and the audit that the deletion of an unfinished workload is ordered.

        Raises NotFound, and Conflict if it is finished.
        """
        async with self._database.write() as connection:
            revision = await connection.run_sync(next_revision)
            workload = await _unfinished(connection, uid, "")
            now = self._clock()
            reason = f": {author.reason}" if author.reason else ""
            text = f"deletion ordered by {author.name}{reason}"
            await _add_line(connection, workload, DELETION_ORDERED, text, at=now)
            await _touch(connection, uid, revision)
            before = {"metadata": {"uid": uid}}
            await connection.run_sync(
                audit_log.record,
                author,
                "cancel",
                _key(workload),
                at=now,
                revision=revision,
                before=before,
                after=None,
            )
        self._announce(revision, dry_run=False)

    async def not_deleted(self, uid: str, message: str) -> None:
        """Write to the history why the deletion that was ordered last did not happen, unless it is finished by now."""
        async with self._database.write() as connection:
            revision = await connection.run_sync(next_revision)
            try:
                workload = await _unfinished(connection, uid, "")
            except (NotFound, Conflict):
                await connection.rollback()
                return
            await _add_line(connection, workload, NOT_DELETED, message, at=self._clock())
            await _touch(connection, uid, revision)
        self._announce(revision, dry_run=False)

    async def cancelled(self) -> tuple[Workload, ...]:
        """Return the unfinished workloads whose deletion was ordered, and was not said to have failed since then."""
        columns = transitions.c
        unfinished = columns.workload_uid.in_(select(workloads.c.uid).where(UNFINISHED))
        last = (
            select(func.max(columns.id))
            .where(unfinished, columns.reason.in_((DELETION_ORDERED, NOT_DELETED)))
            .group_by(columns.workload_uid)
        )
        ordered = select(columns.workload_uid).where(columns.id.in_(last), columns.reason == DELETION_ORDERED)

        def query(connection: Connection) -> tuple[Workload, ...]:
            rows = connection.execute(loading.WORKLOAD.where(workloads.c.uid.in_(ordered))).all()
            return tuple(record.workload for record in loading.records(connection, rows))

        return await self._database.read_sync(query)

    async def report(
        self,
        uid: str,
        reports: Iterable[CheckReport],
        *,
        author: Author,
        resource_version: str = "",
        admitted_at: float | None = None,
        dry_run: bool = False,
    ) -> tuple[CheckRecord, ...]:
        """Write reported states of admission checks of a workload that holds quota; return all its checks.

        `admitted_at`: when the admission began that the reports are about (None: the present one is meant).

        Raises NotFound, Conflict (it holds no quota or is being evicted, has changed since `resource_version`, or has
        been admitted again since `admitted_at`), and InvalidObject for a check that the workload does not have.
        """
        async with self._database.write(dry_run=dry_run) as connection:
            revision = await connection.run_sync(next_revision)
            workload = await _unfinished(connection, uid, resource_version)
            if workload["state"] != State.ADMITTED:
                raise Conflict(
                    f"workload {workload['namespace']}/{workload['name']} holds no quota now; its admission checks "
                    "can be reported when it does"
                )
            # Compared by the database, which rounds times.
            if admitted_at is not None and not await _exists(connection, workloads.c.admitted_at == admitted_at, uid):
                raise Conflict(f"workload {workload['namespace']}/{workload['name']} has been admitted again meanwhile")
            known = await connection.run_sync(checks.checks, workloads.c.uid == uid)
            now = self._clock()
            changed = _changed_checks(known, reports, now)
            if not changed:
                await connection.rollback()
                return known
            rows = [checks.check_row(check, revision) for check in changed]
            await connection.execute(upsert(connection.dialect.name, workload_checks), rows)
            await _touch(connection, uid, revision)
            after = await connection.run_sync(checks.checks, workloads.c.uid == uid)
            await connection.run_sync(
                audit_log.record,
                author,
                "patch",
                _key(workload),
                at=now,
                revision=revision,
                before=_audited_checks(known),
                after=_audited_checks(after),
            )
        self._announce(revision, dry_run=dry_run)
        return after

    async def since(self, revision: int) -> OrdersAndChecks:
        """Return the orders and checks written after `revision` by any replica."""

        def query(connection: Connection) -> OrdersAndChecks:
            return OrdersAndChecks(
                checks.orders(connection, workload_orders.c.revision > revision),
                checks.checks(connection, workload_checks.c.revision > revision),
            )

        return await self._database.read_sync(query)

    async def of(self, uids: Iterable[str]) -> OrdersAndChecks:
        """Return the orders and checks of these workloads."""
        wanted = [*uids]

        def query(connection: Connection) -> OrdersAndChecks:
            condition = in_list(connection.dialect.name, workloads.c.uid, wanted)
            return OrdersAndChecks(checks.orders(connection, condition), checks.checks(connection, condition))

        return await self._database.read_sync(query)

    async def answered(self) -> set[str]:
        """Return the names of admission checks whose controllers have reported a state for any stored workload."""
        column = workload_checks.c.name
        statement = select(column).where(workload_checks.c.state != "Pending").distinct()
        return await self._database.read_sync(lambda connection: set(connection.execute(statement).scalars()))

    def _announce(self, revision: int, *, dry_run: bool) -> None:
        if not dry_run:
            self._on_commit(revision)


async def _unfinished(connection: AsyncConnection, uid: str, resource_version: str) -> RowMapping:
    """Return the row of an unfinished workload. Raises NotFound, and Conflict if finished or changed."""
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


async def _exists(connection: AsyncConnection, condition: ColumnElement[bool], uid: str) -> bool:
    """Return whether the workload meets `condition`."""
    row = await connection.execute(select(workloads.c.uid).where(workloads.c.uid == uid, condition))
    return row.first() is not None


async def _columns(connection: AsyncConnection, workload: RowMapping, fields: OrderFields) -> Document:
    """Return the columns of `workload_orders` for these fields. Raises InvalidObject."""
    columns: Document = {name: value for name, value in fields.items() if name != "place"}
    queue = fields.get("local_queue")
    if queue is not None and await cluster_queue_of(connection, workload["namespace"], queue) is None:
        message = f'LocalQueue "{workload["namespace"]}/{queue}" does not exist; create it first'
        raise InvalidObject([("spec.queueName", message)], subject=f'Workload "{workload["name"]}"')
    if "place" in fields:
        place = fields["place"]
        rank = (None, None) if place is None else await rank_at(connection, workload, queue, place)
        columns["rank_priority"], columns["rank_at"] = rank
    return columns


async def _add_line(connection: AsyncConnection, workload: RowMapping, reason: str, message: str, *, at: float) -> None:
    """Add a line to the history of a workload."""
    line = {
        "workload_uid": workload["uid"],
        "at": at,
        "state": workload["state"],
        "reason": reason,
        "message": clean(message),
    }
    await connection.execute(transitions.insert(), line)


async def _touch(connection: AsyncConnection, uid: str, revision: int) -> None:
    await connection.execute(update(workloads).where(workloads.c.uid == uid).values(revision=revision))


# --- orders within a namespace


async def _within_namespace(
    connection: AsyncConnection, workload: RowMapping, fields: OrderFields
) -> list[OrderChange]:
    """Return the changes to write: the workload's first, then of those that exchange places. Raises InvalidObject."""
    place = fields.get("place")
    without_place: OrderFields = {**fields}
    if place is not None:
        del without_place["place"]
    before = await order_row(connection, workload["uid"])
    one = OrderChange(workload, before, before | await _columns(connection, workload, without_place))
    await check_overtakes_no_others(connection, one)
    if place is None:
        return [one]
    queue = one.after["local_queue"] or workload["local_queue"]
    return await exchange_places(
        connection, one, place, await cluster_queue_of(connection, workload["namespace"], queue)
    )


# --- checks


def _changed_checks(known: tuple[CheckRecord, ...], reports: Iterable[CheckReport], now: float) -> list[CheckRecord]:
    """Return the checks whose reported state differs from the known one. Raises InvalidObject for an unknown check."""
    by_name = {check.name: check for check in known}
    changed = []
    for report in reports:
        before = by_name.get(report.name)
        if before is None:
            names = ", ".join(by_name) or "none"
            message = f'"{report.name}" is not an admission check of this workload; these are: {names}'
            raise InvalidObject([("status.admissionChecks", message)])
        reported = CheckRecord(
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
        if reported != before:
            changed.append(reported)
    return changed


# --- for the audit


def _key(workload: RowMapping) -> tuple[str, str, str]:
    return "Workload", workload["namespace"], workload["name"]


_FIELD_NAMES = {"local_queue": "queueName", "priority": "priority", "held": "hold", "active": "active"}


def _document(row: Document) -> Document:
    spec: dict[str, Any] = {field: row[name] for name, field in _FIELD_NAMES.items() if row[name] is not None}
    if row["rank_priority"] is not None:
        spec["order"] = {"priority": row["rank_priority"], "since": row["rank_at"]}
    return {"spec": spec}


def _audited_checks(known: Iterable[CheckRecord]) -> Document:
    states = [{"name": check.name, "state": check.state, "message": check.message} for check in known]
    return {"status": {"admissionChecks": states}}
