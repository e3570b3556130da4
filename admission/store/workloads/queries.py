"""Queries for workloads: pages, searches, single workloads, and status counts of queues."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar, Generic, NamedTuple, TypeVar

from sqlalchemy import case, func, literal_column, select, tuple_

from admission.store.database.dialects import in_list
from admission.store.database.tables import admissions, head, transitions, workloads
from admission.store.records import Page, State, Transition
from admission.store.workloads import loading, queue_counts
from admission.store.workloads.preemptions import evicted_again, in_vain
from admission.store.workloads.search import found_groups, found_page
from admission.store.workloads.waiting import waiting, waiting_users

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from sqlalchemy import ColumnElement, Connection

    from admission.store.database.connection import Database
    from admission.store.records import ClusterNumbers, HeldAmount, QueueStatus, UnfinishedCount, WorkloadRecord
    from admission.store.workloads.preemptions import EvictedAgain, PreemptionInVain
    from admission.store.workloads.search import FoundPage, WorkloadGroup, WorkloadQuery
    from admission.store.workloads.waiting import WaitingRow, WaitingUser

_MAX_COUNTED = 5_000
"""Remaining workloads up to which a page counts them."""
_RUN_TIMES = 300
"""Workloads from which a run time is learned, at most."""
_KEY = (workloads.c.namespace, workloads.c.name, workloads.c.uid)
_NEWEST_FIRST = (workloads.c.created_at.desc(), workloads.c.first_revision.desc(), workloads.c.uid.desc())
"""Groups of one StatefulSet follow each other with its time of creation, and objects within a second."""
_VALUES: Mapping[str, Callable[[WorkloadRecord], str | int]] = {
    "namespace": lambda record: record.workload.namespace,
    "name": lambda record: record.workload.name,
    "uid": lambda record: record.workload.uid,
    "state": lambda record: record.state.value,
    "local_queue": lambda record: record.workload.queue,
    "cluster_queue": lambda record: record.status_cluster_queue,
    "priority": lambda record: record.workload.priority,
    "submitted_by": lambda record: record.workload.user,
    "cluster": lambda record: record.workload.cluster,
    "runs_in": lambda record: record.runs_in,
}
"""Columns by which lists can be filtered, with the getter of the value from a record."""
_STATUS_CLUSTER_QUEUE = case((workloads.c.state == State.PENDING, ""), else_=workloads.c.cluster_queue)
"""`WorkloadRecord.status_cluster_queue` in SQL."""
_COMPUTED: Mapping[str, ColumnElement[str]] = {"cluster_queue": _STATUS_CLUSTER_QUEUE, "runs_in": loading.RUNS_IN}
_IMMUTABLE_COLUMNS = ("namespace", "name", "uid", "submitted_by", "cluster")


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """A row of a workload's ledger: quota of one resource for one pod set. The fields are columns of `admissions`."""

    from_at: float
    """Unix time (s)."""
    to_at: float | None
    """Unix time (s); None while the quota is held."""
    end_reason: str | None
    cluster_queue: str
    pod_set: str
    count: int
    """Number of pods."""
    flavor: str
    resource: str
    amount: int
    """Of all pods together: milli-CPU for cpu, else base units."""


@dataclass(frozen=True, slots=True)
class ColumnFilter:
    """A filter: the value of a column of `COLUMNS` is in a set of values, or (negated) is not."""

    COLUMNS: ClassVar[frozenset[str]] = frozenset(_VALUES)

    column: str
    values: frozenset[str | int]
    negated: bool = False

    @property
    def is_immutable(self) -> bool:
        """Whether the column is immutable, so that a workload cannot start or stop to match."""
        return self.column in _IMMUTABLE_COLUMNS

    def clause(self) -> ColumnElement[bool]:
        """Return the condition for a query."""
        column = _COMPUTED.get(self.column)
        column = workloads.c[self.column] if column is None else column
        return column.not_in(self.values) if self.negated else column.in_(self.values)

    def holds(self, record: WorkloadRecord) -> bool:
        """Whether a workload in memory matches."""
        return (_VALUES[self.column](record) in self.values) is not self.negated


K = TypeVar("K")


class _Counts(NamedTuple, Generic[K]):
    """Cached status counts of queues."""

    revision: int
    """Revision of the database that they are of."""
    uncounted: int
    """Number of pending workloads that they do not include, see `recounts.uncounted`."""
    numbers: dict[K, QueueStatus]


