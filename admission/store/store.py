"""Facade of the store: open a database, become its leader, load the state, commit decisions, read."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from sqlalchemy import select

from admission.model.errors import StoreError
from admission.store import dump, retention
from admission.store.audit_log import AuditLog, Outage, record_outage
from admission.store.browser_sessions import BrowserSessions
from admission.store.budget_sums import BudgetSums
from admission.store.database import schema_version
from admission.store.database.connection import Location, connect, keep_private
from admission.store.database.disk import check_room, check_same_file, file_of
from admission.store.database.tables import head
from admission.store.errors import DatabaseBusy, DatabaseRefusesWrites
from admission.store.group_commit import GroupCommit
from admission.store.joined_clusters import JoinedClusters
from admission.store.leadership import identity
from admission.store.leadership.leader_clock import LeaderClock
from admission.store.leadership.lock import Leadership
from admission.store.ledger import rollup
from admission.store.ledger.fairness import Fairness, fairness
from admission.store.ledger.measured_usage import MeasuredUsage
from admission.store.ledger.past_admissions import past_admissions
from admission.store.ledger.quota_history import quota_history
from admission.store.ledger.usage_reports import Reports
from admission.store.ledger.usage_series import usage_series
from admission.store.notifications import Notifications
from admission.store.objects.queue_objects import Queues, all_objects
from admission.store.objects.revisions import Revisions
from admission.store.records import LoadedState, Statistics
from admission.store.start_estimates import StartEstimates
from admission.store.workloads import checks, loading, preemptions
from admission.store.workloads.commit import next_revision, note_failures
from admission.store.workloads.demands import demands
from admission.store.workloads.orders import Orders
from admission.store.workloads.past import Past, kept_since, ordered, past_workloads, stopping_seconds
from admission.store.workloads.queries import WorkloadQueries
from admission.store.workloads.waits import ObjectiveOutcomes, Wish, outcomes, wishes

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence

    from admission.engine.policies.contract import PastAdmission
    from admission.model.queues import Objective
    from admission.store.database.connection import Database
    from admission.store.dump import Progress, Write
    from admission.store.leadership.identity import DatabaseIdentity
    from admission.store.ledger.quota_history import QuotaHistory
    from admission.store.ledger.usage_series import UsageSeries
    from admission.store.records import PoolUse, WorkloadRecord
    from admission.store.retention import Retention


HEALTH_SECONDS: Final = 1.5
"""Timeout of `health`, in seconds: Kubernetes' probes time out after a second or two."""


