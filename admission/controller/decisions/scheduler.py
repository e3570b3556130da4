"""One round of decisions: what the engine decides, taken over into records, one workload at a time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from admission.controller.decisions.block_admission import WAITING, one_at_a_time
from admission.model.errors import Misconfigured
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.controller.state.isolation import Isolation
    from admission.controller.state.workload_state import Desk
    from admission.controller.workloads.acting import Acting
    from admission.controller.workloads.admitted import Upkeep
    from admission.engine.events import Admit, Decisions

REASONS_INTERVAL = 1.0
"""Seconds that new reasons for waiting may wait for a commit to go along with."""

REASONS_AT_ONCE = 500
"""Workloads whose reason is looked at together: some 20 ms, as those of one shape share the answer."""


class Scheduler:
    """Kueue's word for what runs the cycles. For one desk; `clock` gives seconds since the epoch."""

    def __init__(
        self, *, desk: Desk, acting: Acting, upkeep: Upkeep, isolation: Isolation, clock: Callable[[], float]
    ) -> None:
        self._desk = desk
        self._acting = acting
        self._upkeep = upkeep
        self._isolated = isolation.of
        self._clock = clock
        self._asked_at = 0.0

    def decide(self) -> Decisions:
        """What follows from all that the engine was told, taken over into records."""
        decisions = self._settle()
        for admission in decisions.admitted:
            with self._isolated(admission.workload.uid):
                self._admit(admission)
        for eviction in decisions.evicted:
            with self._isolated(eviction.workload.uid):
                self._desk.evict_by_decision(eviction)
        self._store_reasons()
        return decisions

    def seconds_until_next(self) -> float | None:
        """Until the engine, a deadline or a reason that is still to be told wants another round; None: nothing does."""
        times = [at for at in (self._desk.engine.wake_at(), self._upkeep.wake_at()) if at is not None]
        pauses = [max(min(times) - self._clock(), 0.0)] if times else []
        if self._desk.engine.reasons_are_due:
            pauses.append(REASONS_INTERVAL)
        return min(pauses, default=None)

    def _settle(self) -> Decisions:
        engine = self._desk.engine
        if self._upkeep.one_at_a_time:
            return one_at_a_time(engine, now=self._clock(), blocked=self._upkeep.blocked)
        return engine.settle(now=self._clock())

    def _admit(self, decision: Admit) -> None:
        tracked = self._desk.registry.get(decision.workload.uid)
        if tracked is None or tracked.record.state is not State.PENDING:
            self._desk.engine.forget(decision)
            return
        if (seen := tracked.seen) is None or (obj := tracked.object) is None:
            self._desk.engine.forget(decision)
            return
        try:
            original = self._acting.original_for(seen, obj, decision.admission)
        except Misconfigured as error:
            self._desk.engine.forget(decision)
            self._desk.bar(tracked, generation=seen.generation, message=str(error))
            return
        self._upkeep.admit(tracked, decision, original=original)

    def _store_reasons(self) -> None:
        """Not with each step: a reason is no decision, and a thousand Jobs of one shape wait for the same one."""
        now = time.monotonic()
        if now >= self._asked_at + REASONS_INTERVAL:
            self._asked_at = now
            untried = WAITING if self._upkeep.one_at_a_time else None
            self._desk.store_reasons(REASONS_AT_ONCE, untried=untried, isolated=self._isolated)
