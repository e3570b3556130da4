"""Simulated operator of RayJobs and RayServices: a RayCluster for each start, whose own operator creates the pods.

As KubeRay 1.7 does, as recorded: the cluster has a random name, which the status has before the cluster exists; a
changed number of workers is not passed on to it; a stop deletes it. Here a RayService is ready as soon as its cluster
is, and a RayJob ends with its submitter's Job: there is no Ray that could be asked.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

import orjson

from admission.sandbox.clock import rfc3339
from admission.sandbox.controllers.base import PARSE_ERRORS, Controller, condition, controller_of, owner_reference

if TYPE_CHECKING:
    from admission.kinds.declared import DeclaredKind
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.clock import Clock
    from admission.sandbox.local import LocalClient

_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_POLL: Final = 2.0
"""Sandbox seconds after which KubeRay looks at a RayService again."""
_CLUSTERS: Final = "rayclusters.ray.io"
_JOBS: Final = "jobs.batch"
_NO_CLUSTER: Final[Object] = {"rayClusterStatus": {"head": {}}}


class RayOwnerController(Controller[tuple[str, str]]):
    """Operator of one of the two kinds; keys are namespace and name of its objects."""

    malformed = PARSE_ERRORS

    def __init__(self, local: LocalClient, clock: Clock, kind: DeclaredKind) -> None:
        super().__init__(local, clock)
        self._kind = kind
        self._plural = f"{kind.plural}.{kind.group}"
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
        if obj is None or "deletionTimestamp" in obj["metadata"] or self._kind.observe(obj).finished is not None:
            return
        if self._kind.is_managed_elsewhere(obj):
            return
        suspended = self._kind.gated_by.is_closed(obj)
        await (self._sync_job if self._kind.kind == "RayJob" else self._sync_service)(obj, suspended=suspended)

    # ------------------------------------------------------------------ RayJob

    async def _sync_job(self, job: Object, *, suspended: bool) -> None:
        status = job.get("status") or {}
        state, name = status.get("jobDeploymentStatus", ""), status.get("rayClusterName", "")
        if state == "Suspended":
            if not suspended:
                await self._write(job, _NO_CLUSTER)
        elif not state:
            name = _random_name(job)
            begun = {"jobDeploymentStatus": "Initializing", "rayClusterName": name, "jobId": _random_name(job)}
            await self._write(job, {**_NO_CLUSTER, **begun})
        elif state == "Suspending":  # to its end, even if it is resumed meanwhile
            if not await self._delete_children(job):
                await self._write(job, {**_NO_CLUSTER, "jobDeploymentStatus": "Suspended"})
        elif suspended:
            await self._write(job, {**status, "jobDeploymentStatus": "Suspending"})
        elif state == "Initializing":
            cluster = await self._cluster(job, name, job["spec"]["rayClusterSpec"])
            if (cluster.get("status") or {}).get("state") == "ready":
                await self._submit(job)
                written = {"jobDeploymentStatus": "Running", "rayClusterStatus": {"state": "ready"}}
                await self._write(job, {**status, **written})
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
        made = {"metadata": _metadata(job, metadata["name"], {}), "spec": {"backoffLimit": 2, "template": pod}}
        await self.local.create(_JOBS, metadata["namespace"], made)

    # ------------------------------------------------------------------ RayService

    async def _sync_service(self, service: Object, *, suspended: bool) -> None:
        status = service.get("status") or {}
        holds = {each["type"]: each["status"] == "True" for each in status.get("conditions") or ()}
        parts = [status.get(f"{each}ServiceStatus") or {} for each in ("active", "pending")]
        names = [part["rayClusterName"] for part in parts if part.get("rayClusterName")]
        if suspended:
            if not (holds.get("Suspending") or holds.get("Suspended")):
                await self._write_service(service, {}, Suspending=True, Ready=False)
            elif not await self._delete_children(service) and not holds.get("Suspended"):
                await self._write_service(service, {}, Suspending=False, Suspended=True)
        elif holds.get("Suspended") or holds.get("Suspending"):
            await self._write_service(service, {}, Suspended=False)
        elif not names:
            await self._write_service(service, {"pendingServiceStatus": {"rayClusterName": _random_name(service)}})
            self.enqueue((service["metadata"]["namespace"], service["metadata"]["name"]), _POLL)
        else:
            cluster = await self._cluster(service, names[0], service["spec"]["rayClusterConfig"])
            if (cluster.get("status") or {}).get("state") == "ready" and not holds.get("Ready"):
                await self._write_service(service, {"activeServiceStatus": {"rayClusterName": names[0]}}, Ready=True)

    async def _write_service(self, service: Object, clusters: Object, **conditions: bool) -> None:
        """Write the names of clusters, and conditions; other conditions stay."""
        before = {each["type"]: each for each in (service.get("status") or {}).get("conditions") or ()}
        now = rfc3339(self.clock.now())
        for kind, holds in conditions.items():
            text = {"status": str(holds), "reason": "Sandbox", "message": "", "lastTransitionTime": now}
            before[kind] = {"type": kind, **text}
        await self._write(service, {"activeServiceStatus": _NO_CLUSTER, **clusters, "conditions": [*before.values()]})

    # ------------------------------------------------------------------ both

    async def _cluster(self, owner: Object, name: str, spec: Object) -> Object:
        """Return the cluster of this name; it is created if it is missing, and never changed."""
        namespace = owner["metadata"]["namespace"]
        found = self.local.get(_CLUSTERS, namespace, name)
        if found is None:
            about = {"ray.io/originated-from-cr-name": owner["metadata"]["name"]}
            about["ray.io/originated-from-crd"] = self._kind.kind
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

    async def _write(self, obj: Object, status: Object) -> None:
        namespace = obj["metadata"]["namespace"]
        await self.local.update(self._plural, namespace, {**obj, "status": status}, subresource="status")


def _metadata(owner: Object, name: str, labels: Object) -> Object:
    """Return the metadata of a child; a cluster also has the labels of its owner."""
    inherited = (owner["metadata"].get("labels") or {}) if labels else {}
    return {"name": name, "labels": {**inherited, **labels}, "ownerReferences": [owner_reference(owner)]}


def _random_name(owner: Object) -> str:
    return f"{owner['metadata']['name']}-{''.join(random.choices(_ALPHABET, k=5))}"