class Store:
    """One database. Reads and writes of queue objects are for every replica, `commit` is for the leader alone."""

    def __init__(self, database: Database, *, clock: Callable[[], float], elapsed: Callable[[], float]) -> None:
        self.revisions = Revisions(database)
        """The newest revision, written by any replica, and waiting for a newer one: `wait_for`, `wait_for_external`."""
        self.queues = Queues(database, clock=clock, on_commit=self.revisions.announce)
        """Queue objects: list, get, create, replace, delete, versions, changes_since."""
        self.workloads = WorkloadQueries(database)
        """Queries of workloads: list, get, history, ledger rows, status counts."""
        self.orders = Orders(database, clock=clock, on_commit=self.revisions.announce)
        """Admins' orders and the states of admission checks: give, report, since, of."""
        self.audit = AuditLog(database)
        """The audit log, read-only."""
        self.reports = Reports(database, clock=clock)
        """Reports on the ledger: usage, violations. Usage over time: `usage_series`."""
        self.measured_usage = MeasuredUsage(database)
        """What workloads used of what they held."""
        self.browser_sessions = BrowserSessions(database, clock=clock)
        """Browser sessions of the dashboard."""
        self.start_estimates = StartEstimates(database)
        """The latest estimated starts."""
        self.budget_sums = BudgetSums(database)
        """What Budgets had left a short time ago."""
        self.joined_clusters = JoinedClusters(database)
        """What the leader knows of the clusters that have joined."""
        self._database = database
        self._clock = clock
        self.now = LeaderClock(clock, elapsed)
        """The leader's clock (Unix time, s): not behind the former leader's last write, if the clocks differ little."""
        self.notifications = Notifications(
            database, clock=self.now, on_commit=lambda revision: self.revisions.announce(revision, decision=True)
        )
        """The outbox of notifications for Subscriptions."""
        self._writer = GroupCommit(
            database, clock=self.now, on_commit=lambda revision: self.revisions.announce(revision, decision=True)
        )
        self.commit = self._writer.commit
        """Write the leader's decisions (see `GroupCommit.commit`)."""
        self._leadership = Leadership(database)
        database.unblock = self._leadership.unblock if database.location.path is None else None
        self._opened = file_of(database.location)
        self._probe: asyncio.Task[str | None] | None = None
        """The last health check of the database, which may still be running."""
        self._probe_is_queued = False
        """Whether that check still waits for a connection."""

    def use_password_of(self, url: str) -> None:
        """Authenticate new connections with the password in `url`. Raises InvalidDatabaseUrl."""
        self._database.location = Location.parse(url)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        url: str,
        *,
        clock: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = time.monotonic,
        writes: bool = True,
    ) -> AsyncIterator[Store]:
        """Open the store at `url` (`sqlite:///FILE` or `postgresql://...`); close it at the end of the block.

        `clock` returns Unix time (s), `elapsed` seconds of a monotonic clock. `writes`: False: only read it, which a
        standby and a user without the right to write allow, too.

        Raises InvalidDatabaseUrl, DatabaseUnavailable (DatabaseBusy), DatabaseUnusable (missing rights, a missing file,
        or a file that is no database) and SchemaMismatch (migrate first).
        """
        location = Location.parse(url)
        database = connect(location)
        store = cls(database, clock=clock, elapsed=elapsed)
        async with AsyncExitStack() as closing:
            closing.push_async_callback(database.close)
            closing.push_async_callback(store._leadership.release)
            closing.push_async_callback(store._writer.close)
            closing.push_async_callback(store.revisions.close)
            closing.push_async_callback(store._end_probe)
            await schema_version.check(database, writes=writes)
            if location.path is not None:
                keep_private(location.path)  # after the check: a mistyped path may be a folder, or another file
            yield store

    async def lead(self, holder: str, *, elected: bool = False) -> int:
        """Become the leader as `holder` (host and process, for display) and return the epoch for `commit`.

        `elected`: this replica won the leader election, so the former leader is deposed, even if it has not noticed.
        Otherwise raises AlreadyRunning if another Sluice is the leader.
        """
        lead = await self._leadership.take(holder, at=self._clock(), elected=elected)
        self.now.take_over(lead.last_write_at)
        return lead.epoch

    async def holder(self) -> str:
        """Return the last leader's name (host and process), for display; empty if there never was one."""
        async with self._database.read() as connection:
            return str((await connection.execute(select(head.c.holder))).scalar_one())

    async def identity(self) -> DatabaseIdentity:
        """Return the identity of the database, of its cluster, and the epoch of its last leader."""
        return await identity.read(self._database)

    async def note_cluster(self, cluster: str) -> None:
        """Set the identity of the cluster to which the workloads belong."""
        await identity.note_cluster(self._database, cluster)

    @property
    def location(self) -> str:
        """Location of the database for display: the absolute path of a file, or the URL without its password."""
        return str(self._database.location)

    @property
    def is_shared(self) -> bool:
        """Whether other machines can share the database: True for PostgreSQL, False for a SQLite file."""
        return self._database.location.path is None

    async def load(self) -> LoadedState:
        """Return the state that a leader starts from: one snapshot."""
        faults: dict[str, Exception] = {}
        async with self._database.read() as connection:
            revision = (await connection.execute(select(head.c.revision))).scalar_one()
            queue_objects = await all_objects(connection)
            return LoadedState(
                queue_objects=queue_objects,
                workloads=tuple([record async for piece in loading.unfinished(connection, faults) for record in piece]),
                faults=faults,
                revision=revision,
                orders=await connection.run_sync(checks.orders, loading.UNFINISHED),
                checks=await connection.run_sync(checks.checks, loading.UNFINISHED),
                preemptions=await preemptions.protecting(connection, queue_objects),
                last_transition_at=await loading.last_transitions(connection),
                recently_finished=await loading.recently_finished(connection),
            )

    async def unfinished(self) -> AsyncGenerator[list[WorkloadRecord]]:
        """Yield all unfinished workloads of one snapshot in batches, each some ten milliseconds of work."""
        async with self._database.read() as connection:
            async for piece in loading.unfinished(connection):
                yield piece

    async def past_admissions(self, *, since: float) -> AsyncGenerator[list[PastAdmission]]:
        """Yield the ledger rows that end after `since` (Unix time, s) or are open, oldest first, in batches."""
        async with self._database.read() as connection:
            async for piece in past_admissions(connection, since=since):
                yield piece

    async def past(self, *, start: float, end: float, history: float = 0.0) -> Past:
        """Return what is known about the time from `start` to `end` (Unix times, s), of which the end may be cut off.

        `history`: seconds before it of which earlier admissions are returned, too.
        """
        async with self._database.read() as connection:
            start = max(start, await kept_since(connection))
            earlier = [
                row if row.to_at is not None and row.to_at <= start else row._replace(to_at=None)
                async for piece in past_admissions(connection, since=start - history)
                for row in piece
                if history and row.from_at < start
            ]
            found = await past_workloads(connection, start=start, end=end)
            orders = await ordered(connection, start=start, end=end)
            stopping = await stopping_seconds(connection, found, start=start, end=end)
        versions = [version for version in await self.queues.changes_since(0) if version.at < end]
        return Past(start, end, found, versions, earlier, orders, stopping)

    async def quota_history(self, *, end: float, local_queues: bool) -> QuotaHistory:
        """Return nominal quotas over time until `end` (see `ledger.quota_history`)."""
        return await quota_history(self._database, end=end, local_queues=local_queues)

    async def wishes(self) -> dict[str, list[Wish]]:
        """Return the objectives that ClusterQueues ever had (see `workloads.waits`)."""
        return await wishes(self._database)

    async def outcomes(
        self, objectives: Mapping[tuple[str, int], Objective], bounds: Sequence[float]
    ) -> ObjectiveOutcomes:
        """Return how objectives of ClusterQueues were met between consecutive `bounds` (see `workloads.waits`)."""
        async with self.reports.turn:
            return await outcomes(self._database, objectives, bounds, now=self._clock())

    async def fairness(self, *, start: float, end: float, cohort: str = "", including: str = "") -> Fairness:
        """Return what ClusterQueues were entitled to, received, lent and borrowed (see `ledger.fairness`).

        It begins at a full hour, and where the ledger is complete.
        """
        versions = [version for version in await self.queues.changes_since(0) if version.at < end]
        async with self.reports.turn:
            end = min(end, self._clock())
            async with self._database.read() as connection:
                hours = math.floor(start / rollup.HOUR), math.ceil(await kept_since(connection) / rollup.HOUR)
                start = max(hours) * rollup.HOUR
                waited = await demands(connection, start, end)
            if start >= end:
                return Fairness(end, end, {}, {})
            by = ["clusterqueue", "flavor"]
            series = await usage_series(self._database, by, start=start, end=end, step=rollup.HOUR, where={})
            return await asyncio.to_thread(
                fairness, versions, series, waited, start, end, cohort=cohort, including=including
            )

    async def usage_series(
        self, by: Sequence[str], *, start: float, end: float, step: float | None, where: Mapping[str, Collection[str]]
    ) -> UsageSeries:
        """Return usage in buckets of `step` seconds, up to now at most (see `ledger.usage_series`)."""
        async with self.reports.turn:
            end = min(end, self._clock())
            return await usage_series(self._database, by, start=start, end=end, step=step, where=where)

    async def roll_up(self, *, epoch: int) -> int:
        """Add the roll-ups of the ledger's past hours (see `ledger.rollup`); return how many. Raises StaleEpoch."""
        return await rollup.roll_up(self._database, now=self.now(), epoch=epoch)

    async def prune(self, policy: Retention, *, epoch: int) -> int:
        """Delete rows older than `policy` (see `retention`); return the number of workloads. Raises StaleEpoch."""
        return await retention.prune(self._database, policy, now=self.now.deletion_time(), epoch=epoch)

    async def note_failures(self, texts: Mapping[str, str]) -> None:
        """Put a text, such as an exit code, before the message of each of these failed workloads, by uid."""
        self.revisions.announce(await note_failures(self._database, texts), decision=True)

    async def note_outage(self, start: float, end: float, cause: str) -> None:
        """Write to the audit log that nothing was decided between two times (Unix, s)."""
        async with self._database.write() as connection:
            revision = await connection.run_sync(next_revision)
            await connection.run_sync(record_outage, Outage(start, end, cause), revision=revision)
        self.revisions.announce(revision)

    async def dump(self, write: Write, progress: Progress) -> None:
        """Export a snapshot of the database to `write` (see `dump`)."""
        await dump.dump(self._database, write, progress)

    async def restore(self, file: Iterable[bytes], progress: Progress) -> None:
        """Import an export into this empty database (see `dump`). Raises UnusableDump and DatabaseNotEmpty."""
        await dump.restore(self._database, file, progress)

    async def health(self) -> str | None:
        """Return None if the database answers and its last write did not fail, else a message with the cause.

        Returns within HEALTH_SECONDS. A check that takes longer continues in the background, and the next call waits
        for it. It is never cancelled, because a SQLite thread that waits for a lock cannot be.
        """
        probe = self._probe
        if probe is None or probe.done():
            probe = self._probe = asyncio.create_task(self._probed(), name="health of the database")
        done, _ = await asyncio.wait({probe}, timeout=HEALTH_SECONDS)
        if done:
            return probe.result()
        if self._database.write_failure is not None:
            return str(self._database.write_failure)
        if self._is_busy():
            return None
        return (
            f"the database {self.location} does not answer: {HEALTH_SECONDS:g} s were not enough; "
            "check that it runs, is reached by the network, and has a processor and a disk that are not used up"
        )

    async def unresponsive(self) -> str | None:
        """Return None if the database answers, even with an error; else the message of `health`."""
        fault = await self.health()
        is_silent = self._probe is not None and not self._probe.done() and not self._is_busy()
        return fault if is_silent else None

    def _is_busy(self) -> bool:
        """Whether the check waits for a connection only because requests use all of them: transactions are completed.

        A check that has its connection and gets no answer is another matter: its table may be locked, others not.
        """
        return self._probe_is_queued and time.monotonic() - self._database.answered_at < HEALTH_SECONDS

    @property
    def write_failure(self) -> StoreError | None:
        """The error of the last write transaction, if the database itself failed; None after a success."""
        return self._database.write_failure

    async def _probed(self) -> str | None:
        """Check the database without a timeout; return None or the message for `health`.

        The check only reads, unless the last write has failed: then it writes a revision without content, if the disk
        has room for more than that. Transactions of a frozen process that block it are terminated.
        """
        try:
            check_same_file(self._database.location, self._opened)
            self._probe_is_queued = True
            async with self._database.read() as connection:
                self._probe_is_queued = False
                await connection.run_sync(schema_version.check_readable, self._database)
            if self._database.write_failure is not None:
                if isinstance(self._database.write_failure, DatabaseRefusesWrites):
                    check_room(self._database.location)
                async with self._database.write() as connection:
                    revision = await connection.run_sync(next_revision)
                self.revisions.announce(revision)
        except StoreError as error:
            if isinstance(error, DatabaseBusy):
                with suppress(StoreError):
                    await self._leadership.end_stuck_writers()
            return str(error)
        return None

    async def _end_probe(self) -> None:
        if self._probe is not None:
            self._probe.cancel()
            await asyncio.wait({self._probe})

    def pools(self) -> list[PoolUse]:
        """Return size and use of each pool of database connections."""
        return self._database.pools()

    @property
    def statistics(self) -> Statistics:
        """Counters of transactions and commits since the store was opened."""
        return Statistics(write_transactions=self._database.write_transactions, commits=self._writer.commits)
