"""The loop that joins cluster, engine and store: what has arrived, what follows, one commit, then the requests.

A step takes everything that arrived since the last one, so a burst of a thousand Jobs is a few transactions. While the
database does not answer no step is taken; what was decided but perhaps not written is then forgotten, and everything is
derived again from the database and from what is known of the cluster, exactly as after a start.

Of several replicas all watch the cluster and one decides, until another does: `Watching` lasts as long as the process,
and what a lead began with is made anew for the next.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import orjson

from admission.cluster.events import EventRecorder
from admission.cluster.writer import Writer
from admission.controller.acting import Acting
from admission.controller.auditor import Auditor
from admission.controller.desk import Desk
from admission.controller.drain import Drain
from admission.controller.inbox import Inbox
from admission.controller.incoming import Incoming
from admission.controller.lately import used_lately
from admission.controller.observing import Observing
from admission.controller.pace import Pace
from admission.controller.policy import Policy
from admission.controller.recovery import restore
from admission.controller.turns import WAITING, one_at_a_time
from admission.controller.upkeep import Upkeep
from admission.controller.watching import Watching
from admission.engine import Engine
from admission.model.errors import Misconfigured
from admission.store.errors import ContradictsLedger, DatabaseUnavailable, DatabaseUnusable
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from admission.cluster.client import Client
    from admission.controller.tracked import Registry
    from admission.engine import Policy as EnginePolicy
    from admission.engine.events import Admit, Decisions, LocalQueueUsed
    from admission.kinds.base import Kind
    from admission.store.store import Store

log = logging.getLogger(__name__)

GATHER = 0.005
"""Seconds to let a burst gather after the first message of a quiet time."""

REASONS_INTERVAL = 1.0
"""Seconds that new reasons for waiting may wait for a commit to go along with."""

COMPARE_AT_ONCE = 200
"""How many objects are compared with the record in one go, some milliseconds: the webhooks of this process wait."""

REASONS_AT_ONCE = 200
"""How many workloads are explained together; each takes the engine well under a millisecond."""

RETRY = 1.0
"""Seconds between two looks at a database that does not answer."""


class Controller:
    """One cluster, one store, one kind. Every replica runs `watch`; the one that leads runs `decide`."""

    def __init__(
        self,
        *,
        store: Store,
        client: Client,
        kind: Kind,
        policy: Policy | None = None,
        leads: Callable[[], bool] = lambda: True,
        loading: Callable[[], AbstractContextManager[None]] = nullcontext,
        audit_interval: float = 0.0,
    ) -> None:
        """`leads` is asked right before each change of an object: whether this replica still leads for certain.

        `loading`: within it, all that is on record is made into objects that stay.
        `audit_interval`: seconds between two audits; 0: none but those that are asked for.
        """
        self.watching = Watching(client, kind)
        self.context = self.watching.context
        self.inbox = Inbox()
        self.writer = Writer(client, permitted=leads)
        self.events = EventRecorder(client, now=store.now)
        self.flapping = 0
        """How many preemptions were in vain since the start."""
        self._store = store
        self._client = client
        self._kind = kind
        self._loading = loading
        self._policy = policy or Policy()
        self._clock = store.now
        self._epoch = 0
        self._revision = 0
        self._uncompared: dict[str, bytes] = {}
        """Objects that are known and were not yet compared with what is on record, packed, by uid."""
        self._recovered = asyncio.Event()
        self._orders_taken = asyncio.Event()
        self._reads: set[asyncio.Task[None]] = set()
        self._pace = Pace()
        self._asked_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = 0.0
        self._drain = Drain(client, self.inbox)
        self._reset()
        self.auditor = Auditor(
            store,
            client,
            kind,
            self.context,
            lambda: (self._desk, self.inbox),
            interval=audit_interval,
            clock=store.now,
        )

    async def health(self) -> str | None:
        """None once it decides; else the sentence that says what it waits for."""
        if (failure := self.watching.failure()) is not None:
            return failure
        return None if self._recovered.is_set() else "what is on record was not yet compared with the cluster"

    @property
    def policy(self) -> EnginePolicy:
        """What the engine is told in general."""
        return self._policy.engine

    def engine(self) -> Engine | None:
        """The engine that decides, to be read only and at once; None while this replica decides nothing."""
        return self._desk.engine if self._recovered.is_set() else None

    def namespaces(self) -> dict[str, Mapping[str, str]]:
        """The labels of each namespace."""
        return {name: self.context.namespace_labels(name) or {} for name in self.context.namespaces()}

    async def audit(self, *, repair: bool) -> list[dict[str, str]] | None:
        """See `Auditor.documents`; None while this replica decides nothing."""
        return await self.auditor.documents(repair=repair) if self._recovered.is_set() else None

    async def watch(self) -> None:
        """Know the cluster, until cancelled."""
        await self.watching.run()

    async def decide(self, *, epoch: int) -> None:
        """Lead until cancelled; may be called again afterwards. Outages are waited out.

        Raises StaleEpoch, in an ExceptionGroup, if another Sluice has taken over.
        """
        self._epoch = epoch
        self.inbox = Inbox()
        self._drain = Drain(self._client, self.inbox)
        self._orders_taken.set()
        self._uncompared = self.watching.hand_over(self.inbox)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.writer.run(), name="writer")
                group.create_task(self.events.run(), name="events")
                group.create_task(self._drain.run(), name="drain")
                await self.watching.context_synced()
                await self._load()
                group.create_task(self._follow_orders(), name="orders")
                await self._compare()
                await self._first_list()
                self._acting.look_for_the_unseen()
                self._recovered.set()
                self.inbox.wake()
                group.create_task(self.auditor.run(), name="audit")
                await self._loop()
        finally:
            self._recovered.clear()
            self.watching.take_back(self._objects(), self.inbox)
            if self._timer is not None:
                self._timer.cancel()
            self._wakes_at = 0.0
            for task in self._reads:
                task.cancel()
            await asyncio.gather(*self._reads, return_exceptions=True)

    async def _follow_orders(self) -> None:
        while True:
            await self._store.revisions.wait_for_order(self._revision)
            self._orders_taken.clear()
            self.inbox.wake()
            await self._orders_taken.wait()

    # --- starting, and starting anew

    def _reset(self) -> None:
        self._desk = Desk(Engine(self._policy.engine), clock=self._clock)
        self._upkeep = Upkeep(
            kind=self._kind,
            context=self.context,
            desk=self._desk,
            pods_ready=self._policy.pods_ready,
            clock=self._clock,
        )
        self._observing = Observing(self._kind, self.context, self._desk, self._drain, self._upkeep)
        self._acting = Acting(
            kind=self._kind,
            client=self._client,
            writer=self.writer,
            events=self.events,
            inbox=self.inbox,
            context=self.context,
            desk=self._desk,
            observing=self._observing,
            reads=self._reads,
        )
        self._incoming = Incoming(
            kind=self._kind,
            context=self.context,
            desk=self._desk,
            observing=self._observing,
            acting=self._acting,
            upkeep=self._upkeep,
        )

    async def _load(self) -> None:
        """Everything that is committed, as soon as the database answers, and can be written if that was what failed."""
        told = False
        while True:
            try:
                if (fault := await self._store.health()) is None:
                    with self._loading():
                        await self._load_now()
                    return
            except (DatabaseUnavailable, DatabaseUnusable) as error:
                fault = str(error)
            if not told:
                log.error("no decisions until the database is back: %s", fault)
                told = True
            await asyncio.sleep(RETRY)

    async def _load_now(self) -> None:
        state = await self._store.load()
        used: list[LocalQueueUsed] = []
        if (sharing := self._policy.engine.admission_fair_sharing) is not None:
            used = await used_lately(self._store, sharing, state.queue_objects, now=self._clock())
        self._reset()
        self._revision = state.revision
        restore(state, used, desk=self._desk, context=self.context, now=self._clock())
        self._upkeep.restored()

    async def _compare(self, before: Registry | None = None) -> None:
        """What is committed with what is in the cluster; `before` knows what was under way."""
        for number, uid in enumerate(list(self._uncompared), start=1):
            self._observing.see(orjson.loads(self._uncompared.pop(uid)))
            known = before.get(uid) if before is not None else None
            if known is not None and (now := self._desk.registry.get(uid)) is not None:
                now.in_flight, now.refused = known.in_flight, known.refused
            if number % COMPARE_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _first_list(self) -> None:
        """Take in what comes until all objects are known: all the work of a start, none of a takeover."""
        while not self.watching.objects_synced.is_set():
            waiting = asyncio.create_task(self.watching.objects_synced.wait())
            arrived = asyncio.create_task(self.inbox.wait())
            await asyncio.wait({waiting, arrived}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            arrived.cancel()
            self._incoming.messages(self.inbox.take())
        self._incoming.messages(self.inbox.take())

    def _objects(self) -> dict[str, bytes]:
        """All that are known, packed, by uid."""
        seen = {tracked.uid: tracked.raw for tracked in self._desk.registry if tracked.raw is not None}
        return self._uncompared | seen

    async def _begin_anew(self) -> None:
        """After a commit of unknown outcome: the state is what the database says, not what was decided here."""
        before = self._desk.registry
        self._uncompared = self._objects()
        await asyncio.sleep(RETRY)
        await self._load()
        await self._compare(before)
        self._acting.look_for_the_unseen()
        log.info("deciding again")

    # --- the loop

    async def _loop(self) -> None:
        while True:
            await self.inbox.wait()
            await asyncio.sleep(GATHER)
            try:
                if self.auditor.doubts:
                    self.auditor.doubts = False
                    await self._begin_anew()
                await self._take_in_orders()
                self._incoming.messages(self.inbox.take())
                self._upkeep.pass_time()
                self._acting.release_stopped()
                pause = self._pace.pause(time.monotonic(), arrived=self._desk.arrived, wanted=self._desk.is_wanted)
                if pause > 0:
                    self._wake_in(pause)
                else:
                    await self._step()
            except (DatabaseUnavailable, DatabaseUnusable, ContradictsLedger) as error:
                log.error("begins anew, because what was decided may not be on record: %s", error)
                await self._begin_anew()
                self.inbox.wake()

    async def _step(self) -> None:
        """What follows from all that arrived, one commit, then the requests."""
        self._pace.stepped(arrived=self._desk.arrived)
        self._desk.freed, self._desk.arrived = False, 0
        decisions = self._decide()
        for admission in decisions.admitted:
            self._admit(admission)
        for eviction in decisions.evicted:
            self._desk.evict_by_decision(eviction)
        for parking in decisions.parked:
            self._desk.park(parking)
        for flap in decisions.flapping:
            self.flapping += 1
            log.warning("%s", flap.message)
        self._ask_why()
        self._wake_for_time()
        await self._commit()
        self._acting.act()
        if self._desk.dirty or self._desk.batch.urgent:
            self.inbox.wake()

    def _decide(self) -> Decisions:
        engine = self._desk.engine
        if self._upkeep.one_at_a_time:
            return one_at_a_time(engine, now=self._clock(), blocked=self._upkeep.blocked)
        return engine.settle(now=self._clock())

    def _wake_for_time(self) -> None:
        """For what the engine or a deadline will want although nothing happens."""
        times = [at for at in (self._desk.engine.wake_at(), self._upkeep.wake_at()) if at is not None]
        if times:
            self._wake_in(max(min(times) - self._clock(), 0.0))

    def _admit(self, decision: Admit) -> None:
        tracked = self._desk.registry.get(decision.workload.uid)
        if tracked is None or tracked.object is None or tracked.record.state is not State.PENDING:
            self._desk.engine.forget(decision)
            return
        try:
            original = self._acting.original_for(tracked.object, decision.admission)
        except Misconfigured as error:
            self._desk.engine.forget(decision)
            self._desk.bar(tracked, generation=tracked.seen.generation if tracked.seen else 0, message=str(error))
            return
        self._upkeep.admit(tracked, decision, original=original)

    def _ask_why(self) -> None:
        """Not with each step: a reason is no decision, and a thousand Jobs of one shape wait for the same one."""
        now = time.monotonic()
        if now >= self._asked_at + REASONS_INTERVAL:
            self._asked_at = now
            self._desk.ask_why(limit=REASONS_AT_ONCE, untried=WAITING if self._upkeep.one_at_a_time else None)
        if self._desk.untold:
            self._wake_in(REASONS_INTERVAL)

    async def _commit(self) -> None:
        batch = self._desk.batch
        now = time.monotonic()
        if batch.urgent or (not batch.empty and now - self._pace.committed_at >= REASONS_INTERVAL):
            await self._store.commit(replace(batch.take(), known=self._revision), epoch=self._epoch)
            self._pace.committed(time.monotonic())
        elif not batch.empty:
            self._wake_in(self._pace.committed_at + REASONS_INTERVAL - now)

    def _wake_in(self, seconds: float) -> None:
        """Look again after a time, if nothing arrives before; an earlier wakeup makes a later one needless."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now < self._wakes_at <= now + seconds:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._wakes_at = now + seconds
        self._timer = loop.call_later(seconds, self.inbox.wake)

    async def _take_in_orders(self) -> None:
        """What others have written since the last look: before the Jobs that were submitted after it."""
        if self._orders_taken.is_set():
            return
        # Whatever is written while this reads has a higher revision, and is read again if it was seen already.
        revision = self._store.revisions.newest_order
        self._incoming.versions(await self._store.queues.changes_since(self._revision))
        self._incoming.news(await self._store.orders.since(self._revision))
        self._revision = max(self._revision, revision)
        self._orders_taken.set()
