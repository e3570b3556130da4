"""Transactional outbox of notifications, filled from a log: workloads' transitions and versions of queue objects.

Decisions write the log anyway, and nothing more for notifications. The leader reads it from the stored progress, and
writes notifications and progress in one transaction: each event enters the outbox exactly once, even if a leader fails.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import case, delete, func, literal, select, update

from admission.model.queues import ClusterQueue, Cohort
from admission.model.workload import LOCAL
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
from admission.store.workloads.loading import UNFINISHED
from admission.store.workloads.waiting import WAITS_IN, WITH_LOCAL_QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from sqlalchemy import ColumnElement, Connection

    from admission.store.database.connection import Database
    from admission.store.records import Document

T = TypeVar("T")

BATCH = 5000
"""Transitions that are read from the log at a time."""

_REPORTED_STATES = (State.ADMITTED, State.EVICTING, State.FINISHED)
_QUOTA_KINDS = (ClusterQueue.kind, Cohort.kind)


@dataclass(frozen=True, slots=True)
class WorkloadEvent:
    """An event of a workload to notify of: a transition, or that it has been pending for a long time."""

    uid: str
    namespace: str
    name: str
    cluster: str
    kind: str
    local_queue: str
    cluster_queue: str
    """Where it holds or last held quota; for a long wait, or if it ended without quota: where it waits or waited."""
    user: str
    at: float
    """Seconds since the epoch; for a long wait: its start."""
    state: State
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class QuotaVersion:
    """A change of a ClusterQueue or Cohort. The documents are its manifest without metadata; None: it did not exist."""

    id: int
    kind: str
    name: str
    at: float
    author: str
    reason: str
    before: Document | None
    after: Document | None


@dataclass(frozen=True, slots=True)
class DeliveryProgress:
    """Position in the log: ids of the last transition and the last version of a queue object that were read."""

    transition_id: int
    version_id: int


@dataclass(frozen=True, slots=True)
class LogBatch:
    """A batch of the log, in the order of the commits."""

    workload_events: tuple[WorkloadEvent, ...]
    versions: tuple[QuotaVersion, ...]
    progress: DeliveryProgress
    """Position after this batch."""
    more: bool
    """Whether there are more transitions to read."""


@dataclass(frozen=True, slots=True)
class SubscriptionState:
    """Delivery state of one Subscription; the fields are columns of `subscription_states`. Times are Unix times (s)."""

    waits_told_to: float | None = None
    """Queueing time up to which long waits were reported; workloads queued later are still to be checked."""
    alerts_told_to: float | None = None
    """Time up to which alerts of Budgets were reported; None: none yet."""
    hour: float | None = None
    """Start of the hour that `in_hour` (notifications created) and `left_out` (beyond the limit, by type) count."""
    in_hour: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    delivered: int = 0
    delivered_at: float | None = None
    dropped: int = 0
    """Number of notifications that were given up after days of failed attempts."""
    failures: int = 0
    """Number of failed attempts since the last success."""
    failed_at: float | None = None
    """Time of the first failure since the last success."""
    error: str = ""
    """Message of the last failure; empty: there was none since the last success."""


@dataclass(frozen=True, slots=True)
class Notification:
    """A CloudEvent to deliver for one Subscription."""

    subscription: str
    """Uid of the Subscription."""
    event: Document
    at: float
    """Time of the event (Unix time, s)."""
    id: int = 0
    """Id of its row in the outbox; 0: not inserted yet."""


@dataclass(frozen=True, slots=True)
class WorkloadScope:
    """Filter for workloads by namespace, queue, user and cluster; an empty value matches all."""

    namespace: str = ""
    cluster_queue: str = ""
    local_queue: str = ""
    user: str = ""
    clusters: tuple[str, ...] = (LOCAL,)


class Notifications:
    """The outbox in the database. Only the leader writes: methods with `epoch` raise StaleEpoch for a former one."""

    def __init__(self, database: Database, *, clock: Callable[[], float], on_commit: Callable[[int], None]) -> None:
        """`clock` returns the leader's time (Unix time, s); `on_commit` is called with the revision of each write."""
        self._database = database
        self._clock = clock
        self._on_commit = on_commit

    async def progress(self) -> DeliveryProgress | None:
        """Return the position up to which the log was read; None: there were no Subscriptions so far."""
        columns = notification_progress.c
        async with self._database.read() as connection:
            row = (await connection.execute(select(columns.transition_id, columns.version_id))).one_or_none()
        return None if row is None else DeliveryProgress(*row)

    async def begin(self, *, epoch: int) -> None:
        """Set the progress to the end of the log: only later commits are reported."""

        def write(connection: Connection) -> None:
            logs = transitions, queue_object_versions
            newest = [connection.scalar(select(func.coalesce(func.max(table.c.id), 0))) for table in logs]
            row = dict(zip(("transition_id", "version_id"), newest, strict=True))
            connection.execute(notification_progress.insert().values(id=1, **row))

        await self._write(write, epoch)

    async def end(self, *, epoch: int) -> None:
        """Delete progress, outbox and delivery states, after the last Subscription was deleted."""

        def write(connection: Connection) -> None:
            for table in (notification_progress, notification_outbox, subscription_states):
                connection.execute(delete(table))

        await self._write(write, epoch)

    async def read_log(self, since: DeliveryProgress) -> LogBatch:
        """Return the batch of the log that follows the position `since`."""
        async with self._database.read() as connection:
            return await connection.run_sync(partial(_read_log, since=since))

    async def waiting(
        self, scope: WorkloadScope, *, queued_after: float | None, queued_by: float, limit: int
    ) -> tuple[list[WorkloadEvent], int]:
        """Return the oldest `limit` pending workloads that were queued in a period, and the number of all of them.

        The period: `queued_after` (exclusive; None: no limit) to `queued_by` (inclusive), Unix times (s).
        """
        columns = workloads.c
        wanted = [columns.state == State.PENDING, columns.queued_at <= literal(queued_by, Instant()), *_within(scope)]
        if queued_after is not None:
            wanted.append(columns.queued_at > literal(queued_after, Instant()))
        shown = (WAITS_IN if column is columns.cluster_queue else column for column in _OF_WORKLOAD)
        rows = select(*shown, columns.queued_at, columns.state, columns.reason, columns.message)
        rows = rows.select_from(WITH_LOCAL_QUEUE).where(UNFINISHED, *wanted)
        async with self._database.read() as connection:
            items = [*map(_workload_event, await connection.execute(rows.order_by(columns.queued_at).limit(limit)))]
            if len(items) < limit:
                return items, len(items)
            return items, (await connection.execute(select(func.count()).select_from(rows.subquery()))).scalar_one()

    async def states(self) -> dict[str, SubscriptionState]:
        """Return the delivery states by uid of the Subscription."""
        async with self._database.read() as connection:
            rows = (await connection.execute(select(subscription_states))).mappings()
            return {row["subscription"]: SubscriptionState(**{n: row[n] for n in _STATE}) for row in rows}

    async def undelivered(self) -> dict[str, int]:
        """Return the number of undelivered notifications by uid of the Subscription."""
        columns = notification_outbox.c
        counted = select(columns.subscription, func.count()).group_by(columns.subscription)
        async with self._database.read() as connection:
            return {row[0]: row[1] for row in await connection.execute(counted)}

    async def write(
        self,
        new: Sequence[Notification],
        states: Mapping[str, SubscriptionState],
        *,
        progress: DeliveryProgress | None,
        epoch: int,
    ) -> None:
        """Insert notifications into the outbox, with the new progress and the reporting columns of `states` (by uid).

        Notifications whose Subscription and event id are in the outbox already are skipped. `progress` None: unchanged.
        """
        rows = [
            {"subscription": one.subscription, "event_id": one.event["id"], "at": one.at, "event": one.event}
            for one in new
        ]
        kept = [
            {"subscription": uid, "waits_told_to": state.waits_told_to, "alerts_told_to": state.alerts_told_to,
             "hour": state.hour,
             "in_hour": state.in_hour, "left_out": dict(state.left_out), "error": ""}
            for uid, state in states.items()
        ]  # fmt: skip

        def write(connection: Connection) -> None:
            dialect = connection.dialect.name
            if rows:
                connection.execute(insert(dialect, notification_outbox).on_conflict_do_nothing(), rows)
            if kept:
                statement = insert(dialect, subscription_states)
                set_ = {name: statement.excluded[name] for name in _REPORTING_COLUMNS}
                connection.execute(statement.on_conflict_do_update(index_elements=["subscription"], set_=set_), kept)
            if progress is not None:
                values = {"transition_id": progress.transition_id, "version_id": progress.version_id}
                connection.execute(update(notification_progress).values(**values))

        await self._write(write, epoch)

    async def to_send(self, subscriptions: Collection[str], *, limit: int) -> list[Notification]:
        """Return up to `limit` notifications for these Subscriptions, with the fewest attempts first, then oldest."""
        columns = notification_outbox.c
        statement = (
            select(columns.subscription, columns.event, columns.at, columns.id)
            .where(columns.subscription.in_(subscriptions))
            .order_by(columns.attempts, columns.id)
            .limit(limit)
        )
        async with self._database.read() as connection:
            return [Notification(*row) for row in await connection.execute(statement)]

    async def delivered(self, one: Notification, *, at: float, epoch: int) -> None:
        """Delete a notification that its receiver has accepted, and count the delivery."""

        def write(connection: Connection) -> None:
            connection.execute(delete(notification_outbox).where(notification_outbox.c.id == one.id))
            values = {"delivered": _STATES.delivered + 1, "delivered_at": at, "failures": 0, "error": ""}
            of_subscription = _STATES.subscription == one.subscription
            connection.execute(update(subscription_states).where(of_subscription).values(**values, failed_at=None))

        await self._write(write, epoch)

    async def failed(self, one: Notification, *, error: str, at: float, epoch: int) -> None:
        """Count a failed attempt to deliver a notification."""

        def write(connection: Connection) -> None:
            columns = notification_outbox.c
            counted = update(notification_outbox).where(columns.id == one.id).values(attempts=columns.attempts + 1)
            connection.execute(counted)
            first = func.coalesce(_STATES.failed_at, literal(at, Instant()))
            values = {"failures": _STATES.failures + 1, "failed_at": first, "error": error}
            connection.execute(
                update(subscription_states).where(_STATES.subscription == one.subscription).values(**values)
            )

        await self._write(write, epoch)

    async def note_fault(self, subscription: str, error: str, *, at: float, epoch: int) -> None:
        """Set the error of a Subscription that prevents any attempt, such as a missing Secret; empty: clear it."""
        failed_at = at if error else None
        row: Document = {"subscription": subscription, "left_out": {}, "error": error, "failed_at": failed_at}

        def write(connection: Connection) -> None:
            statement = insert(connection.dialect.name, subscription_states).values(row)
            set_ = {"error": error, "failed_at": failed_at}
            connection.execute(statement.on_conflict_do_update(index_elements=["subscription"], set_=set_))

        await self._write(write, epoch)

    async def prune(self, *, deleted: Iterable[str], before: float, epoch: int) -> int:
        """Delete rows of deleted Subscriptions, and notifications older than `before`; return the number of these."""
        uids, outbox = [*deleted], notification_outbox.c
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
                concerned = _STATES.subscription.in_(numbers)
                counting = update(subscription_states).where(concerned).values(dropped=_STATES.dropped + dropped)
                connection.execute(counting)
                connection.execute(delete(notification_outbox).where(old))
            return sum(numbers.values())

        return await self._write(write, epoch)

    async def _write(self, work: Callable[[Connection], T], epoch: int) -> T:
        at = self._clock()

        def write(connection: Connection) -> tuple[int, T]:
            return begin(connection, epoch=epoch, at=at).revision, work(connection)

        revision, answer = await self._database.write_sync(write)
        self._on_commit(revision)
        return answer


