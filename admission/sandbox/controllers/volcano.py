"""Simulated Volcano controller, as far as it differs from the operators of other kinds.

Pods are created as soon as there is a Job, and recreated whenever they are removed. The policies of a Job and its
tasks determine what happens when a pod fails or is deleted, unless it carries `volcano.sh/controller-out-of-sync`. A
restart counts against `maxRetry`. After Volcano's `pkg/controllers/job` and `pkg/webhooks/admission/jobs/mutate`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from admission.sandbox.apiserver.errors import ApiError
from admission.sandbox.controllers.base import PARSE_ERRORS, SimulatedController, controller_of, is_over, is_terminating
from admission.sandbox.controllers.owners import REFUSED_RETRY, pod_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.clock import Clock
    from admission.sandbox.local import LocalClient

JOBS: Final = "jobs.batch.volcano.sh"
SCHEDULER: Final = "volcano"
_OUT_OF_SYNC: Final = "volcano.sh/controller-out-of-sync"
_OVER: Final = ("Completed", "Failed", "Aborted", "Terminated")
_DEFAULT_RETRIES: Final = 3


class VolcanoController(SimulatedController[tuple[str, str]]):
    """Keys are namespace and name of Volcano Jobs. The sandbox's scheduler binds their pods, once they have no gate."""

    plurals = (JOBS, "pods")
    malformed = PARSE_ERRORS

    def __init__(self, local: LocalClient, clock: Clock) -> None:
        super().__init__(local, clock)
        self._events: dict[tuple[str, str], list[tuple[str, str]]] = {}
        """Events to evaluate by the Job's policies: (namespace, name) of the Job to (`UID/VERSION/TASK`, event)."""

    def observe(self, plural: str, change: str, obj: Object, before: Object | None) -> None:
        """Enqueue the Job of an event about it or one of its pods; record PodFailed and PodEvicted for its policies."""
        namespace = obj["metadata"]["namespace"]
        if plural == JOBS:
            self.enqueue((namespace, obj["metadata"]["name"]))
            return
        owner = controller_of(obj)
        if owner is None or not owner["apiVersion"].startswith("batch.volcano.sh/"):
            return
        key = namespace, owner["name"]
        failed = obj.get("status", {}).get("phase") == "Failed" and before is not None and not is_over(before)
        event = "PodEvicted" if change == "DELETED" else "PodFailed" if failed else ""
        if event and _OUT_OF_SYNC not in obj["metadata"].get("annotations", {}):
            task = obj["metadata"]["annotations"].get("volcano.sh/task-spec", "")
            version = obj["metadata"]["annotations"].get("volcano.sh/job-version", "0")
            self._events.setdefault(key, []).append((f"{owner['uid']}/{version}/{task}", event))
        self.enqueue(key)

    async def sync(self, key: tuple[str, str]) -> None:
        """Restart the Job by its policies, or create its pods; then update the status."""
        events = self._events.pop(key, [])
        job = self.local.get(JOBS, *key)
        if job is None or "deletionTimestamp" in job["metadata"]:
            return
        status: Object = dict(job.get("status") or {"state": {"phase": "Pending"}, "minAvailable": _minimum(job)})
        pods = {pod["metadata"]["name"]: pod for pod in self._pods(job)}
        phase = status["state"]["phase"]
        if phase in _OVER:
            for pod in pods.values():
                if not is_over(pod) and "deletionTimestamp" not in pod["metadata"]:
                    await self.remove("pods", pod)
        elif phase == "Restarting" or _restarts(job, status, events):
            await self._restart(job, status, list(pods.values()))
        else:
            await self._create_missing(job, status, pods)
            for pod in pods.values():
                if (
                    _OUT_OF_SYNC in pod["metadata"].get("annotations", {})
                    and "deletionTimestamp" not in pod["metadata"]
                ):
                    await self.remove("pods", pod)
        self._update_counts(job, status)
        if status != job.get("status"):
            await self.local.update(JOBS, key[0], {**job, "status": status}, subresource="status")

    def _pods(self, job: Object) -> list[Object]:
        return self.local.controlled_by("pods", job["metadata"]["uid"])

    async def _restart(self, job: Object, status: Object, pods: list[Object]) -> None:
        """Delete all pods, also finished ones; then the Job is Pending again, or Failed if it reached maxRetry."""
        if status["state"]["phase"] != "Restarting":
            status["retryCount"] = status.get("retryCount", 0) + 1
            status["version"] = status.get("version", 0) + 1
            status["state"] = {"phase": "Restarting"}
        for pod in pods:
            if "deletionTimestamp" not in pod["metadata"]:
                await self.remove("pods", pod)
        if status["retryCount"] >= (job["spec"].get("maxRetry") or _DEFAULT_RETRIES):
            status["state"] = {"phase": "Failed"}
        elif not self._pods(job):
            status["state"] = {"phase": "Pending"}

    async def _create_missing(self, job: Object, status: Object, present: dict[str, Object]) -> None:
        for task in job["spec"]["tasks"]:
            if not _dependencies_met(job, task, present.values()):
                continue
            for number in range(task.get("replicas", 1)):
                name = f"{job['metadata']['name']}-{task['name']}-{number}"
                if name in present:
                    continue
                try:
                    await self.local.create("pods", job["metadata"]["namespace"], _pod(job, status, task, name, number))
                except ApiError as error:
                    if error.code != 409:
                        raise
                    # A pod of another owner has the name; its deletion does not enqueue this Job, so poll.
                    self.enqueue((job["metadata"]["namespace"], job["metadata"]["name"]), REFUSED_RETRY)
        wanted = {
            f"{job['metadata']['name']}-{task['name']}-{number}"
            for task in job["spec"]["tasks"]
            for number in range(task.get("replicas", 1))
        }
        for name, pod in present.items():
            if name not in wanted and "deletionTimestamp" not in pod["metadata"]:
                await self.remove("pods", pod)

    def _update_counts(self, job: Object, status: Object) -> None:
        all_pods = self._pods(job)
        pods = [pod for pod in all_pods if "deletionTimestamp" not in pod["metadata"]]
        phases = [pod.get("status", {}).get("phase", "Pending") for pod in pods]
        tasks: dict[str, dict[str, Any]] = {}
        for pod, phase in zip(pods, phases, strict=True):
            count = tasks.setdefault(pod["metadata"]["annotations"]["volcano.sh/task-spec"], {"phase": {}})["phase"]
            count[phase] = count.get(phase, 0) + 1
        numbers = {phase.lower(): phases.count(phase) for phase in ("Pending", "Running", "Succeeded", "Failed")}
        numbers["terminating"] = sum(map(is_terminating, all_pods))
        for name in numbers:
            status.pop(name, None)
        status |= {name: number for name, number in numbers.items() if number}
        status["taskStatusCount"] = tasks
        if status["state"]["phase"] in ("Pending", "Running"):
            status["state"] = {"phase": _phase(job, status["state"]["phase"], numbers)}


