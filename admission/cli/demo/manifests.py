"""Manifests of the objects that users of a scene submit: Jobs, RayClusters, Volcano Jobs of TorchX, StatefulSets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from admission.cli.demo.gangs import WORKLOAD
from admission.cli.demo.plan import QUEUE, job_document
from admission.model.quantity import format_amount

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.cli.demo.plan import Document, Plan, PlannedJob

PATHS: Final = {
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "RayCluster": "/apis/ray.io/v1/namespaces/{}/rayclusters",
    "VolcanoJob": "/apis/batch.volcano.sh/v1alpha1/namespaces/{}/jobs",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
}
"""API path at which objects of each kind are created; `{}` is the namespace."""
_GROUP: Final = "sluice.dev/pod-group-"


def document(plan: Plan, job: PlannedJob) -> Document:
    """Return the object as a user or a tool of the user would write it."""
    return _BUILDERS[job.kind](plan, job)


def _ray_cluster(plan: Plan, job: PlannedJob) -> Document:
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


def _volcano_job(plan: Plan, job: PlannedJob) -> Document:
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


def _stateful_set(plan: Plan, job: PlannedJob) -> Document:
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


_BUILDERS: Final[dict[str, Callable[[Plan, PlannedJob], Document]]] = {
    "Job": job_document,
    "RayCluster": _ray_cluster,
    "VolcanoJob": _volcano_job,
    "StatefulSet": _stateful_set,
}


def _labels(plan: Plan, job: PlannedJob) -> dict[str, str]:
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
