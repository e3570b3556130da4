"""Chaos test with several kinds: the plan, users' objects and actions, and a check that specs are restored."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from admission.cli.demo.gangs import UNTIL_DELETED, WORKLOAD
from admission.cli.demo.load import document as demo_document
from admission.cli.demo.plan import QUEUE, Nodes, PlannedJob, ScenePlan, Team
from admission.cluster.errors import NotFound
from admission.cluster.informer import Informer
from admission.model.errors import ClusterError
from admission.model.quantity import format_amount

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from admission.cli.demo.account import SceneAccount
    from admission.cli.demo.plan import Document
    from admission.cluster.client import Client

PODS: Final = 10
"""Pods of each object, as in the scalability test by which batch queues are usually compared."""
_GIB: Final = 2**30
_POD: Final = {"cpu": 2_000, "memory": 2 * _GIB}
_NODE: Final = {"cpu": 10_000, "memory": 10 * _GIB}
_KINDS: Final = {
    "jobs": "Job",
    "pod-groups": "PodGroup",
    "rayjobs": "RayJob",
    "statefulsets": "StatefulSet",
    "rayclusters": "RayCluster",
    "torchx": "VolcanoJob",
}
"""Team to the only kind that it submits."""
PATHS: Final = {
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "PodGroup": "/api/v1/namespaces/{}/pods",
    "RayJob": "/apis/ray.io/v1/namespaces/{}/rayjobs",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "RayCluster": "/apis/ray.io/v1/namespaces/{}/rayclusters",
    "VolcanoJob": "/apis/batch.volcano.sh/v1alpha1/namespaces/{}/jobs",
    "LeaderWorkerSet": "/apis/leaderworkerset.x-k8s.io/v1/namespaces/{}/leaderworkersets",
}
"""Kind to the path of its collection, with a placeholder for the namespace."""
_WATCHED: Final = {kind: PATHS[kind].replace("namespaces/{}/", "") for kind in PATHS if kind not in ("Job", "PodGroup")}
FIRST_GROUP: Final = "-0"
"""What the name of the first group of a LeaderWorkerSet has after that of its object."""
_POLL_INTERVAL: Final = 0.25
"""Real seconds between two polls of a user."""


def plan_of_kinds(each: int, *, speed: float, seed: int = 1) -> ScenePlan:
    """Return a plan of six teams with one kind and `each` objects per team; teams lend each other idle quota."""
    chance = random.Random(seed)
    nodes = max(12, each * len(_KINDS) // 15)
    own = {resource: nodes * amount // len(_KINDS) for resource, amount in _NODE.items()}
    return ScenePlan(
        title=f"{each} objects of each of {len(_KINDS)} kinds",
        notes=(),
        teams=tuple(Team(name, own, None, f"{name}-work", 0) for name in _KINDS),
        nodes=Nodes(nodes, _NODE),
        jobs=tuple(
            PlannedJob(f"{name}-{number:04}", name, PODS, _POD, round(360 * chance.uniform(1.0, 1.5), 1), kind=kind)
            for number in range(each)
            for name, kind in _KINDS.items()
        ),
        speed=speed,
        shown=("cpu",),
        preemption=True,
        kinds=("pod", "statefulset", "ray.io/rayjob", "ray.io/raycluster", "batch.volcano.sh/job"),
        noun="objects",
    )


def documents(plan: ScenePlan, job: PlannedJob, *, priority_class: str | None) -> list[Document]:
    """Return the objects as a user submits them: one, or all pods of a group."""
    match job.kind:
        case "PodGroup":
            found = [_pod(job, number) for number in range(job.pods)]
        case "RayJob":
            found = [_ray_job(plan, job)]
        case "StatefulSet":
            found = [_stateful_set(plan, job)]
        case "LeaderWorkerSet":
            found = [_leader_worker_set(job)]
        case _:
            found = [demo_document(plan, job)]
    for obj in found:
        labels = obj["metadata"].setdefault("labels", {})
        labels["sluice.dev/queue-name"] = QUEUE
        if priority_class:
            labels["sluice.dev/priority-class"] = priority_class
    return found


def _template(job: PlannedJob, *, ends: bool, **more: Any) -> Document:
    requests = {resource: format_amount(resource, amount) for resource, amount in job.requests.items()}
    resources = {"requests": requests, "limits": requests}
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": resources}
    metadata: Document = {"labels": {WORKLOAD: job.name}}
    if ends:
        metadata["annotations"] = {"sandbox.sluice.dev/run-seconds": f"{job.run_seconds:g}"}
    return {"metadata": metadata, "spec": {"containers": [container], **more}}


def _pod(job: PlannedJob, number: int) -> Document:
    found = _template(job, ends=True, restartPolicy="Never")
    metadata = found["metadata"]
    metadata |= {"name": f"{job.name}-{number}", "namespace": job.team}
    metadata["labels"]["sluice.dev/pod-group-name"] = job.name
    metadata["annotations"]["sluice.dev/pod-group-total-count"] = str(job.pods)
    return {"apiVersion": "v1", "kind": "Pod", **found}


def _ray_job(plan: ScenePlan, job: PlannedJob) -> Document:
    """Return a RayJob whose head, submitter and workers end by themselves."""
    cluster = demo_document(plan, replace(job, kind="RayCluster", pods=job.pods - 1))["spec"]
    template = _template(job, ends=True, restartPolicy="Never")
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        group["template"] = template
    spec = {"entrypoint": "python main.py", "shutdownAfterJobFinishes": True, "rayClusterSpec": cluster}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": job.name, "namespace": job.team},
        "spec": {**spec, "submitterPodTemplate": template},
    }


def _stateful_set(plan: ScenePlan, job: PlannedJob) -> Document:
    """Return a StatefulSet, which unlike the demo's has the queue label on the object itself."""
    found = demo_document(plan, job)
    template = _template(job, ends=False)
    template["metadata"]["labels"] |= found["spec"]["selector"]["matchLabels"]
    found["spec"]["template"] = template
    return found


