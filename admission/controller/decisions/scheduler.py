"""Decision round: runs the engine's cycles, and applies their decisions to the workloads of all clusters one by one."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from admission.controller.state.tracked import StartPatch
from admission.controller.state.triggers import (
    LargerAdmitted,
    PodProblem,
    QuotaReserved,
    StartImpossible,
)
from admission.controller.state.workload_change import WorkloadChange
from admission.controller.workloads.scaling import may_take_over
from admission.engine.events import Park, WorkloadGone
from admission.engine.vocabulary import PENDING_EVALUATION, SLICE_REPLACED
from admission.model import sentences
from admission.model.errors import Misconfigured
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from admission.controller.state.tracked import Tracked
    from admission.controller.state.triggers import Trigger
    from admission.controller.workloads.reconciler import Reconciler
    from admission.engine import Engine
    from admission.engine.events import Admit, Decisions


REASONS_INTERVAL = 1.0
"""Seconds at most until new reasons for waiting are committed, if no other commit includes them earlier."""

MAX_PAUSE = 30.0
"""Seconds after which the clock is read again while a time is awaited: it may be set forward, or the machine suspended,
and neither moves the monotonic clock that timers follow."""

REASONS_PER_ROUND = 500
"""Workloads whose reason is computed in one round at most: some 20 ms, as workloads of equal shape share the result."""


class Scheduler:
    """Runs the decision cycles, like Kueue's scheduler, on the state of one leader."""

    def __init__(self, reconcilers: Sequence[Reconciler]) -> None:
        """`reconcilers`: one for each cluster, at least one; their states have one engine."""
        self._reconcilers = reconcilers
        self._engine = reconcilers[0].state.engine
        self._one_at_a_time = reconcilers[0].readiness.one_at_a_time
        self._reviewed_at = 0.0
        """Time of the last review of reasons for waiting, by the monotonic clock."""

    def decide(self) -> Decisions:
        """Run the cycles that the events since the last call require, and apply the decisions to the workloads."""
        decisions = self._settle()
        for admission in decisions.admitted:
            if not admission.workload.replaces:
                reconciler, tracked = self._find(admission.workload.uid)
                try:
                    self._admit(admission, reconciler, tracked)
                except Exception as error:  # noqa: BLE001  any exception is attributed to this workload
                    reconciler.isolation.failed(admission.workload.uid, error)
        for eviction in decisions.evicted:
            if eviction.reason != SLICE_REPLACED:
                self._handle(eviction.workload.uid, eviction)
        for reassigned in decisions.reassigned:
            self._handle(reassigned.workload.uid, reassigned)
        for unplaced in decisions.unplaced:
            self._handle(unplaced.workload.uid, PodProblem(unplaced.message))
        for admission in decisions.admitted:
            if admission.workload.replaces:  # after the evictions: an evicted workload gets no more quota
                reconciler, tracked = self._find(admission.workload.replaces)
                with reconciler.isolation.of(admission.workload.replaces):
                    self._enlarge(admission, reconciler, tracked)
        now = time.monotonic()
        if now >= self._reviewed_at + REASONS_INTERVAL:
            # Not in each round: a reason is not a decision, and a thousand Jobs of equal shape share one.
            self._reviewed_at = now
            self._store_reasons()
        return decisions

    def _find(self, uid: str) -> tuple[Reconciler, Tracked | None]:
        """Return a workload and the reconciler of its cluster; None, and that of any, if it is not known."""
        for reconciler in self._reconcilers:
            if (tracked := reconciler.state.registry.get(uid)) is not None:
                return reconciler, tracked
        return self._reconcilers[0], None

    def _handle(self, uid: str, trigger: Trigger) -> None:
        """Pass a trigger to a workload, if it is known."""
        reconciler, tracked = self._find(uid)
        if tracked is not None:
            with reconciler.isolation.of(uid):
                reconciler.handle(tracked, trigger)

    def seconds_until_next(self, now: float) -> float | None:
        """Return the seconds from `now` (Unix time, s) until the next round is due without new events; None: none is.

        A round is due for the engine's own timers, for deadlines of workloads, and for reasons that are not stored yet.
        """
        engine = self._engine
        deadlines = [each.deadlines.next() for each in self._reconcilers if each.deadlines.heap]
        times = [at for at in (engine.wake_at(), *deadlines) if at is not None]
        pauses = [min(max(min(times) - now, 0.0), MAX_PAUSE)] if times else []
        if engine.reasons_are_due:
            pauses.append(REASONS_INTERVAL)
        return min(pauses, default=None)

    def _settle(self) -> Decisions:
        """Run the engine's cycles, with `waitForPodsReady.blockAdmission` if it is configured."""
        engine, now = self._engine, self._reconcilers[0].state.now
        if self._one_at_a_time:
            return one_at_a_time(engine, now=now, blocked=any(each.readiness.blocked for each in self._reconcilers))
        return engine.settle(now=now)

    def _admit(self, decision: Admit, reconciler: Reconciler, tracked: Tracked | None) -> None:
        """Admit a pending workload; undo the engine's decision if it is not pending any more, or cannot be started."""
        if (
            tracked is None
            or tracked.record.state is not State.PENDING
            or (seen := tracked.seen) is None
            or (obj := tracked.object) is None
        ):
            self._engine.forget(decision)
            return
        admission = decision.admission
        try:
            start = StartPatch.of(seen, obj, admission, reconciler.environment.context.flavors)
        except Misconfigured as error:
            self._engine.forget(decision)
            reconciler.handle(tracked, StartImpossible(seen.generation, str(error)))
            return
        reconciler.handle(tracked, QuotaReserved(admission, start))

    def _enlarge(self, decision: Admit, reconciler: Reconciler, tracked: Tracked | None) -> None:
        """Enlarge an admitted workload: the engine has admitted the larger version, which replaces it."""
        larger, state = decision.workload, reconciler.state
        if tracked is not None and tracked.larger == larger and may_take_over(tracked, decision.admission):
            reconciler.handle(tracked, LargerAdmitted(decision.admission))
            return
        state.observe(WorkloadGone(larger.uid))
        if tracked is not None and tracked.holds_quota:
            change = WorkloadChange(tracked, now=state.now)
            change.withdraw_larger()  # it is queued again when the object is seen next
            change.report_admitted()
            state.apply(change)

    def _store_reasons(self) -> None:
        """Store the reasons for waiting that have changed."""
        untried = BEHIND_UNREADY if self._one_at_a_time else None
        now = self._reconcilers[0].state.now
        for park in self._engine.reasons(REASONS_PER_ROUND, isolated=self._isolated):
            if park.workload.replaces:
                self._store_reason_of_larger(park)
                continue
            reconciler, tracked = self._find(park.workload.uid)
            # For a workload on hold the controller knows the reason better than the engine.
            if tracked is None or tracked.record.state is not State.PENDING or tracked.on_hold:
                continue
            reason = park.reason, park.message
            if untried is not None and park.reason == PENDING_EVALUATION and (tracked.record.not_before or 0.0) <= now:
                reason = untried  # it was not tried because pods of an admitted workload are not ready
            if reason != (tracked.record.reason, tracked.record.message):
                reconciler.handle(tracked, Park(park.workload, *reason))

    def _isolated(self, uid: str) -> AbstractContextManager[None]:
        return self._find(uid)[0].isolation.of(uid)

    def _store_reason_of_larger(self, park: Park) -> None:
        """Store the reason why the larger version of an admitted workload is pending."""
        reconciler, tracked = self._find(park.workload.replaces)
        if tracked is not None and tracked.larger == park.workload:
            reconciler.handle(tracked, park)


BEHIND_UNREADY = "WaitingForPodsReady", sentences.BEHIND_UNREADY
"""Reason and message of pending workloads that were not tried because of it."""


def one_at_a_time(engine: Engine, *, now: float, blocked: bool) -> Decisions:
    """Run cycles as `Engine.settle` does, but keep at most one admission, and none if `blocked`. Evictions are kept.

    This is Kueue's `waitForPodsReady.blockAdmission`. `blocked`: pods of an admitted workload are not ready. A workload
    that never becomes ready blocks all others until its timeout, so that a timeout is required. The replacement of a
    slice is undone together with its admission.
    """
    decisions = engine.settle(now, until_admitted=True)
    admitted = () if blocked else decisions.admitted[:1]
    early = decisions.admitted[len(admitted) :]
    for admit in reversed(early):
        engine.forget(admit)
    undone = {admit.workload.uid for admit in early}
    evicted = tuple(
        evict for evict in decisions.evicted if evict.reason != SLICE_REPLACED or evict.preemptor not in undone
    )
    return replace(decisions, admitted=admitted, evicted=evicted)
