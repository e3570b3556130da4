"""Simulated Job controller: creates and deletes pods as a Job's spec requires, and counts them in its status.

The order of writes is upstream's, because watchers observe it: pods before the status that counts them; the interim
condition and `uncountedTerminatedPods` before the tracking finalizers are removed; totals and the terminal condition
last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from admission.sandbox.apiserver.errors import ApiError
from admission.sandbox.clock import parse_rfc3339, rfc3339
from admission.sandbox.controllers import jobstate
from admission.sandbox.controllers.base import SimulatedController, condition, controller_of, is_over, is_ready
from admission.sandbox.controllers.events import Recorder
from admission.sandbox.controllers.jobpods import (
    TRACKING,
    backoff,
    ended_at,
    failures_of,
    index_of,
    is_tracked,
    make_pod,
    missing_indexes,
    surplus,
)
from admission.sandbox.controllers.jobstate import match_failure_policy

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.clock import Clock
    from admission.sandbox.controllers.jobstate import JobOutcome, Tally
    from admission.sandbox.local import LocalClient

# Changes of pods are batched: sandbox seconds between a change and the sync, as upstream, and their minimum in real
# time.
_BATCH = 1.0
_MIN_WALL_BATCH = 0.02
# Seconds until the creation of pods that the API server rejected is retried.
_CREATION_RETRY = 10.0
# Maximum number of pods that one sync creates or deletes.
_BURST = 500


@dataclass(slots=True)
class _PodCounts:
    """Numbers of a Job's pods, updated with the creations and deletions of the current sync."""

    active: int
    ready: int
    terminating: int

    def count_stopped(self, pod: Object) -> None:
        self.active -= 1
        self.ready -= is_ready(pod)
        self.terminating += 1


