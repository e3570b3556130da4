"""Test helpers for custom kinds in the sandbox: definitions, objects, and simulated operators."""

from __future__ import annotations

from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Any

from admission.kinds import all_kinds
from admission.sandbox.background import background
from admission.sandbox.controllers.operator import Operator
from admission.sandbox.operators import definition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

Object = dict[str, Any]

JOBSET = ("jobset.x-k8s.io", "JobSet")
KINDS = all_kinds(frameworks=("batch/job", "jobset.x-k8s.io/jobset"))

TRAINING_RUN_FORM: Object = {
    "group": "example.com",
    "kind": "TrainingRun",
    "plural": "trainingruns",
    "versions": ["v1"],
    "suspend": "spec.paused",
    "podSets": [{"path": "spec.roles[*]", "nameFrom": "role", "template": "template", "replicas": "count"}],
    "active": [{"condition": "Running"}],
    "ready": [{"condition": "Ready"}],
    "succeeded": [{"condition": "Succeeded"}],
    "failed": [{"condition": "Failed"}],
}
"""Description of a user-defined kind."""


@asynccontextmanager
async def served(sandbox: Any, kind: Any, *, version: str | None = None, end_pods: bool = True) -> AsyncIterator[None]:
    """Serve a kind and run its simulated operator during the block."""
    await sandbox.local("admin").create("customresourcedefinitions", "", definition(kind, version))
    operator = Operator(sandbox.local("system:kube-controller-manager"), sandbox.clock, kind, end_pods=end_pods)
    async with background(operator=operator.run()):
        yield


def pod(*, cpu: str, seconds: int) -> Object:
    return {
        "metadata": {"annotations": {"sandbox.sluice.dev/run-seconds": str(seconds)}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu}}}],
        },
    }


def jobset(name: str, *, cpu: str = "1", workers: int = 1, suspend: bool = True, seconds: int = 1_000_000) -> Object:
    """Return a JobSet of a driver with one pod and `workers` Jobs of two pods each; pods run for `seconds`."""

    def replicated(role: str, replicas: int, pods: int) -> Object:
        spec = {"parallelism": pods, "completions": pods, "template": pod(cpu=cpu, seconds=seconds)}
        return {"name": role, "replicas": replicas, "template": {"spec": spec}}

    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": "team-a", "labels": {"sluice.dev/queue-name": "lq"}},
        "spec": {"suspend": suspend, "replicatedJobs": [replicated("driver", 1, 1), replicated("workers", workers, 2)]},
    }


async def until(user: Any, plural: str, name: str, holds: Callable[[Object], bool]) -> Object:
    """Wait until `holds` returns True for the object, and return it."""
    with closing(user.watch(plural)) as changes:
        async for batch in changes:
            for _, change, obj, _ in batch:
                if obj["metadata"]["name"] == name and change != "DELETED" and holds(obj):
                    return obj
    raise AssertionError("the watch ended")


def pods_of(user: Any, obj: Object) -> list[Object]:
    """Return the object's pods that have not finished, by owner reference or workload label."""
    uid = obj["metadata"]["uid"]
    pods = user.list("pods", obj["metadata"]["namespace"])
    return [
        each
        for each in pods
        if (
            any(owner["uid"] == uid for owner in each["metadata"].get("ownerReferences", ()))
            or each["metadata"].get("labels", {}).get("sluice.dev/workload-uid") == uid
        )
        and each.get("status", {}).get("phase") not in ("Succeeded", "Failed")
    ]
