"""A policy that only the tests have: at most so many workloads of each user hold quota at a time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from admission.engine import AdmissionPolicy, EngineView, Refusal

if TYPE_CHECKING:
    from admission.engine.clusterqueue import Held
    from admission.model.workload import Workload


@dataclass(frozen=True, slots=True)
class MaxRunning:
    """At most `limit` for each user."""

    limit: int

    def start(self, view: EngineView) -> RunningByUser:
        del view
        return RunningByUser(self.limit)


class RunningByUser(AdmissionPolicy):
    """How many workloads of each user hold quota."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.running: Counter[str] = Counter()

    def filter(self, workload: Workload, cluster_queue: str) -> Refusal | None:
        running = self.running[workload.user]
        if running < self._limit:
            return None
        message = f"user {workload.user} runs {running} workloads of at most {self._limit}, in all ClusterQueues"
        return Refusal("MaxRunningPerUser", message)

    def charge(self, held: Held, *, restored: bool) -> None:
        self.running[held.workload.user] += 1

    def release(self, held: Held) -> None:
        self.running[held.workload.user] -= 1
