"""Queries for workloads: pages, single ones, and numbers for each queue."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar, Generic, NamedTuple, TypeVar

from sqlalchemy import func, literal_column, or_, select, tuple_

from admission.store.database.dialects import in_list
from admission.store.database.tables import admissions, head, transitions, workloads
from admission.store.records import Page, State, Transition
from admission.store.workloads import loading, queue_counts, recounts
from admission.store.workloads.preemptions import in_vain
from admission.store.workloads.waiting import waiting, waiting_users

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from sqlalchemy import ColumnElement, Connection

    from admission.store.database.connection import Database
    from admission.store.records import HeldAmount, QueueStatus, UnfinishedCount, WorkloadRecord
    from admission.store.workloads.preemptions import PreemptionInVain
    from admission.store.workloads.waiting import WaitingRow, WaitingUser

_COUNTED = 5_000
_KEY = (workloads.c.namespace, workloads.c.name, workloads.c.uid)
_VALUES: Mapping[str, Callable[[WorkloadRecord], str | int]] = {
    "namespace": lambda record: record.workload.namespace,
    "name": lambda record: record.workload.name,
    "uid": lambda record: record.workload.uid,
    "state": lambda record: record.state.value,
    "local_queue": lambda record: record.workload.queue,
    "cluster_queue": lambda record: record.cluster_queue,
    "priority": lambda record: record.workload.priority,
    "submitted_by": lambda record: record.workload.user,
}
"""Columns that lists can be filtered by."""
_UNCHANGING = ("namespace", "name", "uid", "submitted_by")


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """A row of a workload's ledger: one resource of one pod set; `to_at` is None while it is held."""

    from_at: float
    to_at: float | None
    end_reason: str | None
    cluster_queue: str
    pod_set: str
    count: int
    flavor: str
    resource: str
    amount: int


class FoundWorkload(NamedTuple):
    """A result of a search."""

    namespace: str
    name: str
    """Of its Kubernetes object."""
    state: str
    user: str


@dataclass(frozen=True, slots=True)
class Condition:
    """A filter: a column of `COLUMNS` has one of some values, or (negated) none of them."""

    COLUMNS: ClassVar[frozenset[str]] = frozenset(_VALUES)

    column: str
    values: frozenset[str | int]
    negated: bool = False

    @property
    def is_lasting(self) -> bool:
        """Whether the column of a workload never changes."""
        return self.column in _UNCHANGING

    def clause(self) -> ColumnElement[bool]:
        """For a query."""
        column = workloads.c[self.column]
        return column.not_in(self.values) if self.negated else column.in_(self.values)

    def holds(self, record: WorkloadRecord) -> bool:
        """For a workload that is at hand."""
        return (_VALUES[self.column](record) in self.values) is not self.negated


K = TypeVar("K")


class _Counted(NamedTuple, Generic[K]):
    """Numbers of queues."""

    revision: int
    """As of which they are."""
    uncounted: int
    """How many workloads waited that they do not count."""
    numbers: dict[K, QueueStatus]


