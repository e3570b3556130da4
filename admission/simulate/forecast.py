"""Forecast of starts: simulates the engine on virtual time, from the current state until the pending workloads start.

Workloads that arrive later are unknown; the overall error that they cause is learned from past estimates
(`Calibration`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, TypeAlias

from admission.engine import Engine, WorkloadAdmitted, WorkloadGone, WorkloadPending
from admission.simulate.durations import remaining

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from admission.engine import Event, Policy
    from admission.model.workload import Workload
    from admission.simulate.durations import Durations

GRANULARITY: Final = 0.02
"""Ends of workloads within this fraction of the simulated time so far are processed together: the farther, the
coarser. Saves cycles of the engine."""

Starts: TypeAlias = dict[str, float]
"""Uid to the seconds from now until a workload starts."""


@dataclass(frozen=True, slots=True)
class CurrentState:
    """The state from which a forecast starts."""

    policy: Policy
    events: Sequence[Event]
    """Events that bring a new engine to the current state; events of workloads come last."""
    now: float
    """Unix time (s)."""
    limits: Mapping[str, float]
    """Uid to the seconds after its start at which a workload is stopped (maximum execution time)."""


def forecast_starts(
    current: CurrentState, durations: Durations, *, has_time: Callable[[], bool] = lambda: True
) -> Starts:
    """Return the starts of pending workloads if each workload runs as long as similar ones; empty if that is unknown.

    `has_time` is called before each step; when it returns False the simulation ends, and later starts are unknown.
    """
    return _Forecast(current, durations).run(has_time)


class _Forecast:
    def __init__(self, current: CurrentState, durations: Durations) -> None:
        self._current = current
        self._durations = durations
        self._engine = Engine(replace(current.policy, topology=None))  # without nodes: an estimate by quota alone
        self._ends: list[tuple[float, str]] = []
        self._end_of: dict[str, float] = {}
        self._starts: Starts = {}
        self._similar: dict[tuple[str, str, str, int], Sequence[float]] = {}
        """Cache of `Durations.similar`, by namespace, queue, user and id of the pod sets."""

    def run(self, has_time: Callable[[], bool]) -> Starts:
        current, engine = self._current, self._engine
        refreshed = False
        for event in current.events:
            if not refreshed and isinstance(event, WorkloadPending | WorkloadAdmitted):
                # Otherwise each workload would be queued twice: now, and when the changes of its queue are applied.
                engine.refresh(current.now)
                refreshed = True
            engine.observe(event, now=current.now)
            if isinstance(event, WorkloadAdmitted) and not self._runs(event.workload, event.at):
                return {}
        now = current.now
        while has_time():
            if not self._settle(now):
                return {}
            if not engine.waiting:
                break
            while self._ends and self._end_of.get(self._ends[0][1]) != self._ends[0][0]:
                heappop(self._ends)  # it was evicted
            wake_at = engine.wake_at()
            times = [at for at in (self._ends[0][0] if self._ends else None, wake_at) if at is not None]
            if not times:
                break
            now = max(now, min(times))
            self._end(now + GRANULARITY * (now - current.now))
        return self._starts

    def _settle(self, now: float) -> bool:
        decisions = self._engine.settle(now)
        for admit in decisions.admitted:
            uid = admit.workload.uid
            self._starts.setdefault(uid, now - self._current.now)
            if not self._runs(admit.workload, now, begins=True):
                return False
        for evict in decisions.evicted:
            self._end_of.pop(evict.workload.uid, None)
            self._engine.observe(WorkloadGone(evict.workload.uid, requeue=evict.workload), now=now)
        return True

    def _runs(self, workload: Workload, at: float, *, begins: bool = False) -> bool:
        """Record when a workload ends; return False if its run time is unknown."""
        elapsed = 0.0 if begins else max(self._current.now - at, 0.0)
        limit = self._current.limits.get(workload.uid)
        key = workload.namespace, workload.queue, workload.user, id(workload.pod_sets)
        similar = self._similar.get(key)
        if similar is None:
            similar = self._similar[key] = self._durations.similar(workload)
        rest = remaining(similar, elapsed=elapsed, limit=limit)
        if rest is None:
            return False
        end = (at if begins else self._current.now) + rest
        self._end_of[workload.uid] = end
        heappush(self._ends, (end, workload.uid))
        return True

    def _end(self, until: float) -> None:
        """Finish all workloads that end until then."""
        while self._ends and self._ends[0][0] <= until:
            at, uid = heappop(self._ends)
            if self._end_of.get(uid) == at:
                del self._end_of[uid]
                self._engine.observe(WorkloadGone(uid), now=at)
