"""Requests of the demo's users to the API server, with their manifests: namespaces and nodes first, then Jobs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from admission.cli.demo.gangs import UNTIL_DELETED, WORKLOAD
from admission.cli.demo.plan import QUEUE, job_document, node_document
from admission.model.quantity import format_amount

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from admission.cli.demo.account import SceneAccount
    from admission.cli.demo.plan import Document, PlannedJob, ScenePlan
    from admission.cluster.client import Client

_AT_ONCE: Final = 16
"""Maximum number of concurrent create requests."""


async def prepare(client: Client, plan: ScenePlan) -> None:
    """Create the teams' namespaces and the nodes of a cluster."""
    for team in plan.teams:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team.name}}
        await client.create("/api/v1/namespaces", namespace)
    for number in range(plan.nodes.count):
        await client.create("/api/v1/nodes", node_document(plan, number))


def operated(plan: ScenePlan) -> tuple[str, ...]:
    """Return the custom resources of a plan, for which the sandbox has simulated operators."""
    return tuple(kind for kind in plan.kinds if "/" in kind)


async def submit(
    clients: Mapping[str, Client], plan: ScenePlan, account: SceneAccount, elapsed: Callable[[], float]
) -> None:
    """Create each Job of the plan at its time of arrival, or as soon after it as the API server accepts it.

    `clients`: by cluster. Objects that run until they are deleted are deleted at the end of their run time. `elapsed`
    returns the real seconds since the start.
    """
    jobs = iter(plan.jobs)
    async with asyncio.TaskGroup() as users:
        for _ in range(min(_AT_ONCE, len(plan.jobs))):
            users.create_task(_user(clients, plan, account, jobs, elapsed))
        for job in plan.jobs:
            if job.kind in UNTIL_DELETED:
                users.create_task(_delete_at_end(clients[job.cluster], plan, account, job))


async def _user(
    clients: Mapping[str, Client],
    plan: ScenePlan,
    account: SceneAccount,
    jobs: Iterator[PlannedJob],
    elapsed: Callable[[], float],
) -> None:
    for job in jobs:
        await asyncio.sleep(max(0.0, job.arrival - elapsed()))
        await clients[job.cluster].create(PATHS[job.kind].format(job.team), document(plan, job))
        account.submitted(f"{job.team}/{job.name}")


async def _delete_at_end(client: Client, plan: ScenePlan, account: SceneAccount, job: PlannedJob) -> None:
    await account.gangs.wait_until_started(job)
    await asyncio.sleep(job.run_seconds / plan.speed)
    account.gangs.deleted(f"{job.team}/{job.name}")
    await client.delete(f"{PATHS[job.kind].format(job.team)}/{job.name}")


PATHS: Final = {
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "RayCluster": "/apis/ray.io/v1/namespaces/{}/rayclusters",
    "VolcanoJob": "/apis/batch.volcano.sh/v1alpha1/namespaces/{}/jobs",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
}
"""API path at which objects of each kind are created; `{}` is the namespace."""
_GROUP: Final = "sluice.dev/pod-group-"


def document(plan: ScenePlan, job: PlannedJob) -> Document:
    """Return the object as a user or a tool of the user would write it."""
    return _BUILDERS[job.kind](plan, job)


def _ray_cluster(plan: ScenePlan, job: PlannedJob) -> Document:
    """Return a RayCluster: a head, and workers with the same requests."""
    worker = {
        "groupName": "workers",
        "replicas": job.pods - 1,
        "minReplicas": job.pods - 1,
        "maxReplicas": job.pods - 1,
    }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": job.name, "namespace": job.team, "labels": _labels(plan, job)},
        "spec": {
            "rayVersion": "2.46.0",
            "headGroupSpec": {"rayStartParams": {}, "template": _template(job)},
            "workerGroupSpecs": [{**worker, "rayStartParams": {}, "template": _template(job)}],
        },
    }


def _volcano_job(plan: ScenePlan, job: PlannedJob) -> Document:
    """Return a Volcano Job as `torchx run dist.ddp` writes it: a task per replica, the queue in the spec."""
    policies = [{"action": "RestartJob", "event": event} for event in ("PodEvicted", "PodFailed")]
    run_time = {"sandbox.sluice.dev/run-seconds": f"{job.run_seconds:g}"}
    tasks = [
        {
            "name": f"train-{number}",
            "replicas": 1,
            "minAvailable": 1,
            "maxRetry": 2,
            "policies": policies,
            "template": _template(job, annotations=run_time, restartPolicy="Never"),
        }
        for number in range(job.pods)
    ]
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": job.name, "namespace": job.team},
        "spec": {
            "schedulerName": "volcano",
            "queue": QUEUE,
            "maxRetry": 2,
            "plugins": {"env": [], "svc": []},
            "tasks": tasks,
        },
    }


def _stateful_set(plan: ScenePlan, job: PlannedJob) -> Document:
    """Return a StatefulSet whose pods form a pod group, by labels and annotations of its template."""
    app = {"app": job.name}
    template = _template(
        job,
        labels={**app, **_labels(plan, job), f"{_GROUP}name": job.name},
        annotations={f"{_GROUP}total-count": str(job.pods), f"{_GROUP}fast-admission": "true"},
    )
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": job.name, "namespace": job.team},
        "spec": {
            "serviceName": job.name,
            "podManagementPolicy": "Parallel",
            "replicas": job.pods,
            "selector": {"matchLabels": app},
            "template": template,
        },
    }


_BUILDERS: Final[dict[str, Callable[[ScenePlan, PlannedJob], Document]]] = {
    "Job": job_document,
    "RayCluster": _ray_cluster,
    "VolcanoJob": _volcano_job,
    "StatefulSet": _stateful_set,
}


def _labels(plan: ScenePlan, job: PlannedJob) -> dict[str, str]:
    team = next(team for team in plan.teams if team.name == job.team)
    return {"sluice.dev/queue-name": QUEUE, "sluice.dev/priority-class": team.priority_class}


def _template(
    job: PlannedJob,
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Document:
    requests = {resource: format_amount(resource, amount) for resource, amount in job.requests.items()}
    container = {
        "name": "main",
        "image": "registry.k8s.io/pause:3.10",
        "resources": {"requests": requests, "limits": requests},
    }
    metadata = {"labels": {WORKLOAD: job.name, **(labels or {})}, "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {"containers": [container], **spec}}
