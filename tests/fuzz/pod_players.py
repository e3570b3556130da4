"""Players of the moves about pods, with a record of the pods that may be unable to run."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from admission.model.quantity import parse_quantity
from tests.fuzz.documents import LOCAL_QUEUES, QUEUE_LABELS, QUOTAS
from tests.fuzz.topology_documents import fits_floor
from tests.fuzz.world import MERGE, NAMESPACES

if TYPE_CHECKING:
    from tests.fuzz.players import Players
    from tests.fuzz.world import Object

JSON_PATCH = "application/json-patch+json"
GATE = "sluice.dev/admission"
MANAGED = "sluice.dev/managed"
CONTROLLERS = {"statefulsets": "StatefulSet", "deployments": "Deployment"}
_PODS = "/api/v1/namespaces/{}/pods"
_APPS = "/apis/apps/v1/namespaces/{}/{}"
_GROUP = "sluice.dev/pod-group-name"
_TOTAL = "sluice.dev/pod-group-total-count"


def is_gated(pod: Object) -> bool:
    """Return whether the pod has Sluice's scheduling gate."""
    return any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates") or ())


@dataclass
class WrittenGroup:
    """Record of a user's pod group."""

    total: int
    likeness: Object
    """Pod of the group, without a name."""
    uids: set[str] = field(default_factory=set)
    odd: bool = False
    """Whether a write may prevent it from running."""


