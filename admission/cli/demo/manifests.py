"""What a scene's users write: Jobs, RayClusters, what TorchX emits for Volcano, StatefulSets that start as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from admission.cli.demo.plan import QUEUE, job_document
from admission.cli.demo.wholes import WORKLOAD
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
"""Where objects of each kind are created, by namespace."""
_GROUP: Final = "sluice.dev/pod-group-"


def document(plan: Plan, job: PlannedJob) -> Document:
    """The object as its user, or the user's tool, would write it."""
    return _MAKERS[job.kind](plan, job)


def _ray_cluster(plan: Plan, job: PlannedJob) -> Document:
    """A head, and workers of the same size."""
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
    """As `torchx run dist.ddp` writes it: a task for each replica, the queue in the spec."""
    policies = [{"action": "RestartJob", "event": event} for event in ("PodEvicted", "PodFailed")]
    ends = {"sandbox.sluice.dev/run-seconds": f"{job.run_seconds:g}"}
    tasks = [
        {
            "name": f"train-{number}",
            "replicas": 1,
            "minAvailable": 1,
            "maxRetry": 2,
            "policies": policies,
            "template": _template(job, annotations=ends, restartPolicy="Never"),
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
    """A group of pods, by labels and annotations of its template."""
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


_MAKERS: Final[dict[str, Callable[[Plan, PlannedJob], Document]]] = {
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
