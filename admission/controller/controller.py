"""The loop that joins cluster, engine and store: what has arrived, what follows, one commit, then the requests.

A step takes everything that arrived since the last one, so a burst of a thousand Jobs is a few transactions. While the
database does not answer no step is taken; what was decided but perhaps not written is then forgotten, and everything is
derived again from the database and from what is known of the cluster, exactly as after a start.

All replicas watch the cluster (`ClusterWatches`) and one decides; what a leader begins with is made anew for the next.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING

import orjson

from admission.cluster.events import EventRecorder
from admission.cluster.writer import Writer
from admission.controller.auditing.auditor import Auditor
from admission.controller.decisions.committer import Committer
from admission.controller.decisions.policy_seeds import policy_seeds
from admission.controller.decisions.undecidable import undecidable
from admission.controller.intake.watches import ClusterWatches
from admission.controller.leader import Leader
from admission.controller.recovery import log_start, restore
from admission.controller.state.faults import Faults
from admission.controller.state.inbox import Due, Inbox
from admission.controller.state.policy import Policy
from admission.controller.state.timer import Timer
from admission.controller.workloads.pod_obstacles import PodObstacles
from admission.controller.workloads.pod_waiter import PodWaiter
from admission.controller.workloads.renderings import sources_first
from admission.model import sentences
from admission.model.errors import SluiceError
from admission.store.errors import DatabaseUnavailable, DatabaseUnusable, Unwritable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from admission.cluster.client import Client
    from admission.controller.state.leader_state import Registry
    from admission.controller.state.tracked import StoredObject
    from admission.engine import Engine
    from admission.engine import Policy as EnginePolicy
    from admission.kinds.registry import Kinds
    from admission.model.queues import QueueObject
    from admission.serving.tracing import Tracing
    from admission.store.store import Store

log = logging.getLogger(__name__)

GATHER = 0.005
"""Seconds to let a burst gather after the first message of a quiet time."""

COMPARE_AT_ONCE = 200
"""How many objects are compared with the record in one go, some milliseconds: the webhooks of this process wait."""

RETRY = 1.0
"""Seconds between two looks at a database that does not answer, and before the first new beginning."""

LONGEST_RETRY = 30.0
"""Seconds before a new beginning, at most, when many have failed."""


class Controller:
    """One cluster, one store. Every replica runs `watch`; the one that leads runs `decide`."""

    def __init__(
        self,
        *,
        store: Store,
        client: Client,
        kinds: Kinds,
        policy: Policy | None = None,
        leads: Callable[[], bool] = lambda: True,
        loading: Callable[[], AbstractContextManager[None]] = nullcontext,
        audit_interval: float = 0.0,
        tracing: Tracing | None = None,
    ) -> None:
        """`leads` is asked right before each change of an object: whether this replica still leads for certain.

        `loading`: within it, all that is on record is made into objects that stay.
        `audit_interval`: seconds between two audits; 0: none but those that are asked for. `tracing`: where spans go.
        """
        self.watches = ClusterWatches(client, kinds)
        self.context = self.watches.context
        self.inbox = Inbox()
        self.writer = Writer(client, permitted=leads, on_patched=self.watches.lag.answered)
        self.events = EventRecorder(client, busy=lambda: self.writer.busy, now=store.now)
        self._store = store
        self._client = client
        self._kinds = kinds
        self.faults = Faults(store.now)
        """Workloads that made it fail, and are left alone."""
        self._loading = loading
        self._policy = policy or Policy()
        self._clock = store.now
        self._epoch = 0
        self._revision = 0
        self._uncompared: dict[str, StoredObject] = {}
        """Objects that are known and were not yet compared with what is on record, by uid."""
        self._pod_obstacles: PodObstacles | None = None
        self._recovered = asyncio.Event()
        self._orders_taken = asyncio.Event()
        self._reads: set[asyncio.Task[None]] = set()
        self._timer = Timer()
        self._committer = Committer(store, self.events, self.faults, tracing)
        self.metrics = self._committer.metrics
        self._doubtful = False
        """Whether what it works on may differ from what is on record, so that it has to begin anew."""
        self.database_fault: str | None = None
        """Why it could not write or load, until it has loaded again; None: it could, when it last tried."""
        self._undecidable = False
        """Whether decisions have failed, for a reason that is still to be found."""
        self._failures = 0
        """How often it began anew since the last step that succeeded."""
        self._queue_objects: tuple[QueueObject, ...] = ()
        """As they were when the state was loaded."""
        self._pod_waiter = PodWaiter(client, self.inbox)
        self.auditor = Auditor(store, client, kinds, self.context, interval=audit_interval, clock=store.now)
        self._reset()

    async def health(self) -> str | None:
        """None once it decides; else the sentence that says what it waits for."""
        compared = None if self._recovered.is_set() else "what is on record was not yet compared with the cluster"
        return self.watches.failure() or compared

    @property
    def decides(self) -> bool:
        """Whether it leads, has recovered, and neither waits for API server or database nor begins anew."""
        return self._recovered.is_set() and self.watches.probe.failure is None and not self._doubtful

    def standstill(self) -> str:
        """What keeps it from deciding, or would if it led, as a sentence; empty: nothing does."""
        unwritable = self._recovered.is_set() and self.database_fault is not None
        return sentences.standstill(silent=self.watches.probe.failure is not None, unwritable=unwritable)

    @property
    def policy(self) -> EnginePolicy:
        """What the engine is told in general."""
        return self._policy.engine

    def engine(self) -> Engine | None:
        """The engine that decides, to be read only and at once; None while this replica decides nothing."""
        return self._state.engine if self._recovered.is_set() else None

    def namespaces(self) -> dict[str, Mapping[str, str]]:
        """The labels of each namespace."""
        return {name: self.context.namespace_labels(name) or {} for name in self.context.namespaces()}

    def time_limits(self) -> dict[str, float]:
        """Seconds for which each workload that has a limit may run, from its next or last start on, by uid."""
        return self._state.registry.time_limits()

    async def audit(self, *, repair: bool) -> list[dict[str, str]] | None:
        """See `Auditor.documents`; None while this replica decides nothing."""
        return await self.auditor.documents(repair=repair) if self._recovered.is_set() else None

    async def watch(self) -> None:
        """Know the cluster, until cancelled."""
        await self.watches.run()

    async def decide(self, *, epoch: int) -> None:
        """Leader until cancelled; may be called again afterwards. Outages are waited out.

        Raises StaleEpoch, in an ExceptionGroup, if another Sluice has taken over.
        """
        self._epoch, self.inbox = epoch, Inbox()
        self._pod_waiter = PodWaiter(self._client, self.inbox)
        self._reset()
        readiness, groups = self._leader.reconciler.readiness, self._leader.groups
        obstacles = self._pod_obstacles = PodObstacles(self._client, self.inbox, readiness, groups, clock=self._clock)
        self._orders_taken.set()
        self._uncompared = self.watches.hand_over(self.inbox)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.writer.run(), name="writer")
                group.create_task(self.events.run(), name="events")
                group.create_task(self._pod_waiter.run(), name="pod waiter")
                group.create_task(self._committer.workload_events.run(), name="workload events")
                group.create_task(obstacles.run(), name="pod obstacles")
                await self.watches.context_synced()
                await self._load()
                group.create_task(self._follow_orders(), name="orders")
                await self._compare()
                await self._first_list()
                log_start(self._state.registry)
                self._leader.requests.look_for_the_unseen(self.watches.unlisted())
                self._recovered.set()
                self.inbox.wake()
                group.create_task(self.auditor.run(), name="audit")
                await self._loop()
        finally:
            self._recovered.clear()
            self.watches.take_back(self._uncompared | self._leader.objects(), self.inbox)
            self._timer.cancel()
            self._committer.work_log.flush()
            for task in self._reads:
                task.cancel()
            await asyncio.gather(*self._reads, return_exceptions=True)

    async def _follow_orders(self) -> None:
        while True:
            await self._store.revisions.wait_for_external(self._revision)
            self._orders_taken.clear()
            self.inbox.wake()
            await self._orders_taken.wait()

    def _reset(self) -> None:
        self._leader = Leader(
            kinds=self._kinds,
            client=self._client,
            watches=self.watches,
            policy=self._policy,
            inbox=self.inbox,
            pod_waiter=self._pod_waiter,
            writer=self.writer,
            events=self.events,
            faults=self.faults,
            reads=self._reads,
            traces=self._committer.traces,
            clock=self._clock,
        )
        self._state = self._leader.state
        self.auditor.begin(self._state, self.inbox)
        if self._pod_obstacles is not None:
            self._pod_obstacles.begin(self._leader.reconciler.readiness, self._leader.groups)

    async def _load(self) -> None:
        """Everything that is committed, as soon as the database answers, and can be written if that was what failed."""
        told = False
        while True:
            try:
                if (fault := await self._store.health()) is None:
                    with self._loading():
                        await self._load_now()
                    self.database_fault = None
                    return
            except (DatabaseUnavailable, DatabaseUnusable) as error:
                fault = str(error)
            self.database_fault = fault
            if not told:
                log.error("no decisions until the database is back: %s", fault)
                told = True
            await asyncio.sleep(RETRY)

    async def _load_now(self) -> None:
        loaded = await self._store.load()
        seeds = await policy_seeds(self._store, self.policy, loaded.queue_objects, now=self._clock())
        self._reset()
        self._revision, self._queue_objects = loaded.revision, loaded.queue_objects
        for uid, error in loaded.faults.items():
            self.faults.report(f"the row of workload {uid}", error)
        restore(
            loaded, seeds, state=self._state, context=self.context, kinds=self._kinds, isolation=self._leader.isolation
        )
        self._leader.reconciler.readiness.restored()
        self._committer.workload_events.begin(
            (tracked.record for tracked in self._state.registry), loaded.last_transition_at
        )

    async def _compare(self, before: Registry | None = None) -> None:
        """What is committed with what is in the cluster; `before` knows what was under way."""
        for number, uid in enumerate(sources_first(self._uncompared, self._kinds), start=1):
            self._state.now = self._clock()
            kind, raw = self._uncompared.pop(uid)
            self._leader.children.see(kind, orjson.loads(raw))
            former = before.get(uid) if before is not None else None
            if former is not None and (now := self._state.registry.get(uid)) is not None:
                now.in_flight, now.refused = former.in_flight, former.refused
            if number % COMPARE_AT_ONCE == 0:
                await asyncio.sleep(0)
        self._leader.groups.tell()
        self._set_aside()

    async def _first_list(self) -> None:
        """Take in what comes until all objects are known: all the work of a start, none of a takeover."""
        while not self.watches.objects_synced.is_set():
            waiting = asyncio.create_task(self.watches.objects_synced.wait())
            arrived = asyncio.create_task(self.inbox.wait())
            await asyncio.wait({waiting, arrived}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            arrived.cancel()
            self._take_in()
        self._take_in()
        self._set_aside()

    async def _begin_anew(self) -> None:
        """After a commit of unknown outcome: the state is what the database says, not what was decided here."""
        before = self._state.registry
        self._uncompared = self._uncompared | self._leader.objects()
        await asyncio.sleep(min(RETRY * 2**self._failures, LONGEST_RETRY))
        self._failures += 1
        await self._load()
        if self._undecidable:  # those are left alone with which decisions fail
            suspects = undecidable(self.policy, self.context, self._queue_objects, before, now=self._clock)
            async for tracked, error in suspects:
                self.faults.note(tracked.uid, "" if tracked.seen is None else tracked.seen.resource_version, error)
        self._doubtful = self._undecidable = False
        await self._compare(before)
        self._leader.requests.look_for_the_unseen(self.watches.unlisted())
        log.info("deciding again")

    def _set_aside(self) -> bool:
        """Set aside the workloads that failed; False: that is not enough, and the leader has to begin anew."""
        for uid in self._leader.isolation.settle() if self._leader.isolation.failures else ():
            self._doubtful = True
            if pause := self.faults.postpone(uid):
                asyncio.get_running_loop().call_later(pause, self.inbox.put, Due(uid))
        return not self._doubtful

    async def _loop(self) -> None:
        while True:
            try:
                if self._doubtful:
                    await self._begin_anew()
                    self.inbox.wake()
                await self.inbox.wait()
                if self.watches.probe.failure is not None:  # what cannot be asked is not decided on old knowledge
                    await self.watches.probe.wait_until_alive()
                await asyncio.sleep(GATHER)
                await self._turn()
            except (DatabaseUnavailable, DatabaseUnusable, Unwritable) as error:
                log.error("begins anew, because what was decided may not be on record: %s", error)
                self._doubtful = True
                self.database_fault = None if isinstance(error, Unwritable) else str(error)
            except SluiceError:
                raise
            except Exception as error:  # noqa: BLE001  a defect must not end it: it would be there at each start again
                self.faults.report("a cycle of decisions", error)
                self._doubtful = self._undecidable = True

    async def _turn(self) -> None:
        """Take in what has arrived, and decide if that is due."""
        if self.auditor.doubts:
            self.auditor.doubts = False
            await self._begin_anew()
        if not self._orders_taken.is_set():
            await self._take_in_orders()
        self._take_in()
        self._leader.reconciler.pass_time()
        if self._state.dirty:
            self._leader.requests.release_stopped()
        if not self._set_aside():
            return
        arrived, wanted = self._state.arrived, self._state.freed and self._state.is_wanted
        pause = self._committer.batching.due_in(time.monotonic(), arrived=arrived, wanted=wanted)
        if pause > 0:
            self._timer.set(pause, self.inbox.wake)
            return
        try:
            await self._step()
        finally:
            self._committer.tell()
        self._failures = 0

    async def _step(self) -> None:
        """What follows from all that arrived, one commit, then the requests."""
        self._state.freed, self._state.arrived = False, 0
        began = time.perf_counter()
        decisions = self._leader.scheduler.decide()
        self._committer.decided(decisions, time.perf_counter() - began, self._state.engine.cluster_queue_of)
        if not self._set_aside():
            return
        try:
            due_in = await self._committer.commit(
                self._state.batch, self._leader.isolation, known=self._revision, epoch=self._epoch
            )
        except Unwritable:
            self._set_aside()
            raise
        self._leader.requests.send_due()
        self._set_aside()
        if self._state.dirty or self._state.batch.urgent:
            self.inbox.wake()
        await asyncio.sleep(0)  # they leave before anything is counted or logged, or the next step is thought of
        for pause in (due_in, self._leader.scheduler.seconds_until_next(self._clock())):
            if pause is not None:
                self._timer.set(pause, self.inbox.wake)

    def _take_in(self) -> None:
        """What has arrived, at this moment."""
        self._state.now = self._clock()
        self._leader.dispatcher.messages(self.inbox.take())

    async def _take_in_orders(self) -> None:
        """What others have written since the last look: before the Jobs that were submitted after it."""
        # Whatever is written while this reads has a higher revision, and is read again if it was seen already.
        revision = self._store.revisions.newest_external
        versions = await self._store.queues.changes_since(self._revision)
        news = await self._store.orders.since(self._revision)
        self._state.now = self._clock()
        self._leader.dispatcher.versions(versions)
        self._leader.dispatcher.news(news)
        self._revision = max(self._revision, revision)
        self._orders_taken.set()