_STATES = subscription_states.c
_STATE = tuple(column.name for column in _STATES if not column.primary_key)
_REPORTING_COLUMNS = ("waits_told_to", "alerts_told_to", "hour", "in_hour", "left_out")
_OF_WORKLOAD = tuple(
    workloads.c[name]
    for name in ("uid", "namespace", "name", "cluster", "kind", "local_queue", "cluster_queue", "submitted_by")
)


def _read_log(connection: Connection, since: DeliveryProgress) -> LogBatch:
    newest: int = connection.scalar(select(func.coalesce(func.max(transitions.c.id), 0))) or 0
    until = min(newest, since.transition_id + BATCH)
    columns, versions, held = transitions.c, queue_object_versions.c, workloads.c.cluster_queue
    shown = (case((held == "", WAITS_IN), else_=held) if each is held else each for each in _OF_WORKLOAD)
    history = (
        select(*shown, columns.at, columns.state, columns.reason, columns.message)
        .join_from(transitions, WITH_LOCAL_QUEUE, columns.workload_uid == workloads.c.uid)
        .where(columns.id > since.transition_id, columns.id <= until, columns.state.in_(_REPORTED_STATES))
        .order_by(columns.id)
    )
    written = (
        select(*(versions[name] for name in ("id", "kind", "name", "at", "author", "reason", "operation", "content")))
        .where(versions.id > since.version_id)
        .order_by(versions.id)
    )
    rows = connection.execute(written).all()
    quota = [_quota_version(connection, row) for row in rows if row.kind in _QUOTA_KINDS]
    return LogBatch(
        tuple(_workload_event(row) for row in connection.execute(history)),
        tuple(quota),
        DeliveryProgress(max(until, since.transition_id), max((row.id for row in rows), default=since.version_id)),
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


def _workload_event(row: Any) -> WorkloadEvent:
    return replace(WorkloadEvent(*row), state=State(row.state))


def _within(scope: WorkloadScope) -> list[ColumnElement[bool]]:
    columns = workloads.c
    wanted = {
        columns.namespace: scope.namespace,
        WAITS_IN: scope.cluster_queue,
        columns.local_queue: scope.local_queue,
        columns.submitted_by: scope.user,
    }
    return [columns.cluster.in_(scope.clusters), *(column == value for column, value in wanted.items() if value)]
