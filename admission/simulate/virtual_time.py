"""The engine on virtual time: events are processed at their times, and admitted workloads end when they are due.

Forecasts of starts and replays of the past are both played by it; they differ in what they schedule.
"""

from __future__ import annotations

from dataclasses import replace
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Final

from admission.engine import Engine, WorkloadAdmitted, WorkloadGone, WorkloadPending

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.engine import Decisions, Event, Policy

STOPPING_SECONDS: Final = 5.0
"""Seconds that the pods of an evicted workload take to stop, if nothing else is known."""
SHORTEST_STOPPING: Final = 0.1
"""Seconds that they take at least: two workloads that preempt each other in turn would do so for ever at an instant."""


class VirtualTime:
    """An engine, its clock `now` (Unix time, s), and the events that are due later."""

    def __init__(self, policy: Policy, now: float, *, places: bool = False, stopping: float = STOPPING_SECONDS) -> None:
        """`places`: it is also told of nodes; otherwise it decides by quota alone. `stopping`: seconds that the pods of
        an evicted workload take to stop."""
        self.engine = Engine(policy if places else replace(policy, topology=None))
        self.now = now
        self._begin = now
        self._stopping = stopping
        self._due: list[tuple[float, int, str, Event]] = []
        """Heap of (time, number, uid of the workload whose quota this releases or "", event)."""
        self._numbers = count()
        self._releases: dict[str, int] = {}
        """Number of the event by which a workload will release its quota, by uid; older ones are void."""

    def load(self, events: Iterable[Event]) -> None:
        """Bring the engine to the state of `now`; events of workloads come last."""
        refreshed = False
        for event in events:
            if not refreshed and isinstance(event, WorkloadPending | WorkloadAdmitted):
                # Otherwise each workload would be queued twice: now, and when the changes of its queue are applied.
                self.engine.refresh(self.now)
                refreshed = True
            self.engine.observe(event, now=self.now)

    def schedule(self, at: float, event: Event) -> None:
        """Let `event` be processed at `at`."""
        heappush(self._due, (at, next(self._numbers), "", event))

    def end(self, at: float, uid: str) -> None:
        """Let a workload that holds quota end at `at`, unless it is evicted or leaves before."""
        self._release(at, WorkloadGone(uid))

    def settle(self) -> Decisions:
        """Decide what can be decided now. Evicted workloads wait again when their pods have stopped."""
        decisions = self.engine.settle(self.now)
        for evict in decisions.evicted:
            workload = evict.workload
            if evict.to_queue_end:
                workload = replace(workload, queued_at=self.now)
            self._release(self.now + self._stopping, WorkloadGone(workload.uid, requeue=workload))
        return decisions

    def advance(
        self, until: float = inf, *, within: float = 0.0, within_share: float = 0.0
    ) -> list[tuple[float, Event]] | None:
        """Go to the next time at which something is due, and process it; return the events with their times.

        None: nothing is due before `until`. What is due soon after is processed together, which saves cycles of the
        engine: within so many seconds, or within that share of the time since the beginning.
        """
        while self._due and self._is_void(*self._due[0][1:3]):
            heappop(self._due)
        next_event = self._due[0][0] if self._due else inf
        at = min(next_event, self.engine.wake_at() or inf)
        if at >= until:
            return None
        self.now = max(self.now, at)
        last = self.now + max(within, within_share * (self.now - self._begin))
        processed = []
        while self._due and self._due[0][0] <= last:
            at, number, uid, event = heappop(self._due)
            if self._is_void(number, uid):
                continue
            if isinstance(event, WorkloadGone):
                self._releases.pop(event.uid, None)
            self.engine.observe(event, now=at)
            processed.append((at, event))
        return processed

    def _release(self, at: float, event: WorkloadGone) -> None:
        number = next(self._numbers)
        self._releases[event.uid] = number
        heappush(self._due, (at, number, event.uid, event))

    def _is_void(self, number: int, uid: str) -> bool:
        return bool(uid) and self._releases.get(uid) != number
