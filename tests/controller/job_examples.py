"""Minimal manifests of Jobs and queue objects."""

from __future__ import annotations

from typing import Any

import queue_objects
from queue_objects import manifest

Object = dict[str, Any]

ATOMIC = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"

TOLERATION = {"key": "kwok.x-k8s.io/node", "operator": "Exists", "effect": "NoSchedule"}


def flavor(name: str = "default") -> Object:
    return manifest("ResourceFlavor", name, spec={"nodeLabels": {"type": "kwok"}, "tolerations": [TOLERATION]})


def cluster_queue(name: str = "cq", cpu: str = "4", **spec: Any) -> Object:
    return queue_objects.cluster_queue(name, cpu=cpu, **spec)


def local_queue(name: str = "lq", cluster_queue: str = "cq", namespace: str = "team-a") -> Object:
    return queue_objects.local_queue(name, namespace, cluster_queue)


def job(
    name: str,
    *,
    queue: str | None = "lq",
    cpu: str = "1",
    pods: int = 1,
    namespace: str = "team-a",
    suspend: bool = True,
    seconds: int = 1_000_000,
    **template: Any,
) -> Object:
    """A Job whose pods run for `seconds` of simulated time."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"sluice.dev/queue-name": queue} if queue else {},
        },
        "spec": {
            "suspend": suspend,
            "parallelism": pods,
            "completions": pods,
            "template": {
                "metadata": {"annotations": {"sandbox.sluice.dev/run-seconds": str(seconds)}},
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu}}}],
                    **template,
                },
            },
        },
    }


def cron_job(name: str, namespace: str = "team-a") -> Object:
    """A CronJob whose job template has the queue label. It is suspended, as tests create its Jobs themselves."""
    template = job("unnamed")
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "schedule": "0 3 * * *",
            "suspend": True,
            "jobTemplate": {"metadata": {"labels": template["metadata"]["labels"]}, "spec": template["spec"]},
        },
    }


def runs(obj: Object) -> bool:
    return not obj["spec"].get("suspend") and obj.get("status", {}).get("active", 0) > 0


def is_gated(obj: Object) -> bool:
    return obj["spec"].get("suspend") is True


def is_done(obj: Object) -> bool:
    return any(c["type"] == "Complete" and c["status"] == "True" for c in obj.get("status", {}).get("conditions", ()))


def admission_check(name: str) -> Object:
    return manifest("AdmissionCheck", name, spec={"controllerName": "example.com/nodes"})


def provisioning_check(config: str | None = "scale-up") -> Object:
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": config}
    spec = {
        "controllerName": "kueue.x-k8s.io/provisioning-request",
        **({} if config is None else {"parameters": parameters}),
    }
    return manifest("AdmissionCheck", "nodes", spec=spec)


def provisioning_config(answer: str = "", class_name: str = ATOMIC, **fields: Any) -> Object:
    """`answer`: how the simulated autoscaler behaves badly."""
    spec = {"provisioningClassName": class_name, **fields}
    if answer:
        spec["parameters"] = {"sandbox-answer": answer}
    return manifest("ProvisioningRequestConfig", "scale-up", spec=spec)


def asks(*names: str, **on_flavors: list[str]) -> Object:
    """An admissionChecksStrategy with checks `names` for all flavors; `on_flavors`: flavors by check name."""
    rules = [{"name": name} for name in names]
    rules += [{"name": name, "onFlavors": flavors} for name, flavors in on_flavors.items()]
    return {"admissionChecks": rules}


def node(number: int) -> Object:
    """A simulated node of 10 CPUs, with a taint."""
    amounts = {"cpu": "10", "memory": "10Gi", "pods": "110"}
    return {
        "metadata": {
            "name": f"node-{number}",
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"type": "kwok", "kubernetes.io/hostname": f"node-{number}"},
        },
        "spec": {"taints": [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}]},
        "status": {"allocatable": amounts, "capacity": amounts},
    }
