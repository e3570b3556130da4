"""Example of an admission policy, for tests: limits the number of workloads of each user that hold quota."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from admission.engine import AdmissionPolicy, EngineView, Refusal
from admission.engine.clusterqueue import Held
from admission.engine.tree import FlavorResource
from admission.model.workload import Workload


@dataclass(frozen=True, slots=True)
class MaxRunning:
    """Configuration: at most `limit` workloads of each user hold quota at the same time."""

    limit: int

    def start(self, view: EngineView) -> RunningByUser:
        del view
        return RunningByUser(self.limit)


class RunningByUser(AdmissionPolicy):
    """State: the number of workloads of each user that hold quota."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.running: Counter[str] = Counter()

    def filter(
        self,
        workload: Workload,
        cluster_queue: str,
        usage: Mapping[FlavorResource, int],
        victims: Collection[Held] = (),
    ) -> Refusal | None:
        running = self.running[workload.user]
        if running < self._limit:
            return None
        message = f"user {workload.user} runs {running} workloads of at most {self._limit}, in all ClusterQueues"
        return Refusal("MaxRunningPerUser", message)

    def charge(self, held: Held, *, restored: bool) -> None:
        self.running[held.workload.user] += 1

    def release(self, held: Held) -> None:
        self.running[held.workload.user] -= 1