class PodPlayers:
    """Players of these moves; each public method is a move."""

    def __init__(self, players: Players) -> None:
        self._players = players
        self._world = players.world
        self._count = 0
        self.odd_pods: dict[str, bool] = {}
        """UIDs of pods outside of groups and controllers, to whether a write may prevent them from running."""
        self.groups: dict[tuple[str, str], WrittenGroup] = {}
        """Records by (namespace, name)."""
        self.odd_controllers: dict[str, bool] = {}
        """UIDs of Deployments, StatefulSets and others, to whether a write may prevent their pods from running."""

    # ------------------------------------------------------------------ pods

    async def pod(
        self,
        user: str,
        queue: str,
        seconds: int,
        stop: str | None,
        cpu: str,
        odd: list[Object],
        settle: bool,
    ) -> None:
        body = _pod(queue, seconds, stop, cpu)
        is_odd = bool(odd) or stop == "never" or not _fits(user, queue, parse_quantity(cpu))
        self._count += 1
        body["metadata"]["name"] = f"pod-{self._count}"
        if (created := await self._create(user, body, odd)) is not None:
            self.odd_pods[created["metadata"]["uid"]] = is_odd
        if settle:
            await self._players.settle()

    async def patch_pod(self, user: str, pick: int, changes: list[Object]) -> None:
        if (pod := self._pick(user, pick)) is None:
            return
        body: Object = {}
        for change in changes:
            await self._players.put(body, change, user)
        path = f"{_PODS.format(NAMESPACES[user])}/{pod['metadata']['name']}"
        self._touched(pod)
        await self._world.request(user, "PATCH", path, body, content=MERGE)

    async def ungate(self, user: str, pick: int, beside: str) -> None:
        """Remove the gate of a pod as its user; `beside`: also labels, or add an annotation, in the same request."""
        if (pod := self._pick(user, pick)) is None or not is_gated(pod):
            return
        metadata = pod["metadata"]
        number = [gate["name"] for gate in pod["spec"]["schedulingGates"]].index(GATE)
        path = f"/spec/schedulingGates/{number}"
        body: list[Object] = [
            {"op": "test", "path": f"{path}/name", "value": GATE},
            {"op": "remove", "path": path},
        ]
        labels = metadata.get("labels") or {}
        if beside == "labels" and labels:
            body.append({"op": "remove", "path": "/metadata/labels"})
        elif beside == "queue":
            taken = [key.replace("/", "~1") for key in QUEUE_LABELS if key in labels]
            body += [{"op": "remove", "path": f"/metadata/labels/{key}"} for key in taken]
        elif beside == "role":
            notes = {**(metadata.get("annotations") or {}), "sluice.dev/pod-group-role": "0" * 32 + "-000000"}
            body.append({"op": "add", "path": "/metadata/annotations", "value": notes})
        self._touched(pod)
        observer = self._players.observer
        observer.note_ungated(metadata["uid"])
        path = f"{_PODS.format(NAMESPACES[user])}/{metadata['name']}"
        status, _ = await self._world.request(user, "PATCH", path, body, content=JSON_PATCH)
        if status != 200:
            observer.note_still_gated(metadata["uid"])

    async def ungate_all(self, user: str, name: str) -> None:
        """Remove the gates of all pods of a group as their user."""
        for number, pod in enumerate(self._all(user)):
            if _group_of(pod) == name:
                await self.ungate(user, number, "")

    async def delete_pod(self, user: str, pick: int, force: bool) -> None:
        if (pod := self._pick(user, pick)) is not None:
            await self._delete(user, pod, force=force)

    # ------------------------------------------------------------------ groups

    async def group(
        self,
        user: str,
        name: str,
        queue: str,
        seconds: int,
        stop: str | None,
        cpu: str,
        total: int,
        missing: int,
        other_cpu: str | None,
        fast: bool,
        retriable: bool,
        odd: list[Object],
        settle: bool,
        placed: Object | None = None,
    ) -> None:
        """Create a pod group, with fewer or more pods than it declares (`missing`), or one with another request.

        `placed`: annotations that request a placement by topology.
        """
        body = _pod(queue, seconds, stop, cpu)
        body["metadata"]["annotations"] |= placed or {}
        body["metadata"]["labels"][_GROUP] = name
        body["metadata"]["annotations"][_TOTAL] = str(total)
        if fast:
            body["metadata"]["annotations"]["sluice.dev/pod-group-fast-admission"] = "true"
        if not retriable:
            body["metadata"]["annotations"]["sluice.dev/retriable-in-group"] = "false"
        key = NAMESPACES[user], name
        is_reused = any(_group_of(pod) == name for pod in self._all(user))
        written = WrittenGroup(total, copy.deepcopy(body), odd=is_reused or bool(odd) or stop == "never")
        request = (total - 1) * parse_quantity(cpu) + parse_quantity(other_cpu or cpu)
        written.odd |= not fits_floor(queue, placed or {}, total, cpu)
        written.odd |= not _fits(user, queue, request) or missing < 0 or (fast and other_cpu is not None)
        if is_reused and key in self.groups:
            written.uids |= self.groups[key].uids
        self.groups[key] = written
        for number in range(total - missing):
            each = copy.deepcopy(body)
            if number == total - 1 and other_cpu is not None:
                each["spec"]["containers"][0]["resources"]["requests"]["cpu"] = other_cpu
            await self._join(user, name, each, odd if number == 0 else [])
        if settle:
            await self._players.settle()

    async def more(self, user: str, name: str, count: int, cpu: str | None) -> None:
        """Create further pods of a group: missing ones, replacements of ended ones, or surplus ones."""
        written = self.groups.get((NAMESPACES[user], name))
        if written is None:
            return
        for _ in range(count):
            body = copy.deepcopy(written.likeness)
            if cpu is not None:
                body["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
            written.odd |= len(written.uids) >= written.total or cpu is not None
            await self._join(user, name, body, [])

    async def delete_part(self, user: str, name: str, share: float, force: bool) -> None:
        of_group = [pod for pod in self._all(user) if _group_of(pod) == name]
        for pod in of_group[: max(round(share * len(of_group)), 1)]:
            await self._delete(user, pod, force=force)

    async def _join(self, user: str, name: str, body: Object, odd: list[Object]) -> None:
        self._count += 1
        body["metadata"]["name"] = f"{name}-{self._count}"
        written = self.groups[NAMESPACES[user], name]
        created = await self._create(user, body, odd)
        if created is None:
            written.odd = True
        else:
            written.uids.add(created["metadata"]["uid"])

    # ------------------------------------------------------------------ controllers

    async def controller(
        self,
        user: str,
        kind: str,
        name: str,
        queue: str,
        seconds: int,
        stop: str | None,
        cpu: str,
        replicas: int,
        grouped: bool,
        miscounted: int,
        parallel: bool,
        settle: bool,
    ) -> None:
        """Create a Deployment, or a StatefulSet whose pods are a group of its replicas or of another total."""
        one = _pod(queue, seconds, stop, cpu)
        del one["metadata"]["annotations"]["sandbox.sluice.dev/run-seconds"]
        one["spec"]["restartPolicy"] = "Always"
        one["metadata"]["labels"]["app"] = name
        is_set = kind == "statefulsets"
        if is_set and grouped:
            one["metadata"]["labels"][_GROUP] = name
            one["metadata"]["annotations"][_TOTAL] = str(max(replicas + miscounted, 1))
            one["metadata"]["annotations"]["sluice.dev/pod-group-fast-admission"] = "true"
        body = {
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": one["metadata"], "spec": one["spec"]},
                **({"serviceName": name} if is_set else {}),
                **({"podManagementPolicy": "Parallel"} if is_set and parallel else {}),
            },
        }
        path = _APPS.format(NAMESPACES[user], kind)
        is_reused = any(_group_of(pod) == name for pod in self._all(user)) and grouped
        if is_reused and (NAMESPACES[user], name) in self.groups:
            self.groups[NAMESPACES[user], name].odd = True
        status, created = await self._world.request(user, "POST", path, body)
        if status == 201:
            fits = _fits(user, queue, replicas * parse_quantity(cpu))
            is_odd = is_reused or stop == "never" or not fits or (grouped and miscounted != 0)
            self.odd_controllers[created["metadata"]["uid"]] = is_odd
        if settle:
            await self._players.settle()

    async def scale(self, user: str, kind: str, name: str, replicas: int) -> None:
        await self._change(user, kind, name, {"spec": {"replicas": replicas}})

    async def roll(self, user: str, kind: str, name: str, cpu: str) -> None:
        found = self._world.local.get(kind, NAMESPACES[user], name)
        if found is not None:
            containers = copy.deepcopy(found["spec"]["template"]["spec"]["containers"])
            containers[0]["resources"]["requests"]["cpu"] = cpu
            await self._change(user, kind, name, {"spec": {"template": {"spec": {"containers": containers}}}})

    async def delete_controller(self, user: str, kind: str, name: str, propagation: str) -> None:
        path = f"{_APPS.format(NAMESPACES[user], kind)}/{name}?propagationPolicy={propagation}"
        await self._world.request(user, "DELETE", path)

    async def _change(self, user: str, kind: str, name: str, body: Object) -> None:
        path = f"{_APPS.format(NAMESPACES[user], kind)}/{name}"
        status, changed = await self._world.request(user, "PATCH", path, body, content=MERGE)
        if status == 200:
            self.odd_controllers[changed["metadata"]["uid"]] = True

    # ------------------------------------------------------------------ helpers

    async def _create(self, user: str, body: Object, odd: list[Object]) -> Object | None:
        for change in odd:
            await self._players.put(body, change, user)
        status, created = await self._world.request(user, "POST", _PODS.format(NAMESPACES[user]), body)
        return created if status == 201 else None

    async def _delete(self, user: str, pod: Object, *, force: bool) -> None:
        self._touched(pod)
        path = f"{_PODS.format(NAMESPACES[user])}/{pod['metadata']['name']}"
        await self._world.request(user, "DELETE", path + "?gracePeriodSeconds=0" * force)

    def _all(self, user: str) -> list[Object]:
        found = self._world.local.list("pods", NAMESPACES[user])
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    def _pick(self, user: str, pick: int) -> Object | None:
        found = self._all(user)
        return found[pick % len(found)] if found else None

    def _touched(self, pod: Object) -> None:
        """Mark the pod, its group and its owners as possibly unable to run: that is no finding by itself."""
        metadata = pod["metadata"]
        uid = metadata["uid"]
        if uid in self.odd_pods:
            self.odd_pods[uid] = True
        for written in self.groups.values():
            written.odd |= uid in written.uids
        for owner in metadata.get("ownerReferences") or ():
            if owner["kind"] == "ReplicaSet":
                above = self._world.local.get("replicasets", metadata["namespace"], owner["name"])
                owners = above["metadata"].get("ownerReferences") if above is not None else None
                self.odd_controllers.update({each["uid"]: True for each in owners or ()})
            self.odd_controllers[owner["uid"]] = True
            if (job := self._players.jobs.get(owner["uid"])) is not None:
                job.odd = True


def _pod(queue: str, seconds: int, stop: str | None, cpu: str) -> Object:
    annotations = {"sandbox.sluice.dev/run-seconds": str(seconds)}
    if stop is not None:
        annotations["sandbox.sluice.dev/stop-seconds"] = stop
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": {QUEUE_LABELS[0]: queue} if queue else {}, "annotations": annotations},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu}}}],
        },
    }


def _group_of(pod: Object) -> str:
    labels: dict[str, Any] = pod["metadata"].get("labels") or {}
    return str(labels.get(_GROUP, ""))


def _fits(user: str, queue: str, cpu: Any) -> bool:
    """Return whether the initial quota of its queue suffices for it."""
    where = LOCAL_QUEUES.get((NAMESPACES[user], queue))
    return where is not None and cpu <= QUOTAS[where]
