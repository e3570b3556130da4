"""The outbox of notifications, and the log that it is filled from: stories and versions, which decisions write anyway.

So a decision writes nothing for its notifications. The leader reads on from where it was, and writes what is to be sent
and how far it has read in one transaction: whatever was committed is told, however often a leader dies between.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import case, delete, func, literal, select, update

from admission.model.queues import ClusterQueue, Cohort
from admission.store.database.dialects import insert
from admission.store.database.instant import Instant
from admission.store.database.tables import (
    notification_outbox,
    notification_progress,
    queue_object_versions,
    subscription_states,
    transitions,
    workloads,
)
from admission.store.records import State
from admission.store.workloads.commit import begin

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from sqlalchemy import ColumnElement, Connection

    from admission.store.database.connection import Database
    from admission.store.records import Document

T = TypeVar("T")

PIECE = 5000
"""Transitions that are read at once."""

_TOLD_OF = (State.ADMITTED, State.EVICTING, State.FINISHED)
_QUOTA = (ClusterQueue.kind, Cohort.kind)


@dataclass(frozen=True, slots=True)
class Happened:
    """Something that happened to a workload: a line of its story, or that it has waited for long."""

    uid: str
    namespace: str
    name: str
    kind: str
    local_queue: str
    cluster_queue: str
    user: str
    at: float
    """Seconds since the epoch; of one that waits: since when it does."""
    state: State
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class QuotaVersion:
    """A ClusterQueue or Cohort was written. The documents are its manifest without metadata; None: it was not there."""

    id: int
    kind: str
    name: str
    at: float
    author: str
    reason: str
    before: Document | None
    after: Document | None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the log was read: ids of the last transition and the last version of a queue object."""

    transition_id: int
    version_id: int


@dataclass(frozen=True, slots=True)
class Log:
    """A piece of what was committed, in its order."""

    happened: tuple[Happened, ...]
    versions: tuple[QuotaVersion, ...]
    progress: Progress
    """After this piece."""
    more: bool
    """Whether there is another piece by now."""


@dataclass(frozen=True, slots=True)
class SubscriptionState:
    """What became of the notifications of one Subscription. Times are seconds since the epoch."""

    waits_told_to: float | None = None
    """Workloads that were queued by then were told when they had waited for too long."""
    hour: float | None = None
    """The begin of the hour that the next two are of."""
    in_hour: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Notifications beyond the limit, by type of event."""
    delivered: int = 0
    delivered_at: float | None = None
    dropped: int = 0
    """Notifications that could not be delivered for days."""
    failures: int = 0
    """Failed attempts since the last success."""
    failed_at: float | None = None
    """The first failure since the last success."""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A notification: a CloudEvent for one Subscription."""

    subscription: str
    """The uid of the Subscription."""
    event: Document
    at: float
    id: int = 0
    """Its number in the outbox."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose workloads: each value that is not empty narrows it."""

    namespace: str = ""
    cluster_queue: str = ""
    local_queue: str = ""
    user: str = ""


