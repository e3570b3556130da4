"""What users submit in a storm over kinds, what they do with it, and whether it is given back as they wrote it."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from admission.cli.demo.gangs import UNTIL_DELETED, WORKLOAD
from admission.cli.demo.manifests import document as demo_document
from admission.cli.demo.plan import QUEUE, Nodes, Plan, PlannedJob, Team
from admission.cluster.informer import Informer
from admission.model.errors import ClusterError
from admission.model.quantity import format_amount

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from admission.cli.demo.account import Account
    from admission.cli.demo.plan import Document
    from admission.cluster.client import Client

PODS: Final = 10
"""Of each object, as in the scalability test which batch queues are usually compared by."""
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
"""By the team that submits nothing else."""
PATHS: Final = {
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "PodGroup": "/api/v1/namespaces/{}/pods",
    "RayJob": "/apis/ray.io/v1/namespaces/{}/rayjobs",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "RayCluster": "/apis/ray.io/v1/namespaces/{}/rayclusters",
    "VolcanoJob": "/apis/batch.volcano.sh/v1alpha1/namespaces/{}/jobs",
}
"""Where objects of each kind are created, by namespace."""
_WATCHED: Final = {kind: PATHS[kind].replace("namespaces/{}/", "") for kind in PATHS if kind not in ("Job", "PodGroup")}
_LOOK: Final = 0.25
"""Real seconds after which a user looks again."""


def plan_of_kinds(each: int, *, speed: float, seed: int = 1) -> Plan:
    """Six teams with a kind each, who lend each other what is idle, and so many objects of each, in turn."""
    chance = random.Random(seed)
    nodes = max(12, each * len(_KINDS) // 15)
    own = {resource: nodes * amount // len(_KINDS) for resource, amount in _NODE.items()}
    return Plan(
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


def documents(plan: Plan, job: PlannedJob, *, priority_class: str | None) -> list[Document]:
    """The objects as their user writes them: one, or each pod of a group."""
    match job.kind:
        case "PodGroup":
            found = [_pod(job, number) for number in range(job.pods)]
        case "RayJob":
            found = [_ray_job(plan, job)]
        case "StatefulSet":
            found = [_stateful_set(plan, job)]
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


def _ray_job(plan: Plan, job: PlannedJob) -> Document:
    """A head, a submitter, and workers; all end with what they compute."""
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


def _stateful_set(plan: Plan, job: PlannedJob) -> Document:
    """Queued by a label on itself, other than that of the demo."""
    found = demo_document(plan, job)
    template = _template(job, ends=False)
    template["metadata"]["labels"] |= found["spec"]["selector"]["matchLabels"]
    found["spec"]["template"] = template
    return found


async def look_after(client: Client, account: Account, job: PlannedJob, submit: Callable[[], Awaitable[None]]) -> None:
    """What the user of an object does once it is submitted, until it is over.

    What has no end is deleted after it has run for its time, while it runs; of a group of pods, which nobody makes
    again when it is evicted, those are submitted once more that are gone, when none runs any more: those that have
    succeeded stay, and those that still had their gate.
    """
    gangs, key = account.gangs, f"{job.team}/{job.name}"
    if job.kind in UNTIL_DELETED:
        await gangs.wait_until_started(job)
        await asyncio.sleep(job.run_seconds / account.plan.speed)
        while not gangs.all_alive(key):  # noqa: ASYNC110  an eviction takes as long as it takes
            await asyncio.sleep(_LOOK)
        gangs.deleted(key)
        await _deleted(client, f"{PATHS[job.kind].format(job.team)}/{job.name}")
    elif job.kind == "PodGroup":
        while not gangs.is_over(key):
            if gangs.lacks_pods(key):
                await submit()
            await asyncio.sleep(_LOOK)


async def _deleted(client: Client, path: str) -> None:
    while True:
        try:
            await client.delete(path)
        except ClusterError:
            await asyncio.sleep(_LOOK)
        else:
            return


class GivenBack:
    """Watches objects other than Jobs: nothing of them may change but while they run, if they have a suspend field."""

    def __init__(self, client: Client, plan: Plan) -> None:
        kinds = {job.kind for job in plan.jobs}
        self._informers = [Informer(client, path, page=0) for kind, path in _WATCHED.items() if kind in kinds]
        self._written: dict[str, Document] = {}
        self.altered: set[str] = set()
        """Those that were started again otherwise than their users wrote them, or changed though they have no gate."""
        self._unseen: set[str] = set()
        """Those that were started, and not seen as they were written since."""
        self._waited: dict[str, bool] = {}

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers:
                tasks.create_task(self._follow(informer))

    async def synced(self) -> None:
        """Return when all watches have begun."""
        for informer in self._informers:
            await informer.synced.wait()

    async def _follow(self, informer: Informer) -> None:
        async with aclosing(informer.batches()) as batches:
            async for batch in batches:
                for change in batch:
                    if change.type != "DELETED" and change.object is not None:
                        self.see(change.object)

    def see(self, obj: Document) -> None:
        """A version of an object."""
        key = f"{obj['kind']} {obj['metadata']['namespace']}/{obj['metadata']['name']}"
        spec = {name: value for name, value in obj["spec"].items() if name != "suspend"}
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
