"""One round of decisions: what the engine decides, taken over into records, one workload at a time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from admission.controller.decisions.block_admission import WAITING, one_at_a_time
from admission.controller.state.tracked import StartPatch
from admission.controller.state.workload_change import WorkloadChange
from admission.controller.workloads.scaling import may_take_over
from admission.controller.workloads.triggers import (
    EvictionDecided,
    LargerAdmitted,
    LargerReasonChanged,
    QuotaReserved,
    ReasonChanged,
    StartImpossible,
)
from admission.engine.events import WorkloadGone
from admission.engine.vocabulary import PENDING_EVALUATION, SLICE_REPLACED
from admission.model.errors import Misconfigured
from admission.store.records import State

if TYPE_CHECKING:
    from admission.controller.workloads.reconciler import Reconciler
    from admission.engine.events import Admit, Decisions, Park

REASONS_INTERVAL = 1.0
"""Seconds that new reasons for waiting may wait for a commit to go along with."""

REASONS_AT_ONCE = 500
"""Workloads whose reason is looked at together: some 20 ms, as those of one shape share the answer."""


class Scheduler:
    """Kueue's word for what runs the cycles. Works on the state of one leader."""

    def __init__(self, reconciler: Reconciler) -> None:
        self._reconciler = reconciler
        self._state = reconciler.state
        self._readiness = reconciler.readiness
        self._isolated = reconciler.isolation.of
        self._reviewed_at = 0.0
        """When reasons for waiting were looked at last, of a clock that never goes back."""

    def decide(self) -> Decisions:
        """What follows from all that the engine was told, taken over into records."""
        decisions = self._settle()
        for admission in decisions.admitted:
            if not admission.workload.replaces:
                try:
                    self._admit(admission)
                except Exception as error:  # noqa: BLE001  whatever it is, it belongs to this workload
                    self._reconciler.isolation.failed(admission.workload.uid, error)
        for eviction in decisions.evicted:
            tracked = self._state.registry.get(eviction.workload.uid)
            if tracked is not None and eviction.reason != SLICE_REPLACED:
                with self._isolated(tracked.uid):
                    self._reconciler.handle(tracked, EvictionDecided(eviction))
        for admission in decisions.admitted:
            if admission.workload.replaces:  # after the evictions: what is to stop gets no more
                with self._isolated(admission.workload.replaces):
                    self._enlarge(admission)
        now = time.monotonic()
        if now >= self._reviewed_at + REASONS_INTERVAL:
            # Not with each step: a reason is no decision, and a thousand Jobs of one shape wait for the same one.
            self._reviewed_at = now
            self._store_reasons()
        return decisions

    def seconds_until_next(self, now: float) -> float | None:
        """Until the engine, a deadline or a reason that is still to be told wants another round; None: nothing does.

        From `now` on (Unix time, s).
        """
        engine, deadlines = self._state.engine, self._reconciler.deadlines
        times = [at for at in (engine.wake_at(), deadlines.next() if deadlines.heap else None) if at is not None]
        pauses = [max(min(times) - now, 0.0)] if times else []
        if engine.reasons_are_due:
            pauses.append(REASONS_INTERVAL)
        return min(pauses, default=None)

    def _settle(self) -> Decisions:
        engine, now = self._state.engine, self._state.now
        if self._readiness.one_at_a_time:
            return one_at_a_time(engine, now=now, blocked=self._readiness.blocked)
        return engine.settle(now=now)

    def _admit(self, decision: Admit) -> None:
        tracked = self._state.registry.get(decision.workload.uid)
        if (
            tracked is None
            or tracked.record.state is not State.PENDING
            or (seen := tracked.seen) is None
            or (obj := tracked.object) is None
        ):
            self._state.engine.forget(decision)
            return
        admission = decision.admission
        try:
            start = StartPatch.of(seen, obj, admission, self._reconciler.environment.context.flavors)
        except Misconfigured as error:
            self._state.engine.forget(decision)
            self._reconciler.handle(tracked, StartImpossible(seen.generation, str(error)))
            return
        self._reconciler.handle(tracked, QuotaReserved(admission, start))

    def _enlarge(self, decision: Admit) -> None:
        """What runs was given quota for more pods, in the form of a larger workload in its place."""
        larger = decision.workload
        tracked = self._state.registry.get(larger.replaces)
        if tracked is not None and tracked.larger == larger and may_take_over(tracked, decision.admission):
            self._reconciler.handle(tracked, LargerAdmitted(decision.admission))
            return
        self._state.tell(WorkloadGone(larger.uid))
        if tracked is not None and tracked.holds_quota:
            change = WorkloadChange(tracked, now=self._state.now)
            change.ask_no_more()  # but as soon as it is seen again
            change.tell_admitted()
            self._state.apply(change)

    def _store_reasons(self) -> None:
        """Take over the reasons for waiting that have changed."""
        untried = WAITING if self._readiness.one_at_a_time else None
        now = self._state.now
        for park in self._state.engine.reasons(REASONS_AT_ONCE, isolated=self._isolated):
            if park.workload.replaces:
                self._tell_of_larger(park)
                continue
            tracked = self._state.registry.get(park.workload.uid)
            # Why it is on hold is known better here.
            if tracked is None or tracked.record.state is not State.PENDING or tracked.on_hold:
                continue
            reason = park.reason, park.message
            if untried is not None and park.reason == PENDING_EVALUATION and (tracked.record.not_before or 0.0) <= now:
                reason = untried  # the engine was not let try it yet
            if reason != (tracked.record.reason, tracked.record.message):
                self._reconciler.handle(tracked, ReasonChanged(*reason))

    def _tell_of_larger(self, park: Park) -> None:
        tracked = self._state.registry.get(park.workload.replaces)
        if tracked is not None and tracked.larger == park.workload:
            self._reconciler.handle(tracked, LargerReasonChanged(park.reason, park.message))
