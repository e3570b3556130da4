"""Orders of admins and states of admission checks: written on any replica, read by the leader.

A write is one transaction: check, write the row, give the workload the revision, add the audit's record. The leader
reads what is newer than it knows, and makes it so; until then the workload's record tells what was before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack

from sqlalchemy import select, update

from admission.model.errors import InvalidObject
from admission.store import audit_log
from admission.store.database.dialects import in_list, upsert
from admission.store.database.tables import workload_checks, workload_orders, workloads
from admission.store.errors import Conflict, NotFound
from admission.store.records import CheckRecord, Order, State
from admission.store.workloads import checks
from admission.store.workloads.commit import next_revision
from admission.store.workloads.places import (
    Place,
    Written,
    check_passes_nobody,
    check_place,
    cluster_queue_of,
    exchanged,
    order_row,
    rank_at,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sqlalchemy import Connection, RowMapping
    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.model.checks import CheckReport
    from admission.store.audit_log import Author
    from admission.store.database.connection import Database
    from admission.store.records import Document


class Ordered(TypedDict, total=False):
    """The fields of an order; those that are left out stay as they were."""

    local_queue: str | None
    """Move it to this LocalQueue of its namespace; None: back to that of its object's label."""
    priority: int | None
    """Instead of that of its priority class; None: that again."""
    held: bool
    active: bool
    place: Place | None
    """None: its own place again."""


class News(NamedTuple):
    """Orders and checks that were written after a revision."""

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
        within_namespace: bool = False,
        **ordered: Unpack[Ordered],
    ) -> Order:
        """Order something about a workload that is not finished; all that is in force about it then.

        `within_namespace`: it comes before no workload of another namespace that it stands behind. A place is one among
        the workloads of its namespace then, which exchange the places that they have.

        Raises NotFound, Conflict (it is finished, or not that `resource_version` any more), and InvalidObject for a
        LocalQueue or a place that does not exist, or that is not to be had within the namespace.
        """
        async with self._database.write(dry_run=dry_run) as connection:
            revision = await connection.run_sync(next_revision)
            workload = await _unfinished(connection, uid, resource_version)
            if place := ordered.get("place"):
                check_place(workload, place, is_moved=ordered.get("local_queue") is not None)
            if within_namespace:
                written = await _within_namespace(connection, workload, ordered)
            else:
                before = await order_row(connection, uid)
                written = [Written(workload, before, before | await _columns(connection, workload, ordered))]
            changed = [one for one in written if one.after != one.before]
            if not changed:
                await connection.rollback()
            for one in changed:
                one.after.update(author=author.name, reason=author.reason, revision=revision)
                await connection.execute(upsert(connection.dialect.name, workload_orders), one.after)
                await _touch(connection, one.workload["uid"], revision)
                await audit_log.record(
                    connection,
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

    async def report(
        self,
        uid: str,
        reports: Iterable[CheckReport],
        *,
        author: Author,
        resource_version: str = "",
        dry_run: bool = False,
    ) -> tuple[CheckRecord, ...]:
        """Write the states of checks of a workload that holds quota; all of its checks afterwards.

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
        """The orders and checks written after `revision`, by any replica."""

        def query(connection: Connection) -> News:
            return News(
                checks.orders(connection, workload_orders.c.revision > revision),
                checks.checks(connection, workload_checks.c.revision > revision),
            )

        return await self._database.read_sync(query)

    async def of(self, uids: Iterable[str]) -> News:
        """The orders and checks in force for these workloads."""
        wanted = [*uids]

        def query(connection: Connection) -> News:
            condition = in_list(connection.dialect.name, workloads.c.uid, wanted)
            return News(checks.orders(connection, condition), checks.checks(connection, condition))

        return await self._database.read_sync(query)

    async def answered(self) -> set[str]:
        """The names of checks whose controllers have answered for a known workload."""
        column = workload_checks.c.name
        statement = select(column).where(workload_checks.c.state != "Pending").distinct()
        return await self._database.read_sync(lambda connection: set(connection.execute(statement).scalars()))

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


async def _columns(connection: AsyncConnection, workload: RowMapping, ordered: Ordered) -> Document:
    columns: Document = {name: value for name, value in ordered.items() if name != "place"}
    queue = ordered.get("local_queue")
    if queue is not None and await cluster_queue_of(connection, workload["namespace"], queue) is None:
        message = f'LocalQueue "{workload["namespace"]}/{queue}" does not exist; create it first'
        raise InvalidObject([("spec.queueName", message)], subject=f'Workload "{workload["name"]}"')
    if "place" in ordered:
        place = ordered["place"]
        there = (None, None) if place is None else await rank_at(connection, workload, queue, place)
        columns["rank_priority"], columns["rank_at"] = there
    return columns


async def _touch(connection: AsyncConnection, uid: str, revision: int) -> None:
    await connection.execute(update(workloads).where(workloads.c.uid == uid).values(revision=revision))


# --- orders within a namespace


async def _within_namespace(connection: AsyncConnection, workload: RowMapping, ordered: Ordered) -> list[Written]:
    """What is to be written: the workload first, then those that exchange places with it. Raises InvalidObject."""
    place = ordered.get("place")
    rest: Ordered = {**ordered}
    if place is not None:
        del rest["place"]
    before = await order_row(connection, workload["uid"])
    one = Written(workload, before, before | await _columns(connection, workload, rest))
    await check_passes_nobody(connection, one)
    if place is None:
        return [one]
    queue = one.after["local_queue"] or workload["local_queue"]
    return await exchanged(connection, one, place, await cluster_queue_of(connection, workload["namespace"], queue))


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
