"""The store as everybody else sees it: open it, take the lead, load, commit, read."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from sqlalchemy import select

from admission.model.errors import StoreError
from admission.store import dump, retention
from admission.store.audit_log import Audit
from admission.store.browser_sessions import BrowserSessions
from admission.store.database import schema_version
from admission.store.database.connection import Location, connect, keep_private
from admission.store.database.disk import check_room
from admission.store.database.tables import head
from admission.store.errors import DatabaseBusy, DatabaseRefusesWrites
from admission.store.group_commit import Writer
from admission.store.leadership import identity
from admission.store.leadership.leader_clock import LeadersClock
from admission.store.leadership.lock import Leadership
from admission.store.ledger import rollup
from admission.store.ledger.past_admissions import past_admissions
from admission.store.ledger.usage_reports import Reports
from admission.store.ledger.usage_series import usage_series
from admission.store.notifications import Notifications
from admission.store.objects.queue_objects import Queues, all_objects
from admission.store.objects.revisions import Revisions
from admission.store.records import LoadedState, Statistics
from admission.store.workloads import checks, loading
from admission.store.workloads.commit import next_revision
from admission.store.workloads.orders import Orders
from admission.store.workloads.queries import Workloads

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence

    from admission.engine.policies.contract import PastAdmission
    from admission.store.database.connection import Database
    from admission.store.dump import Progress, Write
    from admission.store.leadership.identity import Identity
    from admission.store.ledger.usage_series import UsageSeries
    from admission.store.records import PoolUse, WorkloadRecord
    from admission.store.retention import Retention


HEALTH_SECONDS: Final = 1.5
"""For which `health` waits for the database: probes of Kubernetes give up after a second or two."""


class Store:
    """One database. Reads and queue objects are for everybody; `commit` is for the one who has taken the lead."""

    def __init__(self, database: Database, *, clock: Callable[[], float], elapsed: Callable[[], float]) -> None:
        self.revisions = Revisions(database)
        """How far the database has got, on whichever replica it was written: `wait_for`, `wait_for_order`."""
        self.queues = Queues(database, clock=clock, changed=self.revisions.tell)
        """Queue objects: list, get, create, replace, delete, versions, changes_since."""
        self.workloads = Workloads(database)
        """Workloads, for reading: list, get, status numbers."""
        self.orders = Orders(database, clock=clock, changed=self.revisions.tell)
        """What admins order about workloads, and what admission checks say of them: give, report, since, of."""
        self.audit = Audit(database)
        """The audit log, for reading."""
        self.reports = Reports(database, clock=clock)
        """On the ledger: usage, violations. Usage through time: `usage_series`."""
        self.browser_sessions = BrowserSessions(database, clock=clock)
        """Sessions of the dashboard."""
        self._database = database
        self._clock = clock
        self.now = LeadersClock(clock, elapsed)
        """Seconds since the epoch; while it leads not before what the former leader wrote, if clocks differ little."""
        self.notifications = Notifications(
            database, clock=self.now, told=lambda revision: self.revisions.tell(revision, decision=True)
        )
        """What is to be sent to those who have subscribed to it."""
        self._writer = Writer(
            database, clock=self.now, told=lambda revision: self.revisions.tell(revision, decision=True)
        )
        self.commit = self._writer.commit
        """For the leader: write what it has decided (see `Writer.commit`)."""
        self._leadership = Leadership(database)
        database.unblock = self._leadership.unblock if database.location.path is None else None
        self._probe: asyncio.Task[str | None] | None = None
        """The last look at the database for `health`, which may be under way."""

    def use_password_of(self, url: str) -> None:
        """Show the password in `url` to the database from the next connection on. Raises InvalidDatabaseUrl."""
        self._database.location = Location.parse(url)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, url: str, *, clock: Callable[[], float] = time.time, elapsed: Callable[[], float] = time.monotonic
    ) -> AsyncIterator[Store]:
        """The store at `url` (`sqlite:///FILE` or `postgresql://...`), closed at the end of the block.

        `clock` gives seconds since the epoch, `elapsed` those that pass whatever it shows.

        Raises InvalidDatabaseUrl, DatabaseUnavailable (DatabaseBusy), DatabaseUnusable (no rights, no such file, no
        database file) and SchemaMismatch (to be migrated first).
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
            await schema_version.check(database)
            if location.path is not None:
                keep_private(location.path)  # not before: a mistyped path may be a folder, or anybody's file
            yield store

    async def lead(self, holder: str, *, elected: bool = False) -> int:
        """Take the lead as `holder` (host and process, for people) and return the epoch that `commit` wants.

        `elected`: the replicas have agreed to it, so the former leader leads no more, even if it does not know yet.
        Else AlreadyRunning is raised if another Sluice leads.
        """
        lead = await self._leadership.take(holder, at=self._clock(), elected=elected)
        self.now.succeed(lead.last)
        return lead.epoch

    async def holder(self) -> str:
        """The holder of the lead (host and process), for people; empty if there never was one."""
        async with self._database.read() as connection:
            return str((await connection.execute(select(head.c.holder))).scalar_one())

    async def identity(self) -> Identity:
        """Which database this is, which cluster it belongs to, and the epoch of its last leader."""
        return await identity.read(self._database)

    async def note_cluster(self, cluster: str) -> None:
        """The workloads are those of the cluster of that identity, from now on."""
        await identity.note_cluster(self._database, cluster)

    @property
    def location(self) -> str:
        """The location of the database, for people: the absolute path of a file, or a URL without its password."""
        return str(self._database.location)

    @property
    def is_shared(self) -> bool:
        """Whether other machines reach the same database by the same location: not if it is a file."""
        return self._database.location.path is None

    async def load(self) -> LoadedState:
        """The state that a leader starts from, as of one moment."""
        faults: dict[str, Exception] = {}
        async with self._database.read() as connection:
            revision = (await connection.execute(select(head.c.revision))).scalar_one()
            return LoadedState(
                queue_objects=await all_objects(connection),
                workloads=tuple([record async for piece in loading.unfinished(connection, faults) for record in piece]),
                faults=faults,
                revision=revision,
                orders=await connection.run_sync(checks.orders, loading.UNFINISHED),
                checks=await connection.run_sync(checks.checks, loading.UNFINISHED),
                written=await loading.last_written(connection),
                ended=await loading.ended(connection),
            )

    async def unfinished(self) -> AsyncGenerator[list[WorkloadRecord]]:
        """All workloads that are not finished, as of one moment, piece by piece; some ten milliseconds each."""
        async with self._database.read() as connection:
            async for piece in loading.unfinished(connection):
                yield piece

    async def past_admissions(self, *, since: float) -> AsyncGenerator[list[PastAdmission]]:
        """The ledger's rows that end after `since` (seconds since the epoch) or are open, oldest first, in pieces."""
        async with self._database.read() as connection:
            async for piece in past_admissions(connection, since=since):
                yield piece

    async def usage_series(
        self, by: Sequence[str], *, start: float, end: float, step: float, where: Mapping[str, Collection[str]]
    ) -> UsageSeries:
        """Usage until now at most, in buckets of `step` seconds (see `usage_series`)."""
        end = min(end, self._clock())
        return await usage_series(self._database, by, start=start, end=end, step=step, where=where)

    async def roll_up(self, *, epoch: int) -> int:
        """Sum up the ledger's hours that are over (see `rollup`), and return how many. Raises StaleEpoch."""
        return await rollup.roll_up(self._database, now=self.now(), epoch=epoch)

    async def prune(self, policy: Retention, *, epoch: int) -> int:
        """Delete what is older than `policy` keeps (see `retention`); how many workloads. Raises StaleEpoch."""
        return await retention.prune(self._database, policy, now=self.now.believed(), epoch=epoch)

    async def dump(self, write: Write, progress: Progress) -> None:
        """Give all that the database holds, as of one moment, to `write` (see `dump`)."""
        await dump.dump(self._database, write, progress)

    async def restore(self, file: Iterable[bytes], progress: Progress) -> None:
        """Fill the empty database with what `dump` has written. Raises UnusableDump and DatabaseNotEmpty."""
        await dump.restore(self._database, file, progress)

    async def health(self) -> str | None:
        """None if the database answers and can be written as far as is known, else the sentence that says why not.

        It returns within HEALTH_SECONDS, whatever the database does: a look at it that takes longer goes on, is joined
        by the next call, and is never cancelled, because a thread in SQLite that waits for a lock cannot be.
        """
        probe = self._probe
        if probe is None or probe.done():
            probe = self._probe = asyncio.create_task(self._probed(), name="health of the database")
        done, _ = await asyncio.wait({probe}, timeout=HEALTH_SECONDS)
        if done:
            return probe.result()
        if self._database.write_failure is not None:
            return str(self._database.write_failure)
        return (
            f"the database {self.location} does not answer: {HEALTH_SECONDS:g} s were not enough; "
            "check that it runs, is reached by the network, and has a processor and a disk that are not used up"
        )

    async def silence(self) -> str | None:
        """None if the database answers, be it by a refusal, else the sentence of `health`; as soon as that returns."""
        fault = await self.health()
        return fault if self._probe is not None and not self._probe.done() else None

    @property
    def write_failure(self) -> StoreError | None:
        """Why the last attempt to write failed, if it did for a fault of the database."""
        return self._database.write_failure

    async def _probed(self) -> str | None:
        """As `health`, however long it takes.

        Nothing is written to find out, unless the last attempt to write has failed: then a revision without content,
        once there is room for more than that. What a frozen process has locked is unlocked then.
        """
        try:
            if self._database.write_failure is None:
                async with self._database.read() as connection:
                    await connection.execute(select(head.c.revision))
            else:
                if isinstance(self._database.write_failure, DatabaseRefusesWrites):
                    check_room(self._database.location)
                async with self._database.write() as connection:
                    revision = await connection.run_sync(next_revision)
                self.revisions.tell(revision)
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
        """How many connections to the database are in use, and may be."""
        return self._database.pools()

    @property
    def statistics(self) -> Statistics:
        """What was written since the store was opened."""
        return Statistics(write_transactions=self._database.write_transactions, commits=self._writer.commits)