class Notifications:
    """The outbox in the database. Writing is the leader's: it gives its `epoch`, and StaleEpoch is raised otherwise."""

    def __init__(self, database: Database, *, clock: Callable[[], float], told: Callable[[int], None]) -> None:
        """`clock` gives the leader's time; `told` is called with the revision of each write."""
        self._database = database
        self._clock = clock
        self._told = told

    async def progress(self) -> Progress | None:
        """How far the log was read; None: nobody was told anything yet."""
        columns = notification_progress.c
        async with self._database.read() as connection:
            row = (await connection.execute(select(columns.transition_id, columns.version_id))).one_or_none()
        return None if row is None else Progress(*row)

    async def begin(self, *, epoch: int) -> None:
        """Tell what is committed from now on."""

        def write(connection: Connection) -> None:
            newest = [connection.scalar(select(func.coalesce(func.max(table.c.id), 0))) for table in _LOGS]
            row = dict(zip(("transition_id", "version_id"), newest, strict=True))
            connection.execute(notification_progress.insert().values(id=1, **row))

        await self._write(write, epoch)

    async def end(self, *, epoch: int) -> None:
        """Forget everything: there are no Subscriptions any more."""

        def write(connection: Connection) -> None:
            for table in (notification_progress, notification_outbox, subscription_states):
                connection.execute(delete(table))

        await self._write(write, epoch)

    async def read_on(self, since: Progress) -> Log:
        """What was committed after that."""
        async with self._database.read() as connection:
            return await connection.run_sync(partial(_read_on, since=since))

    async def waiting(
        self, scope: Scope, *, queued_after: float | None, queued_by: float, limit: int
    ) -> tuple[list[Happened], int]:
        """The workloads that wait and were queued in that time, oldest first, up to `limit`; and how many there are."""
        columns = workloads.c
        wanted = [columns.state == State.PENDING, columns.queued_at <= literal(queued_by, Instant())]
        if queued_after is not None:
            wanted.append(columns.queued_at > literal(queued_after, Instant()))
        wanted += _within(scope)
        rows = select(*_OF_WORKLOAD, columns.queued_at, columns.state, columns.reason, columns.message)
        async with self._database.read() as connection:
            found = await connection.execute(rows.where(*wanted).order_by(columns.queued_at).limit(limit))
            items = [_happened(row) for row in found]
            number = len(items)
            if number == limit:
                number = (await connection.execute(select(func.count()).where(*wanted))).scalar_one()
        return items, number

    async def states(self) -> dict[str, SubscriptionState]:
        """What became of notifications, by uid of the Subscription."""
        async with self._database.read() as connection:
            rows = (await connection.execute(select(subscription_states))).mappings()
            return {row["subscription"]: SubscriptionState(**{n: row[n] for n in _STATE}) for row in rows}

    async def undelivered(self) -> dict[str, int]:
        """The number of notifications that are not delivered yet, by uid of the Subscription."""
        columns = notification_outbox.c
        counted = select(columns.subscription, func.count()).group_by(columns.subscription)
        async with self._database.read() as connection:
            return {row[0]: row[1] for row in await connection.execute(counted)}

    async def write(
        self,
        new: Sequence[Outgoing],
        states: Mapping[str, SubscriptionState],
        *,
        progress: Progress | None,
        epoch: int,
    ) -> None:
        """Put notifications into the outbox, with what `states` says of waits, hours and what was left out.

        `progress`: how far the log was read for them. What the outbox has already is not put in twice.
        """
        rows = [
            {"subscription": one.subscription, "event_id": one.event["id"], "at": one.at, "event": one.event}
            for one in new
        ]
        kept = [
            {"subscription": uid, "waits_told_to": state.waits_told_to, "hour": state.hour,
             "in_hour": state.in_hour, "left_out": dict(state.left_out), "error": ""}
            for uid, state in states.items()
        ]  # fmt: skip

        def write(connection: Connection) -> None:
            dialect = connection.dialect.name
            if rows:
                connection.execute(insert(dialect, notification_outbox).on_conflict_do_nothing(), rows)
            if kept:
                statement = insert(dialect, subscription_states)
                set_ = {name: statement.excluded[name] for name in _OF_MAKING}
                connection.execute(statement.on_conflict_do_update(index_elements=["subscription"], set_=set_), kept)
            if progress is not None:
                values = {"transition_id": progress.transition_id, "version_id": progress.version_id}
                connection.execute(update(notification_progress).values(**values))

        await self._write(write, epoch)

    async def to_send(self, subscriptions: Collection[str], *, limit: int) -> list[Outgoing]:
        """Of those in the outbox for these Subscriptions, the ones that were tried least, oldest first."""
        columns = notification_outbox.c
        statement = (
            select(columns.subscription, columns.event, columns.at, columns.id)
            .where(columns.subscription.in_(subscriptions))
            .order_by(columns.attempts, columns.id)
            .limit(limit)
        )
        async with self._database.read() as connection:
            return [Outgoing(*row) for row in await connection.execute(statement)]

    async def delivered(self, one: Outgoing, *, at: float, epoch: int) -> None:
        """A receiver has taken it."""

        def write(connection: Connection) -> None:
            connection.execute(delete(notification_outbox).where(notification_outbox.c.id == one.id))
            values = {"delivered": _STATES.delivered + 1, "delivered_at": at, "failures": 0, "error": ""}
            mine = _STATES.subscription == one.subscription
            connection.execute(update(subscription_states).where(mine).values(**values, failed_at=None))

        await self._write(write, epoch)

    async def failed(self, one: Outgoing, *, error: str, at: float, epoch: int) -> None:
        """An attempt to send it has failed."""

        def write(connection: Connection) -> None:
            columns = notification_outbox.c
            more = update(notification_outbox).where(columns.id == one.id).values(attempts=columns.attempts + 1)
            connection.execute(more)
            first = func.coalesce(_STATES.failed_at, literal(at, Instant()))
            values = {"failures": _STATES.failures + 1, "failed_at": first, "error": error}
            connection.execute(
                update(subscription_states).where(_STATES.subscription == one.subscription).values(**values)
            )

        await self._write(write, epoch)

    async def note_fault(self, subscription: str, error: str, *, at: float, epoch: int) -> None:
        """Nothing can be sent for a Subscription, though nothing was tried; an empty `error`: that is over."""
        failed_at = at if error else None
        row: Document = {"subscription": subscription, "left_out": {}, "error": error, "failed_at": failed_at}

        def write(connection: Connection) -> None:
            statement = insert(connection.dialect.name, subscription_states).values(row)
            set_ = {"error": error, "failed_at": failed_at}
            connection.execute(statement.on_conflict_do_update(index_elements=["subscription"], set_=set_))

        await self._write(write, epoch)

    async def forget(self, *, gone: Iterable[str], before: float, epoch: int) -> int:
        """Drop what is of Subscriptions that are gone, and what was not delivered since `before`; how many of these."""
        uids, outbox = [*gone], notification_outbox.c
        async with self._database.read() as connection:
            oldest = await connection.scalar(select(func.min(outbox.at)))
        if not uids and (oldest is None or oldest >= before):
            return 0

        def write(connection: Connection) -> int:
            connection.execute(delete(notification_outbox).where(outbox.subscription.in_(uids)))
            connection.execute(delete(subscription_states).where(_STATES.subscription.in_(uids)))
            old = outbox.at < literal(before, Instant())
            counted = select(outbox.subscription, func.count()).where(old).group_by(outbox.subscription)
            numbers = {row[0]: row[1] for row in connection.execute(counted)}
            if numbers:
                dropped = case(numbers, value=_STATES.subscription)
                mine = _STATES.subscription.in_(numbers)
                more = update(subscription_states).where(mine).values(dropped=_STATES.dropped + dropped)
                connection.execute(more)
                connection.execute(delete(notification_outbox).where(old))
            return sum(numbers.values())

        return await self._write(write, epoch)

    async def _write(self, work: Callable[[Connection], T], epoch: int) -> T:
        at = self._clock()

        def write(connection: Connection) -> tuple[int, T]:
            return begin(connection, epoch=epoch, at=at).revision, work(connection)

        revision, answer = await self._database.write_sync(write)
        self._told(revision)
        return answer


