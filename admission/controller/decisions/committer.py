"""Commits of the leader: batching, the transaction, and metrics, traces, log lines and Events after it."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from admission.controller.decisions.scheduler import REASONS_INTERVAL
from admission.controller.state.metrics import LeaderMetrics
from admission.controller.state.traces import Traces
from admission.controller.state.work_log import WorkLog
from admission.controller.state.workload_events import REASONS_FOR_WAITING, WorkloadEvents
from admission.controller.workloads.plan import reference
from admission.store.errors import ContradictsLedger, Unwritable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from admission.cluster.events import EventRecorder
    from admission.controller.state.faults import Faults
    from admission.controller.state.leader_state import Batch
    from admission.controller.workloads.failed_pods import FailedPods
    from admission.engine import Decisions
    from admission.serving.tracing import Tracing
    from admission.store.records import Changes, WorkloadRecord
    from admission.store.store import Store

log = logging.getLogger(__name__)

BATCH_SIZE: Final = 25
"""Arrivals with which a commit is due immediately (after `MIN_INTERVAL`)."""

INTERVAL: Final = 0.2
"""Seconds after the last commit at which the next one is due, if Jobs have arrived and there is no burst."""

BURST_INTERVAL: Final = 1.0
"""The same during a burst, in which a batch is likely to fill up even if the machine is slow."""

BURST_GAP: Final = 0.1
"""Seconds without an arrival after which a commit no longer waits. At 25 Jobs a second arrivals are 40 ms apart."""

BURST_SIZE: Final = 5
"""Arrivals in a commit that begin a burst: at that rate `BATCH_SIZE` arrive within `BURST_INTERVAL`."""

MIN_INTERVAL: Final = 0.01
"""Seconds between two commits at least, also when quota was released that pending workloads could use."""


class Committer:
    """Commits and reports the leader's batches. One for the process: its counters outlast each leader's state."""

    def __init__(
        self,
        store: Store,
        faults: Faults,
        tracing: Tracing | None,
        events: Callable[[str], EventRecorder | None],
        failed_pods: Callable[[], Iterable[FailedPods]],
    ) -> None:
        """`events`: returns the recorder of a cluster, None if it has left. `failed_pods`: returns those of all."""
        self.batching = CommitBatching()
        self.traces = None if tracing is None else Traces(tracing)
        self.metrics = LeaderMetrics(None if tracing is None else tracing.exemplar)
        self.work_log = WorkLog()
        self.workload_events = WorkloadEvents(self._record_event, clock=store.now)
        self._store = store
        self._events = events
        self._faults = faults
        self._failed_pods = failed_pods
        self._reports: list[Callable[[], None]] = []
        """Deferred calls that count and log the decisions and the commit of this iteration, in this order."""

    def decided(self, decisions: Decisions, seconds: float, queue_of: Callable[[str], str]) -> None:
        """Note a decision round that took `seconds`. `queue_of`: returns the ClusterQueue of a workload by uid."""
        for flap in decisions.flapping:
            self._reports.append(partial(self.work_log.log_flap, flap, queue_of(flap.preemptor.uid)))
        exemplar = None if self.traces is None else self.traces.decided(decisions, seconds)
        self._reports.append(partial(self.metrics.decided, decisions, seconds, queue_of, exemplar))

    async def commit(
        self, batch: Batch, failed: Callable[[str, Exception], None], *, known: int, epoch: int
    ) -> float | None:
        """Commit the batch if it is due, else return the seconds until it is; None: it was written, or is empty.

        `failed`: called with the uid of a workload that could not be written, and why. `known`: revision up to which
        the leader has read what other writers changed. Raises StaleEpoch, DatabaseUnavailable and DatabaseUnusable, and
        Unwritable if nothing was written. After any of them it is not known whether the database matches the state in
        memory.
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
            self._note_unwritten(error, failed)
            self._written(changes, unwritten=error.faults)
        self.batching.committed_at = time.monotonic()
        return None

    def _written(self, changes: Changes, *, unwritten: Collection[str] = ()) -> None:
        """Trace a commit, and defer its metrics, log lines and Events until `flush_reports`."""
        if self.traces is not None:
            self.traces.committed(changes, unwritten=unwritten)
        reports = (
            self.metrics.committed,
            self.work_log.committed,
            self.workload_events.committed,
            *(each.committed for each in self._failed_pods()),
        )
        for report in reports:
            self._reports.append(partial(report, changes, unwritten=unwritten))

    def flush_reports(self) -> None:
        """Count and log decisions and commit, and write Events: at the end of an iteration, after its requests."""
        reports, self._reports = self._reports, []
        for report in reports:
            report()

    def _record_event(self, record: WorkloadRecord, reason: str, note: str, warning: bool, occasion: str) -> None:
        """Write an Event about a workload's object, and a log line if it explains why the workload does not run."""
        regarding = reference(record.workload)
        if (recorder := self._events(record.workload.cluster)) is not None:
            recorder.record(regarding, reason=reason, action=reason, note=note, warning=warning, occasion=occasion)
        if reason in REASONS_FOR_WAITING:  # the other reasons are logged by `WorkLog.committed`
            self.work_log.log_waiting(record, note)

    def _note_unwritten(self, error: Unwritable, failed: Callable[[str, Exception], None]) -> None:
        """Set aside the workloads that could not be written. Raises `error` if nothing was written."""
        for uid, cause in error.faults.items():
            # A contradiction to the ledger may come from outdated state in memory, which is reloaded: one retry.
            if not isinstance(error, ContradictsLedger) or self._faults.note_suspect(uid):
                failed(uid, cause)
        if error.revision is None:
            raise error
        log.error("%s; the others were written", error)


class CommitBatching:
    """Batching of commits: when the next decision round and its transaction are due.

    A Job that arrives alone is committed immediately. A stream of 25 Jobs a second or more is one commit for each
    `BATCH_SIZE` of them, however slow the machine is; its last Jobs wait for `BURST_GAP`. Released quota that pending
    workloads could use cuts the wait short. Times are in seconds, by a monotonic clock.
    """

    def __init__(self) -> None:
        self.committed_at = -INTERVAL
        """Time of the last commit."""
        self._in_burst = False
        """Whether the last commit had at least `BURST_SIZE` arrivals."""
        self._arrived, self._arrived_at = 0, -INTERVAL
        """Number of arrivals at the last call of `due_in`, and the time at which it last grew."""

    def due_in(self, now: float, *, arrived: int, wanted: bool) -> float:
        """Return the seconds until the next decision round and its commit are due; zero or negative: they are due now.

        `arrived`: number of Jobs that have arrived since the last one. `wanted`: whether quota was released since then
        that pending workloads could use.
        """
        if arrived > self._arrived:
            self._arrived_at = now
        self._arrived = arrived
        due = self.committed_at + INTERVAL
        if wanted or arrived >= BATCH_SIZE:
            due = self.committed_at + MIN_INTERVAL
        elif self._in_burst:
            due = max(due, min(self.committed_at + BURST_INTERVAL, self._arrived_at + BURST_GAP))
        if due <= now:
            self._in_burst, self._arrived = arrived >= BURST_SIZE, 0
        return due - now
