"""The loop that joins cluster, engine and store: what has arrived, what follows, one commit, then the requests.

A step takes everything that arrived since the last one, so a burst of a thousand Jobs is a few transactions. While the
database does not answer no step is taken; what was decided but perhaps not written is then forgotten, and everything is
derived again from the database and from what is known of the cluster, exactly as after a start.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from admission.cluster.events import EventRecorder
from admission.cluster.informer import Informer
from admission.cluster.writer import Writer
from admission.controller.acting import Acting
from admission.controller.context import PATHS, Context
from admission.controller.desk import BARS, Desk
from admission.controller.drain import Drain
from admission.controller.inbox import ContextChanged, Due, Inbox, ObjectsChanged, PodsGone, StepDone
from admission.controller.observing import Observing
from admission.controller.tracked import Tracked
from admission.engine import Engine
from admission.engine.events import (
    NamespaceChanged,
    QueueObjectChanged,
    QueueObjectDeleted,
    WorkloadAdmitted,
    WorkloadPending,
)
from admission.model.errors import Misconfigured, StoreError
from admission.model.queues import WorkloadPriorityClass
from admission.store.errors import DatabaseUnavailable, DatabaseUnusable
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.cluster.client import Client
    from admission.cluster.informer import Change
    from admission.controller.inbox import Message
    from admission.engine.events import Admit
    from admission.kinds.base import Kind
    from admission.store.records import WorkloadRecord
    from admission.store.store import Store

log = logging.getLogger(__name__)

GATHER = 0.005
"""Seconds to let a burst gather after the first message of a quiet time."""

INTERVAL = 0.2
COMPANY = 25
"""In a busy time a Job that arrives waits for so many others, or at most for so many seconds since the last commit."""

QUICK = 0.01
"""Seconds between two commits when quota has become free: what is idle is worth more than a transaction."""

REASONS_INTERVAL = 1.0
"""Seconds that new reasons for waiting may wait for a commit to go along with."""

REASONS_AT_ONCE = 200
"""How many workloads are explained together; each takes the engine well under a millisecond."""

RETRY = 1.0
"""Seconds between two looks at a database that does not answer."""


class Controller:
    """One cluster, one store, one kind; the process that runs it leads."""

    def __init__(
        self,
        *,
        store: Store,
        client: Client,
        kind: Kind,
        epoch: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.context = Context()
        self.inbox = Inbox()
        self.writer = Writer(client)
        self.events = EventRecorder(client, now=clock)
        self._store = store
        self._client = client
        self._kind = kind
        self._epoch = epoch
        self._clock = clock
        self._revision = 0
        self._objects = Informer(client, f"/apis/{kind.group}/{kind.version}/{kind.plural}")
        self._context_informers = {resource: Informer(client, path) for resource, path in PATHS.items()}
        self._drain = Drain(client, self.inbox)
        self._recovered = asyncio.Event()
        self._queues_taken = asyncio.Event()
        self._queues_taken.set()
        self._reads: set[asyncio.Task[None]] = set()
        self._committed_at = 0.0
        self._asked_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = 0.0
        self._reset()

    async def health(self) -> str | None:
        """None once it decides; else the sentence that says what it waits for."""
        for informer in (*self._context_informers.values(), self._objects):
            if informer.failure is not None:
                return str(informer.failure)
        return None if self._recovered.is_set() else "the first lists from the API server are not complete yet"

    async def run(self) -> None:
        """Decide until cancelled. StaleEpoch if another Sluice has taken over; other errors are waited out."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.writer.run(), name="writer")
            group.create_task(self.events.run(), name="events")
            group.create_task(self._drain.run(), name="drain")
            for resource, informer in self._context_informers.items():
                group.create_task(self._follow_context(resource, informer), name=resource)
            for informer in self._context_informers.values():
                await informer.synced.wait()
            self.inbox.take()  # what is known by now is loaded with the rest
            await self._load()
            group.create_task(self._follow_objects(), name=self._kind.plural)
            group.create_task(self._follow_queues(), name="queues")
            try:
                await self._first_sync()
                await self._loop()
            finally:
                for task in self._reads:
                    task.cancel()
                await asyncio.gather(*self._reads, return_exceptions=True)

    # --- where messages come from

    async def _follow_objects(self) -> None:
        async for batch in self._objects.batches():
            await self.inbox.offer(batch)

    async def _follow_context(self, resource: str, informer: Informer) -> None:
        async for batch in informer.batches():
            for namespace in {self.context.see(resource, change) for change in batch}:
                self.inbox.put(ContextChanged(namespace))

    async def _follow_queues(self) -> None:
        while True:
            await self._store.queues_changed(self._revision)
            self._queues_taken.clear()
            self.inbox.wake()
            await self._queues_taken.wait()

    # --- starting, and starting anew

    def _reset(self) -> None:
        self._desk = Desk(Engine(), clock=self._clock)
        self._observing = Observing(self._kind, self.context, self._desk, self._drain)
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

    async def _load(self) -> None:
        """Everything that is committed, into an empty engine and registry."""
        state = await self._store.load()
        self._revision = state.revision
        for namespace in self.context.namespaces():
            self._desk.tell(NamespaceChanged(namespace, self.context.namespace_labels(namespace)))
        for obj in state.queue_objects:
            self.context.see_queue_object(obj)
            self._desk.tell(QueueObjectChanged(obj))
        for record in state.workloads:
            self._restore(record)

    def _restore(self, record: WorkloadRecord) -> None:
        held = record.state is State.PENDING and record.reason in BARS
        self._desk.registry.add(Tracked(record=record, held=held))
        if record.admission is not None:
            evicting = record.state is State.EVICTING
            at = record.admitted_at if record.admitted_at is not None else record.queued_at
            self._desk.tell(WorkloadAdmitted(record.workload, record.admission, at=at, evicting=evicting))
        else:
            self._desk.tell(WorkloadPending(record.workload, held=held))

    async def _first_sync(self) -> None:
        """Compare what is committed with the whole first list before anything is decided."""
        while not self._objects.synced.is_set():
            waiting = asyncio.create_task(self._objects.synced.wait())
            arrived = asyncio.create_task(self.inbox.wait())
            await asyncio.wait({waiting, arrived}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            arrived.cancel()
            self._take_in(self.inbox.take())
        self._take_in(self.inbox.take())
        for tracked in self._unseen():  # on record, but not in the cluster
            self._observing.gone(tracked)
        self._recovered.set()
        self.inbox.wake()

    async def _begin_anew(self) -> None:
        """After a commit of unknown outcome: the state is what the database says, not what was decided here."""
        before = self._desk.registry
        while True:
            await asyncio.sleep(RETRY)
            self._reset()
            try:
                await self._load()
            except StoreError as error:
                log.warning("no decisions: %s", error)
            else:
                break
        for tracked in before:
            if tracked.object is not None:
                self._observing.see(tracked.object)
                if (now := self._desk.registry.get(tracked.uid)) is not None:
                    now.in_flight, now.refused = tracked.in_flight, tracked.refused
        for tracked in self._unseen():  # what had ended when the commit failed is not known here any more
            self._acting.look(tracked)
        log.info("deciding again")

    def _unseen(self) -> list[Tracked]:
        return [tracked for tracked in self._desk.registry if tracked.seen is None]

    # --- the loop

    async def _loop(self) -> None:
        while True:
            await self.inbox.wait()
            await asyncio.sleep(GATHER)
            try:
                await self._take_in_queues()
                self._take_in(self.inbox.take())
                self._acting.release_stopped()
                hurry = self._desk.freed or self._desk.arrived >= COMPANY
                pause = self._committed_at + (QUICK if hurry else INTERVAL) - time.monotonic()
                if pause > 0:
                    self._wake_in(pause)
                else:
                    await self._step()
            except (DatabaseUnavailable, DatabaseUnusable) as error:
                log.error("no decisions until the database is back: %s", error)
                await self._begin_anew()
                self.inbox.wake()

    async def _step(self) -> None:
        """What follows from all that arrived, one commit, then the requests."""
        self._desk.freed, self._desk.arrived = False, 0
        decisions = self._desk.engine.settle(now=self._clock())
        for admission in decisions.admitted:
            self._admit(admission)
        for eviction in decisions.evicted:
            self._desk.evict_by_decision(eviction)
        for parking in decisions.parked:
            self._desk.park(parking)
        self._ask_why()
        await self._commit()
        self._acting.act()
        if self._desk.dirty or self._desk.batch.urgent:
            self.inbox.wake()

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
        self._desk.admit(tracked, decision, original=original)

    def _ask_why(self) -> None:
        """Not with each step: a reason is no decision, and a thousand Jobs of one shape wait for the same one."""
        now = time.monotonic()
        if now >= self._asked_at + REASONS_INTERVAL:
            self._asked_at = now
            self._desk.ask_why(limit=REASONS_AT_ONCE)
        if self._desk.untold:
            self._wake_in(REASONS_INTERVAL)

    async def _commit(self) -> None:
        batch = self._desk.batch
        now = time.monotonic()
        if batch.urgent or (not batch.empty and now - self._committed_at >= REASONS_INTERVAL):
            await self._store.commit(batch.take(), epoch=self._epoch)
            self._committed_at = time.monotonic()
        elif not batch.empty:
            self._wake_in(self._committed_at + REASONS_INTERVAL - now)

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

    def _take_in(self, messages: list[Message]) -> None:
        for message in messages:
            match message:
                case ObjectsChanged(changes):
                    for change in changes:
                        self._object_changed(change)
                case StepDone():
                    self._acting.done(message)
                case Due():
                    self._acting.due(message)
                case PodsGone(uid):
                    if (tracked := self._desk.registry.get(uid)) is not None:
                        self._observing.pods_gone(tracked)
                case ContextChanged(namespace):
                    self._context_changed(namespace)

    def _object_changed(self, change: Change) -> None:
        if change.type != "DELETED" and change.object is not None:
            self._observing.see(change.object)
        elif (tracked := self._desk.registry.get(change.uid)) is not None:
            if change.object is not None:
                tracked.seen = self._kind.observe(change.object)
            self._observing.gone(tracked)

    def _context_changed(self, namespace: str) -> None:
        if namespace:
            self._desk.tell(NamespaceChanged(namespace, self.context.namespace_labels(namespace)))
        for tracked in list(self._desk.registry):
            if not namespace or tracked.record.workload.namespace == namespace:
                self._observing.look_again(tracked)

    async def _take_in_queues(self) -> None:
        """Queue objects that were written since the last look: before the Jobs that were submitted after them."""
        if self._queues_taken.is_set():
            return
        self._desk.freed = True
        for version in await self._store.queues.changes_since(self._revision):
            kind, namespace, name = version.object.key
            if version.operation == "delete":
                self.context.forget_queue_object(kind, namespace, name)
                self._desk.tell(QueueObjectDeleted(kind, namespace, name))
            else:
                self.context.see_queue_object(version.object)
                self._desk.tell(QueueObjectChanged(version.object))
            self._revision = max(self._revision, version.revision)
            if kind == WorkloadPriorityClass.kind:
                self._context_changed("")
        self._queues_taken.set()