class JobController(SimulatedController[str]):
    """Keys are the uids of Jobs; the empty key stands for orphans: pods with a tracking finalizer but no Job."""

    plurals = ("jobs", "pods")

    def __init__(self, local: LocalClient, clock: Clock, *, keeps_start_time: bool) -> None:
        super().__init__(local, clock)
        self._keeps_start_time = keeps_start_time
        self._jobs: dict[str, tuple[str, str]] = {}
        self._pods: dict[str, dict[tuple[str, str], None]] = {}
        self._backoff: dict[str, tuple[int, float]] = {}
        self._batch = max(_BATCH, _MIN_WALL_BATCH * clock.speed)
        self._events = Recorder(local, clock, "job-controller")

    def observe(self, plural: str, change: str, obj: Object, before: Object | None) -> None:
        if plural == "jobs":
            self._observe_job(change, obj, before)
        else:
            self._observe_pod(change, obj, before)

    def _observe_job(self, change: str, job: Object, before: Object | None) -> None:
        metadata = job["metadata"]
        if change == "ADDED":
            self._jobs[metadata["uid"]] = (metadata["namespace"], metadata["name"])
        if before is None or change == "DELETED" or before["metadata"]["generation"] != metadata["generation"]:
            self.enqueue(metadata["uid"])

    def _observe_pod(self, change: str, pod: Object, before: Object | None) -> None:
        owner = controller_of(pod)
        uid: str = owner["uid"] if owner and owner["kind"] == "Job" else ""
        key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        if change == "DELETED":
            known = self._pods.get(uid, {})
            known.pop(key, None)
            if not known:
                self._pods.pop(uid, None)
            if not is_over(pod):
                self.enqueue(uid, self._batch)
            return
        if not uid and not is_tracked(pod):
            return
        known = self._pods.setdefault(uid, {})
        if key not in known:
            known[key] = None
            self.enqueue(uid)
        elif before is not None and _needs_sync(pod, before):
            self.enqueue(uid, self._batch)

    def _job(self, uid: str) -> Object | None:
        if uid not in self._jobs:
            return None
        job = self.local.get("jobs", *self._jobs[uid])
        return job if job is not None and job["metadata"]["uid"] == uid else None

    def _read_pods(self, uid: str) -> list[Object]:
        found = (self.local.get("pods", *key) for key in self._pods.get(uid, ()))
        return [pod for pod in found if pod is not None]

    async def sync(self, key: str) -> None:
        job, pods = self._job(key), self._read_pods(key)
        if job is None:
            await self._remove_finalizers([pod for pod in pods if is_tracked(pod)])
            for known in (self._jobs, self._pods, self._backoff):
                known.pop(key, None)
        elif job["spec"].get("managedBy", "kubernetes.io/job-controller") != "kubernetes.io/job-controller":
            return
        elif (finish := jobstate.finished_condition(job)) is not None:
            await self._remove_finalizers([pod for pod in pods if is_tracked(pod)])
            await self._clean_up_after_ttl(job, finish)
        else:
            await self._sync_job(job, pods)

    async def _sync_job(self, job: Object, pods: list[Object]) -> None:
        now, deleting = self.clock.now(), "deletionTimestamp" in job["metadata"]
        tally = jobstate.count(job, pods)
        counts = _PodCounts(len(tally.active), jobstate.count_ready(tally.active), tally.terminating)
        backoff_record = jobstate.backoff_state(tally, self._backoff.get(job["metadata"]["uid"], (0, 0.0)))
        status = dict(job.get("status") or {})
        if "startTime" not in status and not jobstate.is_suspended(job):
            status["startTime"] = rfc3339(now)
        end = jobstate.find_outcome(tally, now)
        if end is not None:
            await self._stop(job, tally.active, counts, untrack=False)
        elif not deleting:
            await self._manage(tally, counts, backoff_record)
        # The API server rejects the end of a Job with completions but no startTime: a suspended one ends once resumed.
        may_end = "startTime" in status or job["spec"].get("completions") == 0
        if end is None and may_end and jobstate.is_complete(tally, counts.active):
            end = jobstate.COMPLETED
        elif end is None and not deleting:
            await self._update_suspended(job, status, now)
        jobstate.put_counts(status, active=counts.active, ready=counts.ready, terminating=counts.terminating)
        await self._track_status(tally, status, end)
        self._backoff[job["metadata"]["uid"]] = backoff_record
        # After the deadline no further sync needs to be scheduled: the end of a pod is a watch event.
        if (deadline := jobstate.deadline_of({**job, "status": status})) is not None and deadline > now:
            self.enqueue(job["metadata"]["uid"], deadline - now)

    async def _manage(self, tally: Tally, counts: _PodCounts, backoff_record: tuple[int, float]) -> None:
        """Delete or create pods until the wanted number is active (manageJob)."""
        job, wanted = tally.job, jobstate.wanted_active(tally)
        surplus_pods = (
            tally.active if jobstate.is_suspended(job) else surplus(job, tally.active, max(0, counts.active - wanted))
        )
        if surplus_pods:
            await self._stop(job, surplus_pods[:_BURST], counts, untrack=True)
            return
        waiting = counts.terminating if job["spec"].get("podReplacementPolicy") == "Failed" else 0
        missing = min(wanted - waiting - counts.active, _BURST)
        if missing <= 0:
            return
        if "backoffLimitPerIndex" not in job["spec"]:
            pause = backoff_record[1] + backoff(backoff_record[0]) - self.clock.now() if backoff_record[0] else 0.0
            if pause > 0:
                self.enqueue(job["metadata"]["uid"], pause)
                return
        await self._create(tally, self._pods_to_create(tally, missing), counts)

    def _pods_to_create(self, tally: Tally, missing: int) -> list[Object]:
        job = tally.job
        if not tally.indexed:
            return [make_pod(job, None, None) for _ in range(missing)]
        taken = tally.completed | (tally.failed_indexes or set())
        taken.update(index for pod in tally.active if (index := index_of(pod)) is not None)
        indexes = missing_indexes(job, taken, missing)
        if tally.failed_indexes is None:
            return [make_pod(job, index, None) for index in indexes]
        pods = []
        for index in indexes:
            last = tally.delayed_deletions.get(index)
            if last is None:
                pods.append(make_pod(job, index, (0, 0)))
                continue
            counted, ignored = failures_of(last)
            counts = match_failure_policy(job, last).counts
            failures = (counted + counts, ignored + (not counts))
            pause = ended_at(last) + backoff(sum(failures)) - self.clock.now()
            if pause > 0:
                self.enqueue(job["metadata"]["uid"], pause)
            else:
                pods.append(make_pod(job, index, failures))
        return pods

    async def _create(self, tally: Tally, pods: list[Object], counts: _PodCounts) -> None:
        metadata = tally.job["metadata"]
        for pod in pods:
            try:
                created = await self.local.create("pods", metadata["namespace"], pod)
            except ApiError as error:
                await self._events.write(tally.job, "FailedCreate", f"Error creating: {error}", kind="Warning")
                self.enqueue(metadata["uid"], _CREATION_RETRY)
                return
            key = (metadata["namespace"], created["metadata"]["name"])
            self._pods.setdefault(metadata["uid"], {})[key] = None
            counts.active += 1
            await self._events.write(tally.job, "SuccessfulCreate", f"Created pod: {key[1]}")
            await self.yield_to_loop()

    async def _stop(self, job: Object, pods: list[Object], counts: _PodCounts, *, untrack: bool) -> None:
        """Delete pods; with `untrack` remove their finalizer first, so that they count as neither succeeded nor failed.

        `untrack` is for pods that are deleted without an outcome of the Job: suspension, or lower parallelism.
        """
        for pod in pods:
            if untrack:
                await self._remove_finalizers([pod])
            await self.remove("pods", pod)
            counts.count_stopped(pod)
            await self._events.write(job, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")

    async def _update_suspended(self, job: Object, status: Object, now: float) -> None:
        if jobstate.is_suspended(job):
            if jobstate.put_condition(status, "Suspended", "True", "JobSuspended", "Job suspended", now):
                if not self._keeps_start_time:
                    status.pop("startTime", None)
                await self._events.write(job, "Suspended", "Job suspended")
        elif condition(job, "Suspended") is not None and jobstate.put_condition(
            status, "Suspended", "False", "JobResumed", "Job resumed", now
        ):
            status["startTime"] = rfc3339(now)
            await self._events.write(job, "Resumed", "Job resumed")

    async def _track_status(self, tally: Tally, status: Object, end: JobOutcome | None) -> None:
        """Write the status, remove the finalizers of the pods that it counts, and write it again with the totals.

        That is upstream's trackJobStatusAndRemoveFinalizers.
        """
        now, job = self.clock.now(), tally.job
        uncounted, released = jobstate.count_ended(tally, status, end)
        status["uncountedTerminatedPods"] = uncounted
        if tally.indexed:
            jobstate.put_indexes(status, tally)
        if end is not None:
            jobstate.put_condition(status, end.target, "True", end.reason, end.message, now)
        job = await self._write_status(job, status)
        await self._remove_finalizers(released)
        totals = {kind: status.get(kind, 0) + len(uncounted.get(kind, ())) for kind in ("succeeded", "failed")}
        status = {**status, "uncountedTerminatedPods": {}}
        jobstate.put_counts(status, **totals)
        finished = end is not None and not status["terminating"]
        if end is not None and finished:
            jobstate.put_condition(status, end.final, "True", end.reason, end.message, now)
            if end.final == "Complete":
                status["completionTime"] = rfc3339(now)
        job = await self._write_status(job, status)
        if end is not None and finished:
            await self._record_finish(job, end)

    async def _write_status(self, job: Object, status: Object) -> Object:
        if status == job.get("status"):
            return job
        return await self.local.update(
            "jobs", job["metadata"]["namespace"], {**job, "status": status}, subresource="status"
        )

    async def _record_finish(self, job: Object, end: JobOutcome) -> None:
        if end.final == "Complete":
            await self._events.write(job, "Completed", "Job completed")
        else:
            await self._events.write(job, end.reason, end.message, kind="Warning")
        finish = jobstate.finished_condition(job)
        assert finish is not None
        await self._clean_up_after_ttl(job, finish)

    async def _clean_up_after_ttl(self, job: Object, finish: Object) -> None:
        """Delete a finished Job once its ttlSecondsAfterFinished has passed."""
        metadata, ttl = job["metadata"], job["spec"].get("ttlSecondsAfterFinished")
        if ttl is None or "deletionTimestamp" in metadata:
            return
        remaining = parse_rfc3339(finish["lastTransitionTime"]) + ttl - self.clock.now()
        if remaining > 0:
            self.enqueue(metadata["uid"], remaining)
        else:
            await self.remove("jobs", job, propagation="Foreground")

    async def _remove_finalizers(self, pods: list[Object]) -> None:
        """Remove the tracking finalizer from pods."""
        for pod in pods:
            live = self.local.get("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])
            if live is None or live["metadata"]["uid"] != pod["metadata"]["uid"] or not is_tracked(live):
                continue
            metadata = dict(live["metadata"])
            metadata["finalizers"] = [name for name in metadata["finalizers"] if name != TRACKING]
            if not metadata["finalizers"]:
                del metadata["finalizers"]
            await self.local.update("pods", metadata["namespace"], {**live, "metadata": metadata})
            await self.yield_to_loop()


def _needs_sync(pod: Object, before: Object) -> bool:
    """Return whether a change of a pod requires a sync of its Job."""
    if pod.get("status") is not before.get("status") and (
        pod["status"].get("phase") != before["status"].get("phase") or is_ready(pod) != is_ready(before)
    ):
        return True
    # Upstream syncs a second after any change: changes within a second after the binding appear in one status update.
    bound = ("nodeName" in pod["spec"]) != ("nodeName" in before["spec"])
    return bound or ("deletionTimestamp" in pod["metadata"]) != ("deletionTimestamp" in before["metadata"])