_LOGS = (transitions, queue_object_versions)
_STATES = subscription_states.c
_STATE = tuple(column.name for column in subscription_states.c if not column.primary_key)
_OF_MAKING = ("waits_told_to", "hour", "in_hour", "left_out")
_OF_WORKLOAD = tuple(
    workloads.c[name] for name in ("uid", "namespace", "name", "kind", "local_queue", "cluster_queue", "submitted_by")
)


def _read_on(connection: Connection, since: Progress) -> Log:
    newest: int = connection.scalar(select(func.coalesce(func.max(transitions.c.id), 0))) or 0
    until = min(newest, since.transition_id + PIECE)
    lines, versions = transitions.c, queue_object_versions.c
    story = (
        select(*_OF_WORKLOAD, lines.at, lines.state, lines.reason, lines.message)
        .join_from(transitions, workloads, lines.workload_uid == workloads.c.uid)
        .where(lines.id > since.transition_id, lines.id <= until, lines.state.in_(_TOLD_OF))
        .order_by(lines.id)
    )
    written = (
        select(*(versions[name] for name in ("id", "kind", "name", "at", "author", "reason", "operation", "content")))
        .where(versions.id > since.version_id)
        .order_by(versions.id)
    )
    rows = connection.execute(written).all()
    quota = [_quota_version(connection, row) for row in rows if row.kind in _QUOTA]
    return Log(
        tuple(_happened(row) for row in connection.execute(story)),
        tuple(quota),
        Progress(max(until, since.transition_id), max((row.id for row in rows), default=since.version_id)),
        more=until < newest,
    )


def _quota_version(connection: Connection, row: Any) -> QuotaVersion:
    versions = queue_object_versions.c
    former = connection.execute(
        select(versions.operation, versions.content)
        .where(versions.kind == row.kind, versions.name == row.name, versions.id < row.id)
        .order_by(versions.id.desc())
        .limit(1)
    ).one_or_none()
    before = None if former is None or former.operation == "delete" else former.content
    after = None if row.operation == "delete" else row.content
    return QuotaVersion(row.id, row.kind, row.name, row.at, row.author, row.reason, before, after)


def _happened(row: Any) -> Happened:
    uid, namespace, name, kind, local_queue, cluster_queue, user, at, state, reason, message = row
    return Happened(uid, namespace, name, kind, local_queue, cluster_queue, user, at, State(state), reason, message)


def _within(scope: Scope) -> list[ColumnElement[bool]]:
    columns = workloads.c
    wanted = {
        columns.namespace: scope.namespace,
        columns.cluster_queue: scope.cluster_queue,
        columns.local_queue: scope.local_queue,
        columns.submitted_by: scope.user,
    }
    return [column == value for column, value in wanted.items() if value]
