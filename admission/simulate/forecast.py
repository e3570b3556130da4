"""Forecast of starts: simulates the engine on virtual time, from the current state until the pending workloads start.

Workloads that arrive later are unknown; the overall error that they cause is learned from past estimates
(`Calibration`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from admission.engine import QueueObjectChanged, WorkloadAdmitted
from admission.model.queues import quota_changes
from admission.simulate.durations import remaining
from admission.simulate.virtual_time import VirtualTime

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from admission.engine import Event, Policy
    from admission.model.workload import Workload
    from admission.simulate.durations import Durations

GRANULARITY: Final = 0.02
"""Ends of workloads within this fraction of the simulated time so far are processed together: the farther, the
coarser. Saves cycles of the engine."""

CALENDAR_AHEAD: Final = 14 * 24 * 3600.0
"""Seconds ahead for which changes of quota by calendars are simulated."""

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
        self._time = VirtualTime(current.policy, current.now)
        self._starts: Starts = {}
        self._similar: dict[tuple[str, str, str, int], Sequence[float]] = {}
        """Cache of `Durations.similar`, by namespace, queue, user and id of the pod sets."""

    def run(self, has_time: Callable[[], bool]) -> Starts:
        current, time = self._current, self._time
        time.load(current.events)
        for event in current.events:
            if isinstance(event, WorkloadAdmitted) and not self._runs(event.workload, event.at):
                return {}
            if isinstance(event, QueueObjectChanged):
                for at, changed in quota_changes(event.object, current.now, current.now + CALENDAR_AHEAD):
                    time.schedule(at, QueueObjectChanged(changed))
        while has_time():
            for admit in time.settle().admitted:
                self._starts.setdefault(admit.workload.uid, time.now - current.now)
                if not self._runs(admit.workload, time.now, begins=True):
                    return {}
            if not time.engine.waiting or time.advance(within_share=GRANULARITY) is None:
                break
        return self._starts

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
        self._time.end((at if begins else self._current.now) + rest, workload.uid)
        return True
