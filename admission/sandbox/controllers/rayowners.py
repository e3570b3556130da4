"""Simulated operator of RayJobs and RayServices: a RayCluster for each start, whose own operator creates the pods.

As KubeRay 1.7 does, as recorded: the cluster has a random name, which the status has before the cluster exists; a
changed number of workers is not passed on to it; a stop deletes it. Here a RayService is ready as soon as its cluster
is, and a RayJob ends with its submitter's Job: there is no Ray that could be asked.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

import orjson

from admission.kinds.dispatched import is_dispatched
from admission.sandbox.clock import rfc3339
from admission.sandbox.controllers.base import (
    PARSE_ERRORS,
    SimulatedController,
    condition,
    controller_of,
    owner_reference,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.kinds.declared import DeclaredKind
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.clock import Clock
    from admission.sandbox.local import LocalClient

_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_POLL: Final = 2.0
"""Sandbox seconds after which KubeRay looks at a RayService again."""
_CLUSTERS: Final = "rayclusters.ray.io"
_JOBS: Final = "jobs.batch"
_NONE: Final = dict.fromkeys(("desiredCPU", "desiredGPU", "desiredMemory", "desiredTPU"), "0")
_NO_CLUSTER: Final[Object] = {"rayClusterStatus": {**_NONE, "head": {}}}
_CREATED: Final = {"app.kubernetes.io/created-by": "kuberay-operator"}
_COUNTS: Final = {"failed": 0, "succeeded": 0}
_REQUESTED: Final = "Spec.Suspend is true; will delete all Kubernetes resources owned by this RayService."
_WAITS: Final = "Waiting for all Kubernetes resources owned by this RayService to be deleted."
_DELETED: Final = "All owned resources have been deleted."
_INITIALIZES: Final = (False, "Initializing", "RayService is initializing after resuming from suspend.")


def _suspending(reason: str, why: str, message: str) -> dict[str, tuple[bool, str, str]]:
    """Return the conditions of a RayService that is to be suspended."""
    return {
        "Suspending": (why == "SuspendRequested", why, message),
        "Ready": (False, reason, f"RayService is {'suspended' if reason == 'SuspendComplete' else 'suspending'}."),
        "UpgradeInProgress": (False, reason, "No upgrade in progress."),
        "RollbackInProgress": (False, reason, "No rollback in progress."),
    }


_SUSPENDED: Final = {
    **_suspending("SuspendComplete", "SuspendComplete", _DELETED),
    "Suspended": (True, "SuspendComplete", _DELETED),
}
_RESUMED: Final = {
    "Suspended": (False, "RayServiceResumed", "Spec.Suspend is false; RayService has resumed."),
    "Ready": _INITIALIZES,
    "UpgradeInProgress": _INITIALIZES,
}


class RayOwnerController(SimulatedController[tuple[str, str]]):
    """Operator of one of the two kinds; keys are namespace and name of its objects."""

    malformed = PARSE_ERRORS

    def __init__(self, local: LocalClient, clock: Clock, kind: DeclaredKind) -> None:
        super().__init__(local, clock)
        self._kind = kind
        self._plural = f"{kind.plural}.{kind.group}"
        self._finalizer = f"ray.io/{kind.kind.lower()}-finalizer"
        self.plurals = (self._plural, _CLUSTERS, _JOBS)

    def observe(self, plural: str, change: str, obj: Object, before: Object | None) -> None:
        """Enqueue the object of an event about it, or about one of its children."""
        namespace = obj["metadata"]["namespace"]
        if plural == self._plural:
            self.enqueue((namespace, obj["metadata"]["name"]))
        elif (owner := controller_of(obj)) is not None and owner["kind"] == self._kind.kind:
            self.enqueue((namespace, owner["name"]))

    async def sync(self, key: tuple[str, str]) -> None:
        """Take the next step: each writes the status, or creates or deletes children."""
        obj = self.local.get(self._plural, *key)
        if obj is None or self._kind.is_managed_elsewhere(obj) or is_dispatched(self._kind, obj):
            return
        finalizers = obj["metadata"].get("finalizers") or []
        if "deletionTimestamp" in obj["metadata"]:
            if self._finalizer in finalizers:
                await self._write_finalizers(obj, [each for each in finalizers if each != self._finalizer])
            return
        if self._kind.observe(obj).finished is not None:
            return
        if self._finalizer not in finalizers:
            await self._write_finalizers(obj, [*finalizers, self._finalizer])
            return
        suspended = self._kind.gated_by.is_closed(obj)
        await (self._sync_job if self._kind.kind == "RayJob" else self._sync_service)(obj, suspended=suspended)

    # ------------------------------------------------------------------ RayJob

    async def _sync_job(self, job: Object, *, suspended: bool) -> None:
        status = job.get("status") or {}
        state, name = status.get("jobDeploymentStatus", ""), status.get("rayClusterName", "")
        if state == "Suspended":
            if not suspended:
                await self._write(job, {**_NO_CLUSTER, **_COUNTS})
        elif not state:
            name = _random_name(job)
            begun = {"jobDeploymentStatus": "Initializing", "rayClusterName": name, "jobId": _random_name(job)}
            await self._write(job, {**_NO_CLUSTER, **_COUNTS, **begun})
        elif state == "Suspending":  # to its end, even if it is resumed meanwhile
            if not await self._delete_children(job):
                await self._write(job, {**_NO_CLUSTER, **_COUNTS, "jobDeploymentStatus": "Suspended"})
        elif suspended:
            await self._write(job, {**status, "jobDeploymentStatus": "Suspending"})
        elif state == "Initializing":
            cluster = await self._cluster(job, name, job["spec"]["rayClusterSpec"])
            found = cluster.get("status") or {}
            if found.get("state") == "ready":
                await self._submit(job)
                dashboard = f"{name}-head-svc.{job['metadata']['namespace']}.svc.cluster.local:8265"
                written = {"jobDeploymentStatus": "Running", "rayClusterStatus": found, "dashboardURL": dashboard}
                await self._write(job, {**status, **written})
            elif found and found != status.get("rayClusterStatus"):
                await self._write(job, {**status, "rayClusterStatus": found})
        elif (submitter := self.local.get(_JOBS, job["metadata"]["namespace"], job["metadata"]["name"])) is not None:
            for kind, result in (("Complete", "SUCCEEDED"), ("Failed", "FAILED")):
                if (condition(submitter, kind) or {}).get("status") == "True":
                    over = {"jobDeploymentStatus": "Complete", "jobStatus": result}
                    await self._write(job, {**status, **over})
                    await self._delete_children(job, _CLUSTERS)

    async def _submit(self, job: Object) -> None:
        """Create the Job of the submitter, if this is a pod of its own."""
        template = next((place.template for place in self._kind.places(job) if place.name == "submitter"), None)
        metadata = job["metadata"]
        if template is None or self.local.get(_JOBS, metadata["namespace"], metadata["name"]) is not None:
            return
        pod: dict[str, Any] = orjson.loads(orjson.dumps(template))
        pod["spec"].setdefault("restartPolicy", "Never")
        for container in pod["spec"]["containers"]:
            container.setdefault("image", "rayproject/ray")
        made = {
            "metadata": _metadata(job, metadata["name"], _CREATED, of_owner=False),
            "spec": {"backoffLimit": 2, "template": pod},
        }
        await self.local.create(_JOBS, metadata["namespace"], made)

    # ------------------------------------------------------------------ RayService

    async def _sync_service(self, service: Object, *, suspended: bool) -> None:
        status = service.get("status") or {}
        holds = {each["type"]: each["status"] == "True" for each in status.get("conditions") or ()}
        parts = [status.get(f"{each}ServiceStatus") or {} for each in ("active", "pending")]
        names = [part["rayClusterName"] for part in parts if part.get("rayClusterName")]
        key = (service["metadata"]["namespace"], service["metadata"]["name"])
        if suspended or holds.get("Suspending"):  # to its end, even if it is resumed meanwhile
            if not (holds.get("Suspending") or holds.get("Suspended")):
                await self._write_service(service, {}, _suspending("SuspendInProgress", "SuspendRequested", _REQUESTED))
            elif await self._delete_children(service):
                await self._write_service(service, {}, {"Suspending": (True, "SuspendInProgress", _WAITS)})
            elif not holds.get("Suspended"):
                await self._write_service(service, {}, _SUSPENDED)
        elif holds.get("Suspended"):
            await self._write_service(service, {}, _RESUMED)
        elif not names:
            named = {"pendingServiceStatus": {**_NO_CLUSTER, "rayClusterName": _random_name(service)}}
            await self._write_service(service, named, {})
            self.enqueue(key, _POLL)
        else:
            cluster = await self._cluster(service, names[0], service["spec"]["rayClusterConfig"])
            if (cluster.get("status") or {}).get("state") == "ready" and not holds.get("Ready"):
                ready = {"Ready": (True, "NonZeroServeEndpoints", "Number of serve endpoints is greater than 0")}
                await self._write_service(service, {"activeServiceStatus": {"rayClusterName": names[0]}}, ready)

    async def _write_service(
        self, service: Object, clusters: Object, conditions: Mapping[str, tuple[bool, str, str]]
    ) -> None:
        """Write the names of clusters, and conditions (status, reason, message); other conditions stay."""
        status = service.get("status") or {}
        found = {each["type"]: each for each in status.get("conditions") or ()}
        now = rfc3339(self.clock.now())
        for kind, (holds, reason, message) in conditions.items():
            text = {"status": str(holds), "reason": reason, "message": message}
            since = now if found.get(kind, {}).get("status") != str(holds) else found[kind]["lastTransitionTime"]
            found[kind] = {"type": kind, **text, "lastTransitionTime": since}
        written = {"activeServiceStatus": _NO_CLUSTER, **clusters, "conditions": [*found.values()]}
        if written != status:
            await self._write(service, written)

    # ------------------------------------------------------------------ both

    async def _cluster(self, owner: Object, name: str, spec: Object) -> Object:
        """Return the cluster of this name; it is created if it is missing, and never changed."""
        namespace = owner["metadata"]["namespace"]
        found = self.local.get(_CLUSTERS, namespace, name)
        if found is None:
            mode = owner["spec"].get("submissionMode", "K8sJobMode")
            about = {"ray.io/job-submission-mode": mode} if self._kind.kind == "RayJob" else {}
            made = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": _metadata(owner, name, about)}
            found = await self.local.create(_CLUSTERS, namespace, {**made, "spec": orjson.loads(orjson.dumps(spec))})
        return found

    async def _delete_children(self, owner: Object, *plurals: str) -> bool:
        """Delete the children of these kinds, or of all; return whether there were any."""
        found = [
            (plural, child)
            for plural in plurals or (_CLUSTERS, _JOBS)
            for child in self.local.controlled_by(plural, owner["metadata"]["uid"])
        ]
        for plural, child in found:
            if "deletionTimestamp" not in child["metadata"]:
                await self.remove(plural, child, propagation="Background")
        return bool(found)

    async def _write_finalizers(self, obj: Object, finalizers: list[str]) -> None:
        changed = {**obj, "metadata": {**obj["metadata"], "finalizers": finalizers}}
        await self.local.update(self._plural, obj["metadata"]["namespace"], changed)

    async def _write(self, obj: Object, status: Object) -> None:
        namespace = obj["metadata"]["namespace"]
        await self.local.update(self._plural, namespace, {**obj, "status": status}, subresource="status")


def _metadata(owner: Object, name: str, labels: Object, *, of_owner: bool = True) -> Object:
    """Return the metadata of a child. `of_owner`: with the labels of its owner, as a cluster has them."""
    inherited = (owner["metadata"].get("labels") or {}) if of_owner else {}
    origin = {"ray.io/originated-from-cr-name": owner["metadata"]["name"], "ray.io/originated-from-crd": owner["kind"]}
    return {"name": name, "labels": {**inherited, **origin, **labels}, "ownerReferences": [owner_reference(owner)]}


def _random_name(owner: Object) -> str:
    return f"{owner['metadata']['name']}-{''.join(random.choices(_ALPHABET, k=5))}"