class WorkloadQueries:
    """Read access to the workloads in the database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._of_cluster_queues: _Counts[str] | None = None
        self._of_local_queues: _Counts[tuple[str, str]] | None = None
        """The last counts."""
        self._counting = asyncio.Lock()

    async def list(
        self,
        *,
        namespace: str | None = None,
        where: Iterable[ColumnFilter] = (),
        limit: int | None = None,
        after: tuple[str, str, str] | None = None,
    ) -> Page:
        """Return a page of at most `limit` workloads, sorted by namespace, name and uid; `after`: a page's cursor.

        The number of remaining workloads is given only without conditions (`where`) and up to a few thousand, because
        counting takes longer than reading a page.
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
                matching = select(workloads.c.uid).where(*wanted).limit(_MAX_COUNTED + 1).subquery()
                count = connection.execute(select(func.count()).select_from(matching)).scalar_one()
                remaining = count - len(rows) if count <= _MAX_COUNTED else None
            end = (rows[-1].namespace, rows[-1].name, rows[-1].uid) if more else None
            return Page(loading.records(connection, rows), revision, end, remaining)

        return await self._database.read_sync(query)

    async def finished_since(self, at: float, *, limit: int) -> tuple[WorkloadRecord, ...]:
        """Return the last `limit` workloads that finished after `at` (Unix time, s), oldest end first."""
        finished = workloads.c.state == literal_column(f"'{State.FINISHED.value}'")  # a literal, for the partial index
        statement = loading.WORKLOAD.where(finished, workloads.c.finished_at > at)
        statement = statement.order_by(workloads.c.finished_at.desc()).limit(limit)

        def query(connection: Connection) -> tuple[WorkloadRecord, ...]:
            return loading.records(connection, connection.execute(statement).all()[::-1])

        return await self._database.read_sync(query)

    async def uids(self, *, namespace: str | None = None, where: Iterable[ColumnFilter] = ()) -> tuple[set[str], int]:
        """Return the uids of the workloads that match all conditions, and the revision at which they were read."""
        wanted = [condition.clause() for condition in where]
        if namespace is not None:
            wanted.append(workloads.c.namespace == namespace)
        async with self._database.read() as connection:
            revision = (await connection.execute(select(head.c.revision))).scalar_one()
            rows = await connection.execute(select(workloads.c.uid).where(*wanted))
            return set(rows.scalars()), revision

    async def unfinished_of(self, uids: Iterable[str]) -> set[str]:
        """Return which of these uids are those of unfinished workloads."""
        wanted = [*uids]

        def query(connection: Connection) -> set[str]:
            named = in_list(connection.dialect.name, workloads.c.uid, wanted)
            unfinished = workloads.c.state != State.FINISHED
            return set(connection.execute(select(workloads.c.uid).where(named, unfinished)).scalars())

        return await self._database.read_sync(query)

    async def queued_at(self, uids: Iterable[str]) -> dict[str, float]:
        """Return by uid when these workloads were last queued (Unix time, s)."""
        wanted = [*uids]

        def query(connection: Connection) -> dict[str, float]:
            named = in_list(connection.dialect.name, workloads.c.uid, wanted)
            rows = connection.execute(select(workloads.c.uid, workloads.c.queued_at).where(named))
            return {row.uid: row.queued_at for row in rows}

        return await self._database.read_sync(query)

    async def changes_since(
        self, revision: int, *, uid: str | None = None, limit: int
    ) -> tuple[tuple[WorkloadRecord, ...], int, bool]:
        """Return the workloads written after `revision` in their present state, and the revision of the database.

        At most `limit` of them, the oldest write first; the last value of the result is whether there are more. For
        the next page pass `revision` and `uid` of the last workload.
        """
        columns = workloads.c
        later = columns.revision > revision
        if uid is not None:
            later = tuple_(columns.revision, columns.uid) > (revision, uid)
        statement = loading.WORKLOAD.where(later).order_by(columns.revision, columns.uid)

        def query(connection: Connection) -> tuple[tuple[WorkloadRecord, ...], int, bool]:
            newest = connection.execute(select(head.c.revision)).scalar_one()
            rows = connection.execute(statement.limit(limit + 1)).all()
            return loading.records(connection, rows[:limit]), newest, len(rows) > limit

        return await self._database.read_sync(query)

    async def get(self, namespace: str, name: str) -> WorkloadRecord | None:
        """Return the workload of that name, or None; of several, whose objects followed each other, the newest."""
        found = await self.of_name(namespace, name, limit=1)
        return found[0] if found else None

    async def of_name(self, namespace: str, name: str, *, limit: int = 100) -> tuple[WorkloadRecord, ...]:
        """Return the workloads of the objects of that name, newest first."""
        return await self._newest(workloads.c.namespace == namespace, workloads.c.name == name, limit=limit)

    async def below(self, namespace: str, name: str, *, limit: int) -> tuple[WorkloadRecord, ...]:
        """Return workloads whose names begin with `name-`, newest first."""
        begins = workloads.c.name.like(f"{_escaped(name)}-%", escape="!")
        return await self._newest(workloads.c.namespace == namespace, begins, limit=limit)

    async def names(self, namespace: str, *, hidden: Collection[str] = (), limit: int) -> tuple[str, ...]:
        """Return the names of the newest `limit` workloads of a namespace, without duplicates.

        Those of the clusters `hidden` are left out.
        """
        columns = workloads.c
        statement = select(columns.name).where(columns.namespace == namespace, columns.cluster.not_in([*hidden]))
        statement = statement.order_by(*_NEWEST_FIRST).limit(limit)
        async with self._database.read() as connection:
            return tuple(dict.fromkeys((await connection.execute(statement)).scalars()))

    async def namespaces_of(self, name: str, *, limit: int) -> tuple[str, ...]:
        """Return namespaces with a workload of that name."""
        statement = select(workloads.c.namespace).where(workloads.c.name == name).distinct().limit(limit)
        async with self._database.read() as connection:
            return tuple(sorted((await connection.execute(statement)).scalars()))

    async def _newest(self, *wanted: ColumnElement[bool], limit: int) -> tuple[WorkloadRecord, ...]:
        statement = loading.WORKLOAD.where(*wanted).order_by(*_NEWEST_FIRST).limit(limit)

        def query(connection: Connection) -> tuple[WorkloadRecord, ...]:
            return loading.records(connection, connection.execute(statement).all())

        return await self._database.read_sync(query)

    async def history(self, uid: str) -> tuple[Transition, ...]:
        """Return the transitions of a workload, oldest first."""
        columns = transitions.c
        statement = (
            select(columns.workload_uid, columns.at, columns.state, columns.reason, columns.message)
            .where(columns.workload_uid == uid)
            .order_by(columns.id)
        )

        def query(connection: Connection) -> tuple[Transition, ...]:
            rows = connection.execute(statement)
            return tuple(Transition(uid, at, State(state), reason, text) for uid, at, state, reason, text in rows)

        return await self._database.read_sync(query)

    async def ledger(self, uid: str) -> tuple[LedgerRow, ...]:
        """Return the ledger rows of a workload, oldest first."""
        columns = admissions.c
        wanted = (columns[field.name] for field in fields(LedgerRow))
        statement = select(*wanted).where(columns.workload_uid == uid).order_by(columns.id)

        def query(connection: Connection) -> tuple[LedgerRow, ...]:
            return tuple(LedgerRow(*row) for row in connection.execute(statement))

        return await self._database.read_sync(query)

    async def clusters_of(self, uids: Iterable[str]) -> dict[str, Sequence[str]]:
        """Return by uid the clusters that workloads were admitted to, the last one first; empty: that of the object."""
        columns, wanted = admissions.c, [*uids]

        def query(connection: Connection) -> dict[str, Sequence[str]]:
            named = in_list(connection.dialect.name, columns.workload_uid, wanted)
            last = func.max(columns.id)
            of_each = select(columns.workload_uid, columns.cluster).where(named)
            ordered = of_each.group_by(columns.workload_uid, columns.cluster).order_by(last.desc())
            found = defaultdict(list)
            for uid, cluster in connection.execute(ordered):
                found[uid].append(cluster or "")
            return {**found}

        return await self._database.read_sync(query)

    async def search(self, search: WorkloadQuery, *, order: str = "state", offset: int = 0, limit: int) -> FoundPage:
        """Return a page of the found workloads, in an order of `search.ORDERS`; see `search.found_page`."""
        return await found_page(self._database, search, order=order, offset=offset, limit=limit)

    async def search_groups(self, search: WorkloadQuery, *, by: str) -> tuple[WorkloadGroup, ...]:
        """Return counts of the found workloads by a field of `search.FIELDS`, the largest group first."""
        return await found_groups(self._database, search, by=by)

    async def run_times(self, namespace: str, local_queue: str, user: str = "") -> tuple[float, ...]:
        """Return the run times (s) of workloads of a LocalQueue, and of a user if given, that succeeded most recently.

        In ascending order, of the last admission of each.
        """
        columns = workloads.c
        began = func.coalesce(columns.cleared_at, columns.admitted_at)
        statement = select(began, columns.finished_at).where(
            columns.namespace == namespace, columns.local_queue == local_queue, columns.state == State.FINISHED,
            columns.outcome == "Succeeded", began.is_not(None),
        )  # fmt: skip
        if user:
            statement = statement.where(columns.submitted_by == user)
        async with self._database.read() as connection:
            rows = await connection.execute(statement.order_by(columns.finished_at.desc()).limit(_RUN_TIMES))
            return tuple(sorted(end - begin for begin, end in rows))

    async def waiting(self) -> tuple[WaitingRow, ...]:
        """Return the numbers of pending workloads by LocalQueue and reason, the longest wait first."""
        return await waiting(self._database)

    async def waiting_users(self) -> tuple[WaitingUser, ...]:
        """Return the numbers of pending workloads by user, the longest wait first."""
        return await waiting_users(self._database)

    async def preemptions_in_vain(self, *, now: float) -> tuple[PreemptionInVain, ...]:
        """Return preemptors that are still pending minutes after their preemptions; see `preemptions.in_vain`."""
        return await in_vain(self._database, now=now)

    async def evicted_again(self, *, now: float) -> tuple[EvictedAgain, ...]:
        """Return workloads that were evicted again and again in the last hour; see `preemptions.evicted_again`."""
        return await evicted_again(self._database, now=now)

    async def by_uid(self, uids: Iterable[str]) -> dict[str, WorkloadRecord]:
        """Return workloads by their uids."""
        statement = loading.WORKLOAD.where(workloads.c.uid.in_(list(uids)))

        def query(connection: Connection) -> dict[str, WorkloadRecord]:
            found = loading.records(connection, connection.execute(statement).all())
            return {record.workload.uid: record for record in found}

        return await self._database.read_sync(query)

    async def cluster_queue_status(self) -> dict[str, QueueStatus]:
        """Return the status counts by name of each ClusterQueue with pending workloads or quota in use.

        Cached: only queues with writes since the last call are counted again, see `recounted_cluster_queues`.
        """
        async with self._counting:
            all_of, some_of = queue_counts.by_cluster_queue, queue_counts.recounted_cluster_queues
            self._of_cluster_queues = await self._count(self._of_cluster_queues, all_of, some_of)
            return self._of_cluster_queues.numbers

    async def by_cluster(self) -> dict[str, ClusterNumbers]:
        """Return the status counts of the clusters in which there are unfinished workloads, by name."""
        return await self._database.read_sync(queue_counts.by_cluster)

    async def numbers(self) -> tuple[Sequence[UnfinishedCount], Sequence[HeldAmount]]:
        """Return counts of all unfinished workloads, and sums of the quota that they hold, of one snapshot."""

        def query(connection: Connection) -> tuple[Sequence[UnfinishedCount], Sequence[HeldAmount]]:
            return queue_counts.unfinished_counts(connection), queue_counts.held_amounts(connection)

        return await self._database.read_sync(query)

    async def local_queue_status(self) -> dict[tuple[str, str], QueueStatus]:
        """Return the status counts of LocalQueues by (namespace, name), like `cluster_queue_status`."""
        async with self._counting:
            all_of, some_of = queue_counts.by_local_queue, queue_counts.recounted_local_queues
            self._of_local_queues = await self._count(self._of_local_queues, all_of, some_of)
            return self._of_local_queues.numbers

    async def _count(
        self,
        known: _Counts[K] | None,
        all_of: Callable[[Connection], dict[K, QueueStatus]],
        some_of: Callable[[Connection, dict[K, QueueStatus], int], dict[K, QueueStatus] | None],
    ) -> _Counts[K]:
        def query(connection: Connection) -> _Counts[K]:
            revision: int = connection.execute(select(head.c.revision)).scalar_one()
            if known is not None:
                if known.revision == revision:
                    return known
                found = some_of(connection, known.numbers, known.revision)
                if found is not None and queue_counts.uncounted(connection, found) == known.uncounted:
                    return _Counts(revision, known.uncounted, found)
            numbers = all_of(connection)
            return _Counts(revision, queue_counts.uncounted(connection, numbers), numbers)

        return await self._database.read_sync(query)


def _escaped(text: str) -> str:
    """Return `text` for a LIKE pattern with the escape character `!`."""
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")