class Workloads:
    """The workloads in the database, for reading."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._of_cluster_queues: _Counted[str] | None = None
        self._of_local_queues: _Counted[tuple[str, str]] | None = None
        """The last numbers."""
        self._counting = asyncio.Lock()

    async def list(
        self,
        *,
        namespace: str | None = None,
        where: Iterable[Condition] = (),
        limit: int | None = None,
        after: tuple[str, str, str] | None = None,
    ) -> Page:
        """Workloads sorted by namespace, name and uid, at most `limit` of them, from `after` on (a page's `after`).

        How many remain is told of whole namespaces only, and of a few thousand at most: to count takes longer than to
        find some.
        """
        wanted = [condition.clause() for condition in where]
        counted = not wanted
        if namespace is not None:
            wanted.append(workloads.c.namespace == namespace)
        if after is not None:
            wanted.append(tuple_(*_KEY) > after)
        statement = loading.WORKLOAD.where(*wanted).order_by(*_KEY).limit(None if limit is None else limit + 1)

        def query(connection: Connection) -> Page:
            revision = connection.execute(select(head.c.revision)).scalar_one()
            rows = connection.execute(statement).all()
            more = limit is not None and len(rows) > limit
            rows = rows[:limit]
            remaining = None if more else 0
            if more and counted:
                behind = select(workloads.c.uid).where(*wanted).limit(_COUNTED + 1).subquery()
                count = connection.execute(select(func.count()).select_from(behind)).scalar_one()
                remaining = count - len(rows) if count <= _COUNTED else None
            end = (rows[-1].namespace, rows[-1].name, rows[-1].uid) if more else None
            return Page(loading.records(connection, rows), revision, end, remaining)

        return await self._database.read_sync(query)

    async def ended_since(self, at: float, *, limit: int) -> tuple[WorkloadRecord, ...]:
        """The last workloads that have ended after `at`, at most `limit` of them, oldest first."""
        finished = workloads.c.state == literal_column(f"'{State.FINISHED.value}'")  # as its index has it
        statement = loading.WORKLOAD.where(finished, workloads.c.finished_at > at)
        statement = statement.order_by(workloads.c.finished_at.desc()).limit(limit)

        def query(connection: Connection) -> tuple[WorkloadRecord, ...]:
            return loading.records(connection, connection.execute(statement).all()[::-1])

        return await self._database.read_sync(query)

    async def uids(self, *, namespace: str | None = None, where: Iterable[Condition] = ()) -> tuple[set[str], int]:
        """The workloads that meet all conditions, by uid, and the revision as of which they do."""
        wanted = [condition.clause() for condition in where]
        if namespace is not None:
            wanted.append(workloads.c.namespace == namespace)
        async with self._database.read() as connection:
            revision = (await connection.execute(select(head.c.revision))).scalar_one()
            rows = await connection.execute(select(workloads.c.uid).where(*wanted))
            return set(rows.scalars()), revision

    async def queued_at(self, uids: Iterable[str]) -> dict[str, float]:
        """Since when these workloads wait, or waited before they were admitted, by uid (seconds since the epoch)."""
        wanted = [*uids]

        def query(connection: Connection) -> dict[str, float]:
            named = in_list(connection.dialect.name, workloads.c.uid, wanted)
            rows = connection.execute(select(workloads.c.uid, workloads.c.queued_at).where(named))
            return {row.uid: row.queued_at for row in rows}

        return await self._database.read_sync(query)

    async def changes_since(
        self, revision: int, *, uid: str | None = None, limit: int
    ) -> tuple[tuple[WorkloadRecord, ...], int, bool]:
        """Workloads written after `revision` as they are now, the oldest write first, and the revision of that now.

        At most `limit` of them; the last value says whether that are not all. To go on, give `revision` and `uid` of
        the last one.
        """
        columns = workloads.c
        behind = columns.revision > revision
        if uid is not None:
            behind = tuple_(columns.revision, columns.uid) > (revision, uid)
        statement = loading.WORKLOAD.where(behind).order_by(columns.revision, columns.uid)

        def query(connection: Connection) -> tuple[tuple[WorkloadRecord, ...], int, bool]:
            newest = connection.execute(select(head.c.revision)).scalar_one()
            rows = connection.execute(statement.limit(limit + 1)).all()
            return loading.records(connection, rows[:limit]), newest, len(rows) > limit

        return await self._database.read_sync(query)

    async def get(self, namespace: str, name: str) -> WorkloadRecord | None:
        """The workload of that name; of several, where one followed the other, the last."""
        columns = workloads.c
        statement = (
            loading.WORKLOAD.where(columns.namespace == namespace, columns.name == name)
            .order_by(columns.created_at.desc(), columns.uid.desc())
            .limit(1)
        )

        def query(connection: Connection) -> tuple[WorkloadRecord, ...]:
            return loading.records(connection, connection.execute(statement).all())

        found = await self._database.read_sync(query)
        return found[0] if found else None

    async def story(self, uid: str) -> tuple[Transition, ...]:
        """The transitions of a workload, oldest first."""
        columns = transitions.c
        statement = (
            select(columns.workload_uid, columns.at, columns.state, columns.reason, columns.message)
            .where(columns.workload_uid == uid)
            .order_by(columns.id)
        )
        async with self._database.read() as connection:
            rows = await connection.execute(statement)
            return tuple(Transition(uid, at, State(state), reason, text) for uid, at, state, reason, text in rows)

    async def ledger(self, uid: str) -> tuple[LedgerRow, ...]:
        """The ledger of a workload, oldest rows first."""
        columns = admissions.c
        wanted = (columns[field.name] for field in fields(LedgerRow))
        statement = select(*wanted).where(columns.workload_uid == uid).order_by(columns.id)
        async with self._database.read() as connection:
            return tuple(LedgerRow(*row) for row in await connection.execute(statement))

    async def find(self, text: str, *, namespaces: Collection[str] | None, limit: int) -> tuple[FoundWorkload, ...]:
        """Workloads whose name, user or uid contains `text`, whatever its case; unfinished and newer ones first.

        `namespaces` are those that are looked into; None: all.
        """
        columns = workloads.c
        pattern = f"%{_escaped(text)}%"
        matches = [column.ilike(pattern, escape="!") for column in (columns.name, columns.submitted_by, columns.uid)]
        statement = (
            select(columns.namespace, columns.name, columns.state, columns.submitted_by)
            .where(or_(*matches))
            .order_by(columns.state == State.FINISHED, columns.created_at.desc(), columns.uid)
            .limit(limit)
        )
        if namespaces is not None:
            statement = statement.where(columns.namespace.in_(sorted(namespaces)))

        def query(connection: Connection) -> tuple[FoundWorkload, ...]:
            return tuple(FoundWorkload(*row) for row in connection.execute(statement))

        return await self._database.read_sync(query)

    async def waiting(self) -> tuple[WaitingRow, ...]:
        """How many wait in each LocalQueue for which reason, and since when; who waits for longest first."""
        return await waiting(self._database)

    async def waiting_users(self) -> tuple[WaitingUser, ...]:
        """How many workloads of each user wait, and since when; who waits for longest first."""
        return await waiting_users(self._database)

    async def preemptions_in_vain(self, *, now: float) -> tuple[PreemptionInVain, ...]:
        """Workloads that wait although others were preempted for them minutes ago; see `preemptions.in_vain`."""
        return await in_vain(self._database, now=now)

    async def cluster_queue_status(self) -> dict[str, QueueStatus]:
        """By name, for each ClusterQueue where something waits or that something is held of.

        Only those are counted anew of which something was written since the last look, as `recounts` says.
        """
        async with self._counting:
            all_of, some_of = queue_counts.by_cluster_queue, recounts.cluster_queues
            self._of_cluster_queues = await self._count(self._of_cluster_queues, all_of, some_of)
            return self._of_cluster_queues.numbers

    async def numbers(self) -> tuple[Sequence[UnfinishedCount], Sequence[HeldAmount]]:
        """All unfinished workloads, counted, and all that they hold, added up: one moment of the database."""

        def query(connection: Connection) -> tuple[Sequence[UnfinishedCount], Sequence[HeldAmount]]:
            return queue_counts.unfinished_counts(connection), queue_counts.held_amounts(connection)

        return await self._database.read_sync(query)

    async def local_queue_status(self) -> dict[tuple[str, str], QueueStatus]:
        """As `cluster_queue_status`, by (namespace, name), for each LocalQueue."""
        async with self._counting:
            all_of, some_of = queue_counts.by_local_queue, recounts.local_queues
            self._of_local_queues = await self._count(self._of_local_queues, all_of, some_of)
            return self._of_local_queues.numbers

    async def _count(
        self,
        known: _Counted[K] | None,
        all_of: Callable[[Connection], dict[K, QueueStatus]],
        some_of: Callable[[Connection, dict[K, QueueStatus], int], dict[K, QueueStatus] | None],
    ) -> _Counted[K]:
        def query(connection: Connection) -> _Counted[K]:
            revision: int = connection.execute(select(head.c.revision)).scalar_one()
            if known is not None:
                if known.revision == revision:
                    return known
                found = some_of(connection, known.numbers, known.revision)
                if found is not None and recounts.uncounted(connection, found) == known.uncounted:
                    return _Counted(revision, known.uncounted, found)
            numbers = all_of(connection)
            return _Counted(revision, recounts.uncounted(connection, numbers), numbers)

        return await self._database.read_sync(query)


def _escaped(text: str) -> str:
    """For LIKE with the escape character `!`."""
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")
