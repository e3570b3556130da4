"""Writes what a step has changed, in one transaction, and tells those who count and log what is committed."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from admission.controller.decisions.commit_batching import CommitBatching
from admission.controller.decisions.scheduler import REASONS_INTERVAL
from admission.controller.state.metrics import LeaderMetrics
from admission.controller.state.traces import Traces
from admission.controller.state.work_log import WorkLog
from admission.controller.state.workload_events import TELLS_WHY, WorkloadEvents
from admission.controller.workloads.requests import reference
from admission.store.errors import ContradictsLedger, Unwritable

if TYPE_CHECKING:
    from collections.abc import Collection

    from admission.cluster.events import EventRecorder
    from admission.controller.state.commit_batch import Batch
    from admission.controller.state.faults import Faults
    from admission.controller.state.isolation import Isolation
    from admission.serving.tracing import Tracing
    from admission.store.records import Changes, WorkloadRecord
    from admission.store.store import Store

log = logging.getLogger(__name__)


class Committer:
    """Lasts as long as the process: its counters do not begin anew with each leader."""

    def __init__(self, store: Store, events: EventRecorder, faults: Faults, tracing: Tracing | None = None) -> None:
        self.batching = CommitBatching()
        self.traces = Traces(tracing)
        self.metrics = LeaderMetrics(None if tracing is None else tracing.exemplar)
        self.work_log = WorkLog()
        self.workload_events = WorkloadEvents(self._record_event, clock=store.now)
        self._store = store
        self._events = events
        self._faults = faults

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
        changes = replace(batch.take(), known=known)
        began = time.perf_counter()
        try:
            try:
                await self._store.commit(changes, epoch=epoch)
            finally:
                seconds = time.perf_counter() - began
                self.metrics.commit_seconds.observe(seconds, self.traces.wrote(changes, seconds))
            self._tell(changes)
        except Unwritable as error:
            self._note_unwritten(error, isolation)
            self._tell(changes, unwritten=error.faults)
        self.batching.committed(time.monotonic())
        return None

    def _tell(self, changes: Changes, *, unwritten: Collection[str] = ()) -> None:
        self.metrics.committed(changes, unwritten=unwritten)
        self.traces.committed(changes, unwritten=unwritten)
        self.work_log.tell(changes, unwritten=unwritten)
        self.workload_events.tell(changes, unwritten=unwritten)

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