def _leader_worker_set(job: PlannedJob) -> Document:
    """Return a LeaderWorkerSet of one group, whose name is that of the planned object."""
    group = {"size": job.pods, "workerTemplate": _template(job, ends=False)}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": object_name(job), "namespace": job.team},
        "spec": {"replicas": 1, "startupPolicy": "LeaderCreated", "leaderWorkerTemplate": group},
    }


def object_name(job: PlannedJob) -> str:
    """Return the name of the object of which a planned one is the workload."""
    return job.name.removesuffix(FIRST_GROUP) if job.kind == "LeaderWorkerSet" else job.name


def path_of(job: PlannedJob) -> str:
    """Return the path of the object of a planned one, which is no group of pods."""
    return f"{PATHS[job.kind].format(job.team)}/{object_name(job)}"


async def act_as_user(
    client: Client, account: SceneAccount, job: PlannedJob, submit: Callable[[], Awaitable[None]]
) -> None:
    """Act as the user of an object after it is submitted, until it is over.

    An endless object is deleted after its run time, while it runs. Pods of a group, which no controller recreates after
    an eviction, are submitted again once none of the group runs any more; pods that succeeded or that are still gated
    remain.
    """
    gangs, key = account.gangs, f"{job.team}/{job.name}"
    if job.kind in UNTIL_DELETED:
        await gangs.wait_until_started(job)
        await asyncio.sleep(job.run_seconds / account.plan.speed)
        while not gangs.all_alive(key):  # noqa: ASYNC110  the observer updates it; an eviction may take long
            await asyncio.sleep(_POLL_INTERVAL)
        gangs.deleted(key)
        await deleted(client, path_of(job))
    elif job.kind == "PodGroup":
        while not gangs.is_over(key):
            if gangs.lacks_pods(key):
                await submit()
            await asyncio.sleep(_POLL_INTERVAL)


async def deleted(client: Client, path: str) -> None:
    """Delete an object as its user; retry while no webhook answers."""
    while True:
        try:
            await client.delete(path)
        except NotFound:
            return
        except ClusterError:
            await asyncio.sleep(_POLL_INTERVAL)
        else:
            return


class RestorationCheck:
    """Checks specs of objects other than Jobs: only those with a suspend field may differ, and only while running."""

    def __init__(self, client: Client, plan: ScenePlan, *, may_change: Sequence[str] = ("suspend",)) -> None:
        """`may_change`: fields of specs that are not compared."""
        self._may_change = may_change
        kinds = {job.kind for job in plan.jobs}
        self._informers = [Informer(client, path, page=0) for kind, path in _WATCHED.items() if kind in kinds]
        self._written: dict[str, Document] = {}
        self.altered: set[str] = set()
        """Keys of objects that were restarted with another spec than the user's, or changed without a suspend field."""
        self._unseen: set[str] = set()
        """Keys of objects that were started and have not been observed with the user's spec since."""
        self._waited: dict[str, bool] = {}

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers:
                tasks.create_task(self._follow(informer))

    async def synced(self) -> None:
        """Wait until all informers have synced."""
        for informer in self._informers:
            await informer.synced.wait()

    async def _follow(self, informer: Informer) -> None:
        async with aclosing(informer.batches()) as batches:
            async for batch in batches:
                for change in batch:
                    if change.type != "DELETED" and change.object is not None:
                        self.see(change.object)

    def see(self, obj: Document) -> None:
        """Check a version of an object."""
        key = f"{obj['kind']} {obj['metadata']['namespace']}/{obj['metadata']['name']}"
        spec = {name: value for name, value in obj["spec"].items() if name not in self._may_change}
        as_written = spec == self._written.setdefault(key, spec)
        if not obj["kind"].startswith("Ray"):
            if not as_written:
                self.altered.add(key)
            return
        waits = obj["spec"].get("suspend") is True
        if waits and as_written:
            self._unseen.discard(key)
        elif not waits and self._waited.get(key, True):
            if key in self._unseen:
                self.altered.add(key)
            self._unseen.add(key)
        self._waited[key] = waits
