"""The pretend CronJob controller: makes a Job of the template whenever one is due, and tidies up what has finished."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import orjson

from admission.sandbox.apiserver.errors import ApiError
from admission.sandbox.clock import parse_rfc3339, rfc3339
from admission.sandbox.controllers.base import owner_reference
from admission.sandbox.controllers.jobstate import finish_of
from admission.sandbox.controllers.owners import REFUSED_RETRY, OwnerController
from admission.sandbox.schedules import parse_schedule

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object

_SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"
# What is due begins a moment after its minute, so that it is certainly past.
_MOMENT = 0.1


class CronJobController(OwnerController):
    """Keys are the uids of CronJobs."""

    kind, plural, dependents, component = "CronJob", "cronjobs", "jobs", "cronjob-controller"

    async def sync(self, key: str) -> None:
        owner = self.owner(key)
        if owner is None or "deletionTimestamp" in owner["metadata"]:
            return
        jobs = await self._tidy(owner, await self.claim(owner))
        active = [job for job in jobs if finish_of(job) is None]
        status = self._status(owner, jobs)
        if not owner["spec"].get("suspend"):
            due = self._missed(owner)
            if due is not None and (made := await self._start(owner, active, due)) is not None:
                active = [*([] if owner["spec"]["concurrencyPolicy"] == "Replace" else active), made]
                status["lastScheduleTime"] = rfc3339(due)
        if active:
            status["active"] = [_reference(job) for job in active]
        await self.write_status(owner, status)

    def _missed(self, owner: Object) -> float | None:
        """The last time that was missed, None if none was; the next one is noted."""
        spec, now = owner["spec"], self.clock.now()
        schedule, zone = parse_schedule(spec["schedule"]), ZoneInfo(spec.get("timeZone", "UTC"))
        last = (owner.get("status") or {}).get("lastScheduleTime") or owner["metadata"]["creationTimestamp"]
        since = max(parse_rfc3339(last), now - spec.get("startingDeadlineSeconds", now))
        due, following = None, schedule.next_after(since, zone)
        while following is not None and following <= now:
            due, following = following, schedule.next_after(following, zone)
        if following is not None:
            self.dirty(owner["metadata"]["uid"], following - now + _MOMENT)
        return due

    async def _start(self, owner: Object, active: list[Object], due: float) -> Object | None:
        """The Job for a time, unless the policy forbids it or the API server does."""
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
            self.dirty(owner["metadata"]["uid"], REFUSED_RETRY)
            return None
        await self.events.write(owner, "SuccessfulCreate", f"Created job {name}")
        return created

    def _status(self, owner: Object, jobs: list[Object]) -> Object:
        """The status but for the active Jobs."""
        status = {name: value for name, value in (owner.get("status") or {}).items() if name != "active"}
        ends = [end["lastTransitionTime"] for job in jobs if (end := finish_of(job)) and end["type"] == "Complete"]
        if ends:
            status["lastSuccessfulTime"] = max(ends)
        return status

    async def _tidy(self, owner: Object, jobs: list[Object]) -> list[Object]:
        """Delete the oldest finished Jobs beyond the limits; what is left."""
        gone: set[str] = set()
        for kind, limit in (("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit")):
            ended = [job for job in jobs if (end := finish_of(job)) is not None and end["type"] == kind]
            ended.sort(key=lambda job: job["metadata"]["creationTimestamp"])
            for job in ended[: max(0, len(ended) - owner["spec"][limit])]:
                await self.remove("jobs", job, propagation="Background")
                gone.add(job["metadata"]["uid"])
        return [job for job in jobs if job["metadata"]["uid"] not in gone]


def _reference(job: Object) -> Object:
    metadata = job["metadata"]
    kept = {name: metadata[name] for name in ("name", "namespace", "uid", "resourceVersion")}
    return {"kind": job["kind"], "apiVersion": job["apiVersion"], **kept}
