"""Writes what a step has changed, in one transaction, when it is due, and tells those who count and log of it."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from admission.controller.decisions.scheduler import REASONS_INTERVAL
from admission.controller.state.metrics import LeaderMetrics
from admission.controller.state.traces import Traces
from admission.controller.state.work_log import WorkLog
from admission.controller.state.workload_events import TELLS_WHY, WorkloadEvents
from admission.controller.workloads.requests import reference
from admission.store.errors import ContradictsLedger, Unwritable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from admission.cluster.events import EventRecorder
    from admission.controller.state.faults import Faults
    from admission.controller.state.isolation import Isolation
    from admission.controller.state.leader_state import Batch
    from admission.engine import Decisions
    from admission.serving.tracing import Tracing
    from admission.store.records import Changes, WorkloadRecord
    from admission.store.store import Store

log = logging.getLogger(__name__)

BATCH_SIZE: Final = 25
"""Arrivals after which a commit is due at once."""

INTERVAL: Final = 0.2
"""Seconds between two commits, at most, while Jobs wait that have arrived."""

BUSY_INTERVAL: Final = 1.0
"""The same in a busy time, when the machine is slow and a batch is certain to fill up."""

SILENCE: Final = 0.1
"""Seconds without an arrival after which a busy time is over. In a stream of 25 Jobs a second they are 40 ms apart."""

BUSY_BATCH: Final = 5
"""A time is busy if a commit takes so many arrivals along: `BATCH_SIZE` arrive within `BUSY_INTERVAL`, at that rate."""

SHORTEST_INTERVAL: Final = 0.01
"""Seconds between two commits, at least, also when quota has become free that waiting workloads could use."""


class Committer:
    """Lasts as long as the process: its counters do not begin anew with each leader."""

    def __init__(self, store: Store, events: EventRecorder, faults: Faults, tracing: Tracing | None = None) -> None:
        self.batching = CommitBatching()
        self.traces = None if tracing is None else Traces(tracing)
        self.metrics = LeaderMetrics(None if tracing is None else tracing.exemplar)
        self.work_log = WorkLog()
        self.workload_events = WorkloadEvents(self._record_event, clock=store.now)
        self._store = store
        self._events = events
        self._faults = faults
        self._untold: list[Callable[[], None]] = []
        """What is to be counted and logged of the decisions and the commit of this step, in this order."""

    def decided(self, decisions: Decisions, seconds: float, queue_of: Callable[[str], str]) -> None:
        """A round of decisions has taken `seconds`. `queue_of` tells the ClusterQueue of a workload by uid."""
        for flap in decisions.flapping:
            self._untold.append(partial(self.work_log.tell_in_vain, flap, queue_of(flap.preemptor.uid)))
        exemplar = None if self.traces is None else self.traces.decided(decisions, seconds)
        self._untold.append(partial(self.metrics.decided, decisions, seconds, queue_of, exemplar))

    async def commit(self, batch: Batch, isolation: Isolation, *, known: int, epoch: int) -> float | None:
        """Write the batch if that is due; the seconds until it is due, if it may wait.

        `known`: the revision up to which what others write was taken in. Raises StaleEpoch, DatabaseUnavailable,
        DatabaseUnusable, and Unwritable if nothing was written; then it is not known what the database has.
        """
        if not batch.urgent:
            if batch.empty:
                return None
            if (due_in := self.batching.committed_at + REASONS_INTERVAL - time.monotonic()) > 0:
                return due_in
        changes = batch.take(known=known)
        began = time.perf_counter()
        try:
            try:
                await self._store.commit(changes, epoch=epoch)
            finally:
                seconds = time.perf_counter() - began
                exemplar = None if self.traces is None else self.traces.wrote(changes, seconds)
                self.metrics.commit_seconds.observe(seconds, exemplar)
            self._written(changes)
        except Unwritable as error:
            self._note_unwritten(error, isolation)
            self._written(changes, unwritten=error.faults)
        self.batching.committed_at = time.monotonic()
        return None

    def _written(self, changes: Changes, *, unwritten: Collection[str] = ()) -> None:
        if self.traces is not None:
            self.traces.committed(changes, unwritten=unwritten)
        for teller in (self.metrics.committed, self.work_log.tell, self.workload_events.tell):
            self._untold.append(partial(teller, changes, unwritten=unwritten))

    def tell(self) -> None:
        """Count, log and write Events of what was decided and committed: at the end of a step, after its requests."""
        untold, self._untold = self._untold, []
        for told in untold:
            told()

    def _record_event(self, record: WorkloadRecord, reason: str, note: str, warning: bool, occasion: str) -> None:
        """Write an Event about a workload's object, and a line of the log if it tells why the workload waits."""
        regarding = reference(record.workload)
        self._events.record(regarding, reason=reason, action=reason, note=note, warning=warning, occasion=occasion)
        if reason in TELLS_WHY:  # all others have their line already
            self.work_log.tell_waiting(record, note)

    def _note_unwritten(self, error: Unwritable, isolation: Isolation) -> None:
        """Some of it was not written: those workloads are left alone. Raises `error` if nothing was."""
        for uid, cause in error.faults.items():
            # What is in the way may be what was decided here on a wrong belief: that gets a second chance.
            if not isinstance(error, ContradictsLedger) or self._faults.suspect(uid):
                isolation.failed(uid, cause)
        if error.revision is None:
            raise error
        log.error("%s; the others were written", error)


class CommitBatching:
    """When the next commit is due: at once in a quiet time, and after a batch of arrivals in a busy one.

    A stream of 25 Jobs a second or more is one commit for each `BATCH_SIZE` of them, however slow the machine is.

    A Job that comes alone does not wait, and the last ones of a stream wait for `SILENCE`. Times are in seconds, of a
    clock that never goes back.
    """

    def __init__(self) -> None:
        self.committed_at = -INTERVAL
        """When the last commit was done."""
        self._is_busy = False
        self._arrived, self._arrived_at = 0, -INTERVAL
        """How many had arrived when it was last asked, and when it saw the last of them."""

    def due_in(self, now: float, *, arrived: int, wanted: bool) -> float:
        """Seconds until the next commit is due; zero or less: it is, and the decisions that it writes are made now.

        `arrived`: the number of Jobs that arrived since the last one. `wanted`: whether quota has become free since
        then that waiting workloads could use.
        """
        if arrived > self._arrived:
            self._arrived_at = now
        self._arrived = arrived
        due = self.committed_at + INTERVAL
        if wanted or arrived >= BATCH_SIZE:
            due = self.committed_at + SHORTEST_INTERVAL
        elif self._is_busy:
            due = max(due, min(self.committed_at + BUSY_INTERVAL, self._arrived_at + SILENCE))
        if due <= now:
            self._is_busy, self._arrived = arrived >= BUSY_BATCH, 0
        return due - now
