"""Simulated CronJob controller: creates a Job from the template when one is due, deletes old finished Jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import orjson

from admission.sandbox.apiserver.errors import ApiError
from admission.sandbox.clock import parse_rfc3339, rfc3339
from admission.sandbox.controllers.base import owner_reference
from admission.sandbox.controllers.jobstate import finished_condition
from admission.sandbox.controllers.owners import REFUSED_RETRY, OwnerController
from admission.sandbox.schedules import parse_schedule

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object

_SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"
# Sandbox seconds after the due time at which the key is reconciled, so that the due time is certainly past.
_MARGIN = 0.1


class CronJobController(OwnerController):
    """Keys are the uids of CronJobs."""

    kind, plural, dependents, component = "CronJob", "cronjobs", "jobs", "cronjob-controller"

    async def sync(self, key: str) -> None:
        owner = self.owner(key)
        if owner is None or "deletionTimestamp" in owner["metadata"]:
            return
        jobs = await self._clean_up_finished(owner, await self.claim(owner))
        active = [job for job in jobs if finished_condition(job) is None]
        status = self._status(owner, jobs)
        if not owner["spec"].get("suspend"):
            due = self._latest_due(owner)
            if due is not None and (created := await self._start(owner, active, due)) is not None:
                active = [*([] if owner["spec"]["concurrencyPolicy"] == "Replace" else active), created]
                status["lastScheduleTime"] = rfc3339(due)
        if active:
            status["active"] = [_reference(job) for job in active]
        await self.write_status(owner, status)

    def _latest_due(self, owner: Object) -> float | None:
        """Return the latest due time since the last scheduled one, None if there is none; enqueue the next one.

        Times are seconds since the epoch.
        """
        spec, now = owner["spec"], self.clock.now()
        schedule, zone = parse_schedule(spec["schedule"]), ZoneInfo(spec.get("timeZone", "UTC"))
        last = (owner.get("status") or {}).get("lastScheduleTime") or owner["metadata"]["creationTimestamp"]
        since = max(parse_rfc3339(last), now - spec.get("startingDeadlineSeconds", now))
        due, following = None, schedule.next_after(since, zone)
        while following is not None and following <= now:
            due, following = following, schedule.next_after(following, zone)
        if following is not None:
            self.enqueue(owner["metadata"]["uid"], following - now + _MARGIN)
        return due

    async def _start(self, owner: Object, active: list[Object], due: float) -> Object | None:
        """Create and return the Job for a due time; None if concurrencyPolicy or the API server forbids it."""
        policy = owner["spec"]["concurrencyPolicy"]
        if policy == "Forbid" and active:
            text = "Not starting job because prior execution is running and concurrency policy is Forbid"
            await self.events.write(owner, "JobAlreadyActive", text)
            return None
        for job in active if policy == "Replace" else ():
            await self.remove("jobs", job, propagation="Background")
            await self.events.write(owner, "SuccessfulDelete", f"Deleted job {job['metadata']['name']}")
        template: Object = orjson.loads(orjson.dumps(owner["spec"]["jobTemplate"]))
        source, name = template.get("metadata", {}), f"{owner['metadata']['name']}-{int(due) // 60}"
        metadata = {
            "name": name,
            "labels": source.get("labels", {}),
            "annotations": {**source.get("annotations", {}), _SCHEDULED: rfc3339(due)},
            "ownerReferences": [owner_reference(owner)],
        }
        try:
            created = await self.create(owner, {"metadata": metadata, "spec": template["spec"]})
        except ApiError as error:
            await self.events.write(owner, "FailedCreate", f"Error creating job: {error}", kind="Warning")
            self.enqueue(owner["metadata"]["uid"], REFUSED_RETRY)
            return None
        await self.events.write(owner, "SuccessfulCreate", f"Created job {name}")
        return created

    def _status(self, owner: Object, jobs: list[Object]) -> Object:
        """Return the status without the list of active Jobs."""
        status = {name: value for name, value in (owner.get("status") or {}).items() if name != "active"}
        ends = [
            end["lastTransitionTime"] for job in jobs if (end := finished_condition(job)) and end["type"] == "Complete"
        ]
        if ends:
            status["lastSuccessfulTime"] = max(ends)
        return status

    async def _clean_up_finished(self, owner: Object, jobs: list[Object]) -> list[Object]:
        """Delete the oldest finished Jobs beyond the history limits; return the other Jobs."""
        removed: set[str] = set()
        for kind, limit in (("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit")):
            ended = [job for job in jobs if (end := finished_condition(job)) is not None and end["type"] == kind]
            ended.sort(key=lambda job: job["metadata"]["creationTimestamp"])
            for job in ended[: max(0, len(ended) - owner["spec"][limit])]:
                await self.remove("jobs", job, propagation="Background")
                removed.add(job["metadata"]["uid"])
        return [job for job in jobs if job["metadata"]["uid"] not in removed]


def _reference(job: Object) -> Object:
    metadata = job["metadata"]
    kept = {name: metadata[name] for name in ("name", "namespace", "uid", "resourceVersion")}
    return {"kind": job["kind"], "apiVersion": job["apiVersion"], **kept}