def _phase(job: Object, before: str, numbers: dict[str, int]) -> str:
    """Return the next phase by the numbers of pods (`pendingState` and `runningState` of Volcano's controller)."""
    replicas, minimum = sum(task.get("replicas", 1) for task in job["spec"]["tasks"]), _minimum(job)
    if before == "Pending":
        return "Running" if minimum <= numbers["running"] + numbers["succeeded"] + numbers["failed"] else "Pending"
    if numbers["succeeded"] + numbers["failed"] == replicas:
        return "Completed" if numbers["succeeded"] >= minimum else "Failed"
    return "Pending" if numbers["pending"] > replicas - minimum else "Running"


def _restarts(job: Object, status: Object, events: list[tuple[str, str]]) -> bool:
    """Return whether a policy restarts the Job after one of these events of its present version."""
    for where, event in events:
        uid, version, name = where.split("/", 2)
        if uid != job["metadata"]["uid"] or version != str(status.get("version", 0)):
            continue
        task: Object = next((each for each in job["spec"]["tasks"] if each["name"] == name), {})
        for policy in (*task.get("policies", ()), *job["spec"].get("policies", ())):
            if {event, "*"} & {policy.get("event"), *policy.get("events", ())}:
                return bool(policy["action"] == "RestartJob")
    return False


def _dependencies_met(job: Object, task: Object, pods: Iterable[Object]) -> bool:
    """Return whether the tasks that it `dependsOn` run or succeeded: all of them, or one with `iteration: any`."""
    depends = task.get("dependsOn") or {}
    running = Counter(
        pod["metadata"]["annotations"]["volcano.sh/task-spec"]
        for pod in pods
        if pod.get("status", {}).get("phase") in ("Running", "Succeeded")
    )
    minimum = {each["name"]: each.get("minAvailable", each.get("replicas", 1)) for each in job["spec"]["tasks"]}
    met = [running[name] >= minimum.get(name, 0) for name in depends.get("name") or ()]
    return not met or (any(met) if depends.get("iteration") == "any" else all(met))


def _minimum(job: Object) -> int:
    minimum = job["spec"].get("minAvailable")
    if minimum:
        return int(minimum)
    return sum(task.get("minAvailable", task.get("replicas", 1)) for task in job["spec"]["tasks"])


def _pod(job: Object, status: Object, task: Object, name: str, number: int) -> Object:
    pod = pod_of(job, {"metadata": {}, **task["template"]})
    metadata = pod["metadata"]
    metadata["name"] = name
    about = {"volcano.sh/task-spec": task["name"], "volcano.sh/task-index": str(number)}
    about |= {"volcano.sh/job-name": job["metadata"]["name"], "volcano.sh/queue-name": job["spec"].get("queue", "")}
    version = {"volcano.sh/job-version": str(status.get("version", 0))}
    metadata["labels"] = {**metadata.get("labels", {}), **about}
    metadata["annotations"] = {**metadata.get("annotations", {}), **about, **version}
    pod["spec"].setdefault("schedulerName", job["spec"].get("schedulerName", SCHEDULER))
    if job["spec"].get("priorityClassName"):
        pod["spec"].setdefault("priorityClassName", job["spec"]["priorityClassName"])
    return pod
