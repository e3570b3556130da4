"""Estimator of starts: forecasts pending workloads from stored state, and learns from past run times and estimates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from admission.engine import QueueObjectChanged, WorkloadAdmitted
from admission.model.queues import quota_changes
from admission.simulate.calibration import Calibration, ReportedRange
from admission.simulate.durations import Durations, remaining
from admission.simulate.virtual_time import VirtualTime
from admission.store.workloads.replay import events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from admission.engine import Event, Policy
    from admission.model.workload import Workload
    from admission.simulate.calibration import Range
    from admission.store.records import LoadedState, WorkloadRecord

OUTCOMES: Final = frozenset({"Succeeded", "Failed"})
"""Outcomes of workloads that ran to completion; run times of all others are not representative."""

MAX_OPEN: Final = 5000
"""Estimates with unknown outcome that are tracked at most."""


@dataclass(frozen=True, slots=True)
class _OpenEstimate:
    """The first estimate for a pending workload, whose outcome is not known yet."""

    at: float
    """Unix time (s) of the estimate."""
    simulated: float
    """The simulated wait (s)."""
    reported: ReportedRange | None
    """The range that was reported; None: there were too few past estimates."""


@dataclass(frozen=True, slots=True)
class Estimates:
    """Estimated starts of pending workloads. Times are seconds since the epoch."""

    at: float
    """When the estimates were made."""
    starts: Mapping[str, tuple[float, float]]
    """Uid to p50 and p90 of the start. Empty while too little is known."""
    share_held: float | None
    """The share of past estimates where the workload had started by p90; None while there are too few."""
    compared: int
    """Number of past estimates that were compared with actual starts; `starts` is empty before MIN_SAMPLES."""


class Estimator:
    """Learns from finished workloads and estimates starts; its caller periodically passes both from the database."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._durations = Durations()
        self._calibration = Calibration()
        self._open: dict[str, _OpenEstimate] = {}
        self.ended_until = 0.0
        """When the last workload passed to `learn` finished (Unix time, s); the caller passes later ones next."""

    def document(self) -> dict[str, Any]:
        """Return what was learned from past estimates, and the open ones, as JSON for `restore`.

        Run times are not part of it: they are learned again from finished workloads.
        """
        return {
            "calibration": self._calibration.document(),
            "open": {
                uid: [one.at, one.simulated, None if one.reported is None else one.reported.document()]
                for uid, one in self._open.items()
            },
        }

    def restore(self, document: Mapping[str, Any]) -> None:
        """Continue where an earlier Estimator ended: `document` is its document."""
        self._calibration.restore(document["calibration"])
        for uid, (at, simulated, reported) in document["open"].items():
            known = None if reported is None else ReportedRange.restored(reported)
            self._open[uid] = _OpenEstimate(at, simulated, known)

    def learn(self, ended: Iterable[WorkloadRecord]) -> None:
        """Learn from finished workloads, passed in the order in which they finished."""
        for record in ended:
            self.ended_until = max(self.ended_until, record.finished_at or 0.0)
            self._check(record)
            if record.outcome in OUTCOMES and record.cleared_at is not None and record.finished_at is not None:
                self._durations.learn(record.workload, max(record.finished_at - record.cleared_at, 0.0))

    def estimate(
        self,
        state: LoadedState,
        *,
        now: float,
        namespaces: Mapping[str, Mapping[str, str]],
        limits: Mapping[str, float],
        has_time: Callable[[], bool],
    ) -> Estimates:
        """Estimate when the pending workloads of `state` will start.

        `namespaces`: namespace to its labels. `limits`: uid to the maximum execution time (s). `has_time`: whether to
        continue the simulation; later starts have no estimate then.
        """
        for record in state.workloads:
            if record.admission is not None:
                self._check(record)
        current = CurrentState(self._policy, list(events(state, namespaces)), now, limits)
        simulated = forecast_starts(current, self._durations, has_time=has_time)
        waits = [(one.simulated, now - one.at) for one in self._open.values()]
        for one in self._open.values():
            if one.reported is not None:
                self._calibration.check(one.reported, now - one.at, started=False)
        ranges = self._calibration.ranges(simulated, waiting=waits)
        self._record(state.workloads, simulated, ranges, now)
        starts = {uid: (now + each.p50, now + each.p90) for uid, each in ranges.items()}
        return Estimates(now, starts, self._calibration.share_held, len(self._calibration))

    def _check(self, record: WorkloadRecord) -> None:
        """Learn from the estimate for a workload, if there is one and the workload has started since."""
        estimate = self._open.pop(record.workload.uid, None)
        if estimate is None or record.admitted_at is None or record.admitted_at < estimate.at:
            return
        waited = record.admitted_at - estimate.at
        self._calibration.learn(estimate.simulated, waited)
        if estimate.reported is not None:
            self._calibration.check(estimate.reported, waited, started=True)

    def _record(
        self,
        workloads: Iterable[WorkloadRecord],
        simulated: Mapping[str, float],
        ranges: Mapping[str, Range],
        now: float,
    ) -> None:
        waiting = {record.workload.uid for record in workloads if record.admission is None}
        self._open = {uid: one for uid, one in self._open.items() if uid in waiting}
        for uid, wait in simulated.items():
            if uid not in self._open and len(self._open) < MAX_OPEN:
                self._open[uid] = _OpenEstimate(now, wait, ReportedRange(ranges[uid]) if uid in ranges else None)


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
