"""All-or-nothing starts, observed by pods only, whatever the kind of their object. No I/O and no clock."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from admission.cli.demo.live_pods import is_gated
from admission.model.quantity import format_amount

if TYPE_CHECKING:
    from admission.cli.demo.plan import PlannedJob, ScenePlan

Object: TypeAlias = dict[str, Any]

WORKLOAD: Final = "demo.sluice.dev/workload"
"""Label of a pod that names the object it is part of, if that is not a Job."""
_JOB: Final = "batch.kubernetes.io/job-name"
UNTIL_DELETED: Final = frozenset({"RayCluster", "StatefulSet", "LeaderWorkerSet"})
"""Kinds that run until their user deletes them."""


def workload_of(pod: Object) -> str:
    """Return `namespace/name` of the object that a pod is part of."""
    labels = pod["metadata"].get("labels", {})
    return f"{pod['metadata']['namespace']}/{labels.get(WORKLOAD) or labels.get(_JOB, '')}"


class Gangs:
    """State of the gang of pods of each planned object, updated with each version of each pod.

    Keys of workloads and pods are `namespace/name`. A pod is alive from the removal of its gate until its end.
    """

    def __init__(self, plan: ScenePlan) -> None:
        self._planned = {f"{job.team}/{job.name}": job for job in plan.jobs}
        self._unfinished: dict[str, set[str]] = {key: set() for key in self._planned}
        """Pods that have not finished, including gated ones, by workload."""
        self._alive: dict[str, set[str]] = {key: set() for key in self._planned}
        self._succeeded: dict[str, set[str]] = {key: set() for key in self._planned}
        self._interrupted: set[str] = set()
        """Workloads of which a pod was deleted or failed before it succeeded, since their last start."""
        self._deleted: set[str] = set()
        self._started = {key: asyncio.Event() for key in self._planned}

    def pod(self, key: str, workload: str, pod: Object | None) -> None:
        """Update the pod of this key, which is part of `workload`; `pod` is None if it was deleted."""
        if workload not in self._planned:
            return
        phase = "" if pod is None else pod.get("status", {}).get("phase", "")
        has_ended = pod is None or phase in ("Succeeded", "Failed")
        has_succeeded = phase == "Succeeded" and pod is not None and "deletionTimestamp" not in pod["metadata"]
        is_alive = pod is not None and not has_ended and not is_gated(pod)
        if is_alive:
            if not self._alive[workload]:
                self._interrupted.discard(workload)
            self._alive[workload].add(key)
        elif key in self._alive[workload]:
            self._alive[workload].remove(key)
            if not has_succeeded:
                self._interrupted.add(workload)
        (self._unfinished[workload].discard if has_ended else self._unfinished[workload].add)(key)
        if has_succeeded:
            self._succeeded[workload].add(key)
        elif pod is not None and phase != "Succeeded":  # recreated after an eviction
            self._succeeded[workload].discard(key)
        if len(self._alive[workload]) >= self._planned[workload].pods:
            self._started[workload].set()

    def deleted(self, workload: str) -> None:
        """Note that its user has deleted the object, which is over when its pods are gone."""
        self._deleted.add(workload)

    def is_over(self, workload: str) -> bool:
        """Whether the object has completed; for kinds that run until deleted: whether it and its pods were deleted."""
        if self._alive[workload]:
            return False
        planned = self._planned[workload]
        return (
            workload in self._deleted
            if planned.kind in UNTIL_DELETED
            else len(self._succeeded[workload]) >= planned.pods
        )

    def all_alive(self, workload: str) -> bool:
        """Whether all pods of the object are alive."""
        return len(self._alive[workload]) >= self._planned[workload].pods

    def none_alive(self, workload: str) -> bool:
        """Whether no pod of the object is alive."""
        return not self._alive[workload]

    def lacks_pods(self, workload: str) -> bool:
        """Whether no pod of the object is alive, and some pods neither exist as gated ones nor have succeeded."""
        existing = self._unfinished[workload] | self._succeeded[workload]
        return not self._alive[workload] and len(existing) < self._planned[workload].pods

    def has_started(self, workload: str) -> bool:
        """Whether all pods of the object were alive at the same time at least once."""
        return self._started[workload].is_set()

    async def wait_until_started(self, job: PlannedJob) -> None:
        """Wait until all pods of the object are alive at the same time."""
        await self._started[f"{job.team}/{job.name}"].wait()

    def as_job(self, workload: str) -> Object | None:
        """Return a Job that represents an object of another kind in the accounting; None for Jobs and unknown keys."""
        planned = self._planned.get(workload)
        if planned is None or planned.kind == "Job":
            return None
        alive, is_done = len(self._alive[workload]), self.is_over(workload)
        requests = {resource: format_amount(resource, amount) for resource, amount in planned.requests.items()}
        return {
            "metadata": {"namespace": planned.team},
            "spec": {
                # During a start there may be no live pod: the first has succeeded already, the last is still gated.
                "suspend": not alive
                and not is_done
                and (not self._succeeded[workload] or workload in self._interrupted),
                "parallelism": planned.pods,
                "completions": planned.pods,
                "template": {"spec": {"containers": [{"resources": {"requests": requests}}]}},
            },
            "status": {
                "active": alive,
                "succeeded": planned.pods if is_done else len(self._succeeded[workload]),
                "conditions": [{"type": "Complete", "status": "True"}] if is_done else [],
            },
        }
