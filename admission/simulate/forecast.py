"""When waiting workloads will start: the engine run forward on virtual time, from what runs now to its end.

Nothing is known of workloads that are yet to come; by how much estimates are wrong on the whole is learned from those
of the past (`Calibration`).
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, TypeAlias

from admission.engine import Engine, WorkloadAdmitted, WorkloadGone, WorkloadPending
from admission.simulate.durations import remaining

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from admission.engine import Event, Policy
    from admission.model.workload import Workload
    from admission.simulate.durations import Durations

GRAIN: Final = 0.02
"""Ends of workloads are gathered that lie within this part of the time from now: the farther, the coarser."""

Starts: TypeAlias = dict[str, float]
"""By uid: seconds from now until a workload starts."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What there is now."""

    policy: Policy
    events: Sequence[Event]
    """That bring an engine to the state of now, in their order, those of workloads last."""
    now: float
    limits: Mapping[str, float]
    """By uid: seconds after its start at which a workload is stopped."""


def play(scene: Scene, durations: Durations, *, on_time: Callable[[], bool] = lambda: True) -> Starts:
    """The starts of those that wait now, if everything takes as long as it mostly does; none while that is unknown.

    `on_time` is asked now and then; when it says no, the play ends, and farther starts are unknown.
    """
    return _Future(scene, durations).play(on_time)


class _Future:
    def __init__(self, scene: Scene, durations: Durations) -> None:
        self._scene = scene
        self._durations = durations
        self._engine = Engine(scene.policy)
        self._ends: list[tuple[float, str]] = []
        self._end_of: dict[str, float] = {}
        self._starts: Starts = {}
        self._like: dict[tuple[str, str, str, int], Sequence[float]] = {}
        """Run times of the like of workloads, by namespace, queue, user and the identity of the pod sets."""

    def play(self, on_time: Callable[[], bool]) -> Starts:
        scene, engine = self._scene, self._engine
        arranged = False
        for event in scene.events:
            if not arranged and isinstance(event, WorkloadPending | WorkloadAdmitted):
                # Of queues that are still news each workload would be queued twice.
                engine.refresh(scene.now)
                arranged = True
            engine.observe(event, now=scene.now)
            if isinstance(event, WorkloadAdmitted) and not self._runs(event.workload, event.at):
                return {}
        now = scene.now
        while on_time():
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
            self._end(now + GRAIN * (now - scene.now))
        return self._starts

    def _settle(self, now: float) -> bool:
        decisions = self._engine.settle(now)
        for admit in decisions.admitted:
            uid = admit.workload.uid
            self._starts.setdefault(uid, now - self._scene.now)
            if not self._runs(admit.workload, now, begins=True):
                return False
        for evict in decisions.evicted:
            self._end_of.pop(evict.workload.uid, None)
            self._engine.observe(WorkloadGone(evict.workload.uid, requeue=evict.workload), now=now)
        return True

    def _runs(self, workload: Workload, at: float, *, begins: bool = False) -> bool:
        """Note when it ends; False if nobody knows."""
        elapsed = 0.0 if begins else max(self._scene.now - at, 0.0)
        limit = self._scene.limits.get(workload.uid)
        key = workload.namespace, workload.queue, workload.user, id(workload.pod_sets)
        like = self._like.get(key)
        if like is None:
            like = self._like[key] = self._durations.like(workload)
        rest = remaining(like, elapsed=elapsed, limit=limit)
        if rest is None:
            return False
        end = (at if begins else self._scene.now) + rest
        self._end_of[workload.uid] = end
        heappush(self._ends, (end, workload.uid))
        return True

    def _end(self, until: float) -> None:
        """All that runs ends that would until then."""
        while self._ends and self._ends[0][0] <= until:
            at, uid = heappop(self._ends)
            if self._end_of.get(uid) == at:
                del self._end_of[uid]
                self._engine.observe(WorkloadGone(uid), now=at)
