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
ENDLESS: Final = frozenset({"RayCluster", "StatefulSet"})
"""Kinds that run until somebody deletes them."""


def workload_of(pod: Object) -> str:
    """`namespace/name` of what a pod is part of."""
    labels = pod["metadata"].get("labels", {})
    return f"{pod['metadata']['namespace']}/{labels.get(WORKLOAD) or labels.get(_JOB, '')}"


class Wholes:
    """Fed with each version of each pod."""

    def __init__(self, plan: Plan) -> None:
        self._planned = {f"{job.team}/{job.name}": job for job in plan.jobs}
        self._unended: dict[str, set[str]] = {key: set() for key in self._planned}
        """Those that run or wait, gated ones as well."""
        self._alive: dict[str, set[str]] = {key: set() for key in self._planned}
        self._succeeded: dict[str, set[str]] = {key: set() for key in self._planned}
        self._cut: set[str] = set()
        """Of which a pod was taken away before its end, since it was started."""
        self._deleted: set[str] = set()
        self._there = {key: asyncio.Event() for key in self._planned}

    def pod(self, key: str, workload: str, pod: Object | None) -> None:
        """The pod of this `namespace/name`, part of `workload`, is as `pod` says; None: it is gone."""
        if workload not in self._planned:
            return
        phase = "" if pod is None else pod.get("status", {}).get("phase", "")
        has_ended = pod is None or phase in ("Succeeded", "Failed")
        has_succeeded = phase == "Succeeded" and pod is not None and "deletionTimestamp" not in pod["metadata"]
        is_alive = pod is not None and not has_ended and not is_gated(pod)
        if is_alive:
            if not self._alive[workload]:
                self._cut.discard(workload)
            self._alive[workload].add(key)
        elif key in self._alive[workload]:
            self._alive[workload].remove(key)
            if not has_succeeded:
                self._cut.add(workload)
        (self._unended[workload].discard if has_ended else self._unended[workload].add)(key)
        if has_succeeded:
            self._succeeded[workload].add(key)
        elif pod is not None and phase != "Succeeded":  # after an eviction it is made anew
            self._succeeded[workload].discard(key)
        if len(self._alive[workload]) >= self._planned[workload].pods:
            self._there[workload].set()

    def deleted(self, workload: str) -> None:
        """Its user deletes it: when its pods are gone, it is over."""
        self._deleted.add(workload)

    def is_over(self, workload: str) -> bool:
        """Whether it has run to its end, or no pod is left of what was deleted."""
        if self._alive[workload]:
            return False
        planned = self._planned[workload]
        return workload in self._deleted if planned.kind in ENDLESS else len(self._succeeded[workload]) >= planned.pods

    def is_whole(self, workload: str) -> bool:
        """Whether all of its pods may run now."""
        return len(self._alive[workload]) >= self._planned[workload].pods

    def is_idle(self, workload: str) -> bool:
        """Whether none of its pods may run now."""
        return not self._alive[workload]

    def lacks_pods(self, workload: str) -> bool:
        """Whether none of its pods may run now, and some neither wait nor have succeeded."""
        there = self._unended[workload] | self._succeeded[workload]
        return not self._alive[workload] and len(there) < self._planned[workload].pods

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
        alive, is_done = len(self._alive[workload]), self.is_over(workload)
        requests = {resource: format_amount(resource, amount) for resource, amount in planned.requests.items()}
        return {
            "metadata": {"namespace": planned.team},
            "spec": {
                # Between two pods of one start there may be none: the first has ended, the last is still gated.
                "suspend": not alive and not is_done and (not self._succeeded[workload] or workload in self._cut),
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
