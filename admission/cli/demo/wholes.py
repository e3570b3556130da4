"""Whether what starts as a whole did: by its pods alone, of whatever kind it is. No I/O and no clock."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from admission.cli.demo.live_pods import is_gated
from admission.model.quantity import format_amount

if TYPE_CHECKING:
    from admission.cli.demo.plan import Plan, PlannedJob

Object: TypeAlias = dict[str, Any]

WORKLOAD: Final = "demo.sluice.dev/workload"
"""The label that names what a pod is part of, if that is no Job."""
_JOB: Final = "batch.kubernetes.io/job-name"


def workload_of(pod: Object) -> str:
    """`namespace/name` of what a pod is part of."""
    labels = pod["metadata"].get("labels", {})
    return f"{pod['metadata']['namespace']}/{labels.get(WORKLOAD) or labels.get(_JOB, '')}"


class Wholes:
    """Fed with each version of each pod."""

    def __init__(self, plan: Plan) -> None:
        self._planned = {f"{job.team}/{job.name}": job for job in plan.jobs}
        self._alive: dict[str, set[str]] = {key: set() for key in self._planned}
        self._succeeded: dict[str, set[str]] = {key: set() for key in self._planned}
        self._there = {key: asyncio.Event() for key in self._planned}

    def pod(self, key: str, workload: str, pod: Object | None) -> None:
        """The pod of this `namespace/name`, part of `workload`, is as `pod` says; None: it is gone."""
        if workload not in self._planned:
            return
        phase = "" if pod is None else pod.get("status", {}).get("phase", "")
        is_alive = pod is not None and phase not in ("Succeeded", "Failed") and not is_gated(pod)
        (self._alive[workload].add if is_alive else self._alive[workload].discard)(key)
        if phase == "Succeeded":
            self._succeeded[workload].add(key)
        if len(self._alive[workload]) >= self._planned[workload].pods:
            self._there[workload].set()

    def started_whole(self, workload: str) -> bool:
        """Whether all of its pods have been let run, and none of them had ended when the last one was."""
        return self._there[workload].is_set()

    async def all_there(self, job: PlannedJob) -> None:
        """Return when that is so."""
        await self._there[f"{job.team}/{job.name}"].wait()

    def as_job(self, workload: str) -> Object | None:
        """What is no Job as a Job would look that has its pods; None: it is one, or none of ours."""
        planned = self._planned.get(workload)
        if planned is None or planned.kind == "Job":
            return None
        alive, was_whole = len(self._alive[workload]), self._there[workload].is_set()
        is_done = was_whole and not alive
        requests = {resource: format_amount(resource, amount) for resource, amount in planned.requests.items()}
        return {
            "metadata": {"namespace": planned.team},
            "spec": {
                "suspend": not alive and not is_done,
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
