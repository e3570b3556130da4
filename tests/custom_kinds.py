"""Test helpers for custom kinds in the sandbox: definitions, objects, and simulated operators."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from typing import Any

from admission.kinds import all_kinds
from admission.sandbox.background import background
from admission.sandbox.operators import NEEDED, definition, operator

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
async def served(
    sandbox: Any, kind: Any, *, version: str | None = None, end_pods: bool = True, refuses: bool = True
) -> AsyncIterator[None]:
    """Serve a kind and run its simulated operator during the block, and those of the objects that it creates."""
    admin = sandbox.local("admin")
    await admin.create("customresourcedefinitions", "", definition(kind, version))
    async with AsyncExitStack() as stack:
        if needed := NEEDED.get(f"{kind.group}/{kind.kind.lower()}"):
            (made,) = all_kinds(frameworks=(needed,))
            if admin.plural_of(f"{made.group}/{made.versions[0]}", made.kind) is None:
                await stack.enter_async_context(served(sandbox, made))
        manager = sandbox.local("system:kube-controller-manager")
        runs = operator(manager, sandbox.clock, kind, end_pods=end_pods, refuses=refuses)
        async with background(operator=runs.run()):
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


def pytorch_job(replicas: dict[str, tuple[int, Object]], annotations: Object | None = None, **spec: Any) -> Object:
    """A PyTorchJob with so many pods of a template for each role."""
    roles = {role: {"replicas": count, "template": template} for role, (count, template) in replicas.items()}
    labels = {"sluice.dev/queue-name": "lq"}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "torch", "namespace": "team-a", "labels": labels, "annotations": annotations or {}},
        "spec": {"pytorchReplicaSpecs": roles, **spec},
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


def restored_spec(obj: Object) -> Object:
    """Return the spec that an object has after an eviction: that of its user, as its operator has written it since.

    The controller of AppWrappers drops empty lists (Go's `omitempty`), which mean the same as none.
    """
    if (obj["apiVersion"], obj["kind"]) != ("workload.codeflare.dev/v1beta2", "AppWrapper"):
        return dict(obj["spec"])
    components = [{key: each for key, each in one.items() if each != []} for one in obj["spec"]["components"]]
    return {**obj["spec"], "components": components}


async def until(user: Any, plural: str, name: str, holds: Callable[[Object], bool]) -> Object:
    """Wait until `holds` returns True for the object, and return it."""
    with closing(user.watch(plural)) as changes:
        async for batch in changes:
            for _, change, obj, _ in batch:
                if obj["metadata"]["name"] == name and change != "DELETED" and holds(obj):
                    return obj
    raise AssertionError("the watch ended")


def pods_of(user: Any, obj: Object) -> list[Object]:
    """Return the object's pods that have not finished, by workload label, or by owner references, also of children."""
    owners = found = {obj["metadata"]["uid"]}
    while found:
        children = [
            each
            for uid in found
            for plural in user.plurals(namespaced=True)
            for each in user.controlled_by(plural, uid)
        ]
        found = {each["metadata"]["uid"] for each in children} - owners
        owners = owners | found
    return [
        each
        for each in user.list("pods", obj["metadata"]["namespace"])
        if (
            each["metadata"]["uid"] in owners
            or each["metadata"].get("labels", {}).get("sluice.dev/workload-uid") == obj["metadata"]["uid"]
        )
        and each.get("status", {}).get("phase") not in ("Succeeded", "Failed")
    ]
