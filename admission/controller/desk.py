"""The state that one step of the controller works on, and the few moves by which a workload changes its state.

Each move does the three things that belong together: it changes the record, tells the engine, and adds to the batch
that the step commits. Nothing here does I/O.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from admission.controller.batch import Batch
from admission.controller.tracked import Registry, Tracked
from admission.engine.events import WorkloadEvicted, WorkloadGone, WorkloadPending
from admission.store.records import State, WorkloadRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.controller.intake import Reading
    from admission.engine import Engine
    from admission.engine.events import Admit, Event, Evict, Park
    from admission.kinds.base import Object

MISCONFIGURED = "Misconfigured"
ON_HOLD = "OnHold"
PENDING_EVALUATION = "PendingEvaluation"
BARS = frozenset({MISCONFIGURED, ON_HOLD})
"""Reasons that keep a workload out of the cycles, whatever quota there is."""


class Desk:
    """Registry, engine and batch, changed together."""

    def __init__(self, engine: Engine, *, clock: Callable[[], float]) -> None:
        self.engine = engine
        self.registry = Registry()
        self.batch = Batch()
        self.dirty: dict[str, None] = {}
        """The workloads whose next step has to be looked at, in order."""
        self.untold: dict[str, None] = {}
        """The waiting workloads of which the engine has not said yet why: those behind others of their shape."""
        self.freed = False
        """Whether quota has become free since the last cycle."""
        self.arrived = 0
        """How many have arrived since then."""
        self._clock = clock

    def tell(self, event: Event) -> None:
        self.engine.observe(event, now=self._clock())

    def arrive(self, reading: Reading, *, held: bool, reason: str, message: str) -> Tracked:
        """An object was queued that was not known before."""
        now = self._clock()
        record = WorkloadRecord(
            workload=reading.workload, state=State.PENDING, queued_at=now, reason=reason, message=message
        )
        tracked = self.registry.add(Tracked(record=record, held=held))
        self.batch.write(record, at=now, reason="Queued", message=message)
        self.tell(WorkloadPending(reading.workload, held=held))
        self.untold[tracked.uid] = None
        self.arrived += 1
        return tracked

    def requeue(self, tracked: Tracked, reading: Reading, *, held: bool, reason: str, message: str) -> None:
        """A waiting workload looks different: edited, moved to another queue, held or released by its user."""
        now = self._clock()
        tracked.held = held
        self.untold[tracked.uid] = None
        self.batch.write(
            tracked.change(workload=reading.workload, reason=reason, message=message),
            at=now,
            reason=reason,
            message=message,
        )
        self.tell(WorkloadPending(reading.workload, held=held))

    def admit(self, tracked: Tracked, decision: Admit, *, original: Object) -> None:
        """The engine gave it quota."""
        now = self._clock()
        record = tracked.change(
            state=State.ADMITTED,
            cluster_queue=decision.admission.cluster_queue,
            admission=decision.admission,
            original=original,
            admitted_at=now,
            reason="Admitted",
            message="",
        )
        self.batch.write(record, at=now, reason="Admitted", message=f"by ClusterQueue {record.cluster_queue}")
        self.batch.open(record, decision.admission, at=now)
        self.dirty[tracked.uid] = None

    def amend(self, tracked: Tracked, *, original: Object) -> None:
        """It was edited between admission and start: what will have to be restored is different now."""
        self.batch.write(tracked.change(original=original), at=self._clock(), reason="Edited")
        self.dirty[tracked.uid] = None

    def evict(self, tracked: Tracked, *, reason: str, message: str, decided_by_engine: bool = False) -> None:
        """It must give its quota back; it holds it until its pods are gone."""
        record = tracked.change(state=State.EVICTING, evict_reason=reason, reason=reason, message=message)
        self.batch.write(record, at=self._clock(), reason=reason, message=message)
        if not decided_by_engine:
            self.tell(WorkloadEvicted(tracked.uid))
        self.dirty[tracked.uid] = None

    def release(self, tracked: Tracked, reading: Reading, *, held: bool, reason: str, message: str) -> None:
        """It is stopped and restored: its quota is free, and it waits again."""
        now = self._clock()
        self.freed = True
        self.batch.close(tracked.uid, at=now, reason=tracked.record.evict_reason)
        tracked.held = held
        record = tracked.change(
            workload=reading.workload,
            state=State.PENDING,
            admission=None,
            original=None,
            admitted_at=None,
            queued_at=now,
            evict_reason="",
            reason=reason,
            message=message,
        )
        self.batch.write(record, at=now, reason="Requeued", message=message)
        self.tell(WorkloadGone(tracked.uid, requeue=reading.workload, held=held))
        self.untold[tracked.uid] = None

    def finish(self, tracked: Tracked, *, outcome: str, message: str) -> None:
        """It is over: done, failed, deleted, or not for Sluice any more."""
        now = self._clock()
        if tracked.holds_quota:
            self.freed = True
            self.batch.close(tracked.uid, at=now, reason=outcome)
        record = tracked.change(
            state=State.FINISHED, admission=None, finished_at=now, outcome=outcome, reason=outcome, message=message
        )
        self.batch.write(record, at=now, reason=outcome, message=message)
        self.tell(WorkloadGone(tracked.uid))
        self.registry.remove(tracked.uid)

    def refuse(self, tracked: Tracked, *, generation: int, message: str) -> None:
        """The API server will not have it started as it is: its quota goes back, and it waits for an edit."""
        tracked.refused = (generation, message)
        self.evict(tracked, reason=MISCONFIGURED, message=message)

    def bar(self, tracked: Tracked, *, generation: int, message: str) -> None:
        """It waits, but cannot be started as it is; not tried again before it is edited."""
        tracked.refused, tracked.held = (generation, message), True
        record = tracked.change(reason=MISCONFIGURED, message=message)
        self.batch.write(record, at=self._clock(), reason=MISCONFIGURED, message=message)
        self.tell(WorkloadPending(record.workload, held=True))

    def evict_by_decision(self, decision: Evict) -> None:
        """The engine takes quota back."""
        tracked = self.registry.get(decision.workload.uid)
        if tracked is not None and tracked.record.state is State.ADMITTED:
            self.evict(tracked, reason=decision.reason, message=decision.message, decided_by_engine=True)

    def park(self, decision: Park) -> None:
        """The engine says why it waits."""
        tracked = self.registry.get(decision.workload.uid)
        if tracked is not None:
            self._wait_for(tracked, decision.reason, decision.message)

    def ask_why(self, limit: int) -> None:
        """Have the engine explain up to `limit` workloads that it found no occasion to speak of."""
        for uid in list(islice(self.untold, limit)):
            del self.untold[uid]
            tracked = self.registry.get(uid)
            explanation = self.engine.explain(uid)
            if tracked is not None and explanation is not None and explanation.reason:
                self._wait_for(tracked, explanation.reason, explanation.message)

    def _wait_for(self, tracked: Tracked, reason: str, message: str) -> None:
        self.untold.pop(tracked.uid, None)
        record = tracked.record
        # Why it is held is known better here.
        if record.state is State.PENDING and not tracked.held and (reason, message) != (record.reason, record.message):
            self.batch.note(tracked.change(reason=reason, message=message))
