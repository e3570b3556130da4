"""Estimated starts from what the database says, and what became of earlier estimates. Keeps what it has learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from admission.simulate.calibration import Calibration, Claim
from admission.simulate.durations import Durations
from admission.simulate.forecast import Scene, play
from admission.store.workloads.replay import events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from admission.engine import Policy
    from admission.simulate.calibration import Range
    from admission.store.records import LoadedState, WorkloadRecord

OUTCOMES: Final = frozenset({"Succeeded", "Failed"})
"""Of workloads that ran to their end: the others say nothing about how long something runs."""

FOLLOWED: Final = 5000
"""Estimates whose outcome is awaited at a time."""


@dataclass(frozen=True, slots=True)
class _Followed:
    """An estimate that was made for a workload when it was first seen waiting."""

    at: float
    simulated: float
    claim: Claim | None


@dataclass(frozen=True, slots=True)
class Estimates:
    """What is expected now. Times are seconds since the epoch."""

    at: float
    starts: Mapping[str, tuple[float, float]]
    """By uid: p50 and p90. Empty while too little is known."""
    share_held: float | None
    """The share of past estimates where the workload had started by p90; None while there are too few."""


class Estimator:
    """Told of everything that has ended and of the state, again and again, by whoever reads the database."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._durations = Durations()
        self._calibration = Calibration()
        self._followed: dict[str, _Followed] = {}
        self.ended_until = 0.0
        """When the last of the workloads ended that are known to have; later ones are still to be told."""

    def learn(self, ended: Iterable[WorkloadRecord]) -> None:
        """Workloads have ended, oldest first."""
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
        on_time: Callable[[], bool],
    ) -> Estimates:
        """When those that wait in `state` will start. `limits`: seconds for which a workload may run, by uid."""
        for record in state.workloads:
            if record.admission is not None:
                self._check(record)
        scene = Scene(self._policy, list(events(state, namespaces)), now, limits)
        simulated = play(scene, self._durations, on_time=on_time)
        still = [(one.simulated, now - one.at) for one in self._followed.values()]
        for one in self._followed.values():
            if one.claim is not None:
                self._calibration.check(one.claim, now - one.at, started=False)
        ranges = self._calibration.ranges(simulated, waiting=still)
        self._follow(state.workloads, simulated, ranges, now)
        starts = {uid: (now + told.p50, now + told.p90) for uid, told in ranges.items()}
        return Estimates(now, starts, self._calibration.share_held)

    def _check(self, record: WorkloadRecord) -> None:
        """Learn from an estimate that was made for it, if it has started."""
        followed = self._followed.pop(record.workload.uid, None)
        if followed is None or record.admitted_at is None or record.admitted_at < followed.at:
            return
        waited = record.admitted_at - followed.at
        self._calibration.learn(followed.simulated, waited)
        if followed.claim is not None:
            self._calibration.check(followed.claim, waited, started=True)

    def _follow(
        self, workloads: Iterable[WorkloadRecord], simulated: Mapping[str, float], told: Mapping[str, Range], now: float
    ) -> None:
        waiting = {record.workload.uid for record in workloads if record.admission is None}
        self._followed = {uid: one for uid, one in self._followed.items() if uid in waiting}
        for uid, wait in simulated.items():
            if uid not in self._followed and len(self._followed) < FOLLOWED:
                self._followed[uid] = _Followed(now, wait, Claim(told[uid]) if uid in told else None)
