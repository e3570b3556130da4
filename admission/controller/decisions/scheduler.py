"""Decision round: runs the engine's cycles, and applies their decisions to the workloads one by one."""

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
    PlacedAgain,
    PodProblem,
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
"""Seconds at most until new reasons for waiting are committed, if no other commit includes them earlier."""

MAX_PAUSE = 30.0
"""Seconds after which the clock is read again while a time is awaited: it may be set forward, or the machine suspended,
and neither moves the monotonic clock that timers follow."""

REASONS_PER_ROUND = 500
"""Workloads whose reason is computed in one round at most: some 20 ms, as workloads of equal shape share the result."""


class Scheduler:
    """Runs the decision cycles, like Kueue's scheduler, on the state of one leader."""

    def __init__(self, reconciler: Reconciler) -> None:
        self._reconciler = reconciler
        self._state = reconciler.state
        self._readiness = reconciler.readiness
        self._isolated = reconciler.isolation.of
        self._reviewed_at = 0.0
        """Time of the last review of reasons for waiting, by the monotonic clock."""

    def decide(self) -> Decisions:
        """Run the cycles that the events since the last call require, and apply the decisions to the workloads."""
        decisions = self._settle()
        for admission in decisions.admitted:
            if not admission.workload.replaces:
                try:
                    self._admit(admission)
                except Exception as error:  # noqa: BLE001  any exception is attributed to this workload
                    self._reconciler.isolation.failed(admission.workload.uid, error)
        for eviction in decisions.evicted:
            tracked = self._state.registry.get(eviction.workload.uid)
            if tracked is not None and eviction.reason != SLICE_REPLACED:
                with self._isolated(tracked.uid):
                    self._reconciler.handle(tracked, EvictionDecided(eviction))
        for reassigned in decisions.reassigned:
            if (tracked := self._state.registry.get(reassigned.workload.uid)) is not None:
                with self._isolated(tracked.uid):
                    self._reconciler.handle(tracked, PlacedAgain(reassigned.admission))
        for unplaced in decisions.unplaced:
            if (tracked := self._state.registry.get(unplaced.workload.uid)) is not None:
                with self._isolated(tracked.uid):
                    self._reconciler.handle(tracked, PodProblem(unplaced.message))
        for admission in decisions.admitted:
            if admission.workload.replaces:  # after the evictions: an evicted workload gets no more quota
                with self._isolated(admission.workload.replaces):
                    self._enlarge(admission)
        now = time.monotonic()
        if now >= self._reviewed_at + REASONS_INTERVAL:
            # Not in each round: a reason is not a decision, and a thousand Jobs of equal shape share one.
            self._reviewed_at = now
            self._store_reasons()
        return decisions

    def seconds_until_next(self, now: float) -> float | None:
        """Return the seconds from `now` (Unix time, s) until the next round is due without new events; None: none is.

        A round is due for the engine's own timers, for deadlines of workloads, and for reasons that are not stored yet.
        """
        engine, deadlines = self._state.engine, self._reconciler.deadlines
        times = [at for at in (engine.wake_at(), deadlines.next() if deadlines.heap else None) if at is not None]
        pauses = [min(max(min(times) - now, 0.0), MAX_PAUSE)] if times else []
        if engine.reasons_are_due:
            pauses.append(REASONS_INTERVAL)
        return min(pauses, default=None)

    def _settle(self) -> Decisions:
        """Run the engine's cycles, with `waitForPodsReady.blockAdmission` if it is configured."""
        engine, now = self._state.engine, self._state.now
        if self._readiness.one_at_a_time:
            return one_at_a_time(engine, now=now, blocked=self._readiness.blocked)
        return engine.settle(now=now)

    def _admit(self, decision: Admit) -> None:
        """Admit a pending workload; undo the engine's decision if it is not pending any more, or cannot be started."""
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
        """Enlarge an admitted workload: the engine has admitted the larger version, which replaces it."""
        larger = decision.workload
        tracked = self._state.registry.get(larger.replaces)
        if tracked is not None and tracked.larger == larger and may_take_over(tracked, decision.admission):
            self._reconciler.handle(tracked, LargerAdmitted(decision.admission))
            return
        self._state.observe(WorkloadGone(larger.uid))
        if tracked is not None and tracked.holds_quota:
            change = WorkloadChange(tracked, now=self._state.now)
            change.withdraw_larger()  # it is queued again when the object is seen next
            change.report_admitted()
            self._state.apply(change)

    def _store_reasons(self) -> None:
        """Store the reasons for waiting that have changed."""
        untried = WAITING if self._readiness.one_at_a_time else None
        now = self._state.now
        for park in self._state.engine.reasons(REASONS_PER_ROUND, isolated=self._isolated):
            if park.workload.replaces:
                self._store_reason_of_larger(park)
                continue
            tracked = self._state.registry.get(park.workload.uid)
            # For a workload on hold the controller knows the reason better than the engine.
            if tracked is None or tracked.record.state is not State.PENDING or tracked.on_hold:
                continue
            reason = park.reason, park.message
            if untried is not None and park.reason == PENDING_EVALUATION and (tracked.record.not_before or 0.0) <= now:
                reason = untried  # it was not tried because pods of an admitted workload are not ready
            if reason != (tracked.record.reason, tracked.record.message):
                self._reconciler.handle(tracked, ReasonChanged(*reason))

    def _store_reason_of_larger(self, park: Park) -> None:
        """Store the reason why the larger version of an admitted workload is pending."""
        tracked = self._state.registry.get(park.workload.replaces)
        if tracked is not None and tracked.larger == park.workload:
            self._reconciler.handle(tracked, LargerReasonChanged(park.reason, park.message))
