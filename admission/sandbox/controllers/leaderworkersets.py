"""Simulated LeaderWorkerSet controller: StatefulSets of the leaders and of each group's workers, and its pod webhook.

As LWS 0.10 does, as recorded: one StatefulSet of the leaders, which the LeaderWorkerSet owns; for each leader that
exists one of its workers, which that leader owns, so that it ends with the leader. A group in which a pod is deleted is
created anew. A changed template is rolled out from the highest group down, one group at a time.
"""

from __future__ import annotations

from hashlib import sha1
from typing import TYPE_CHECKING, Any, Final

import orjson

from admission.sandbox.clock import rfc3339
from admission.sandbox.controllers.base import (
    PARSE_ERRORS,
    SimulatedController,
    controller_of,
    is_ready,
    owner_reference,
)
from admission.sandbox.controllers.templates import template_hash

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.clock import Clock
    from admission.sandbox.local import LocalClient

_LABEL: Final = "leaderworkerset.sigs.k8s.io/"
_NAME, _REVISION = f"{_LABEL}name", f"{_LABEL}template-revision-hash"
_GROUP, _KEY, _WORKER = f"{_LABEL}group-index", f"{_LABEL}group-key", f"{_LABEL}worker-index"


class LeaderWorkerSetController(SimulatedController[tuple[str, str]]):
    """Keys are namespace and name."""

    plurals = ("leaderworkersets", "statefulsets", "pods")
    malformed = PARSE_ERRORS

    def __init__(self, local: LocalClient, clock: Clock) -> None:
        super().__init__(local, clock)
        self._broken: set[str] = set()
        """Uids of the workers' StatefulSets of which a pod was deleted."""

    async def run(self) -> None:
        """Run the controller, with its webhook for pods."""
        with self.local.mutating_new("pods", _number_pod):
            await super().run()

    def observe(self, plural: str, change: str, obj: Object, before: Object | None) -> None:
        """Enqueue the LeaderWorkerSet of an event about it, or about one of its StatefulSets or pods."""
        namespace, uid = obj["metadata"]["namespace"], obj["metadata"]["uid"]
        name = obj["metadata"]["name"] if plural == "leaderworkersets" else _labels(obj).get(_NAME, "")
        if plural == "statefulsets" and change == "DELETED":
            self._broken.discard(uid)
        elif plural == "pods" and name and (change == "DELETED" or "deletionTimestamp" in obj["metadata"]):
            self._broken.add((controller_of(obj) or {"uid": ""})["uid"])
        if name:
            self.enqueue((namespace, name))

    async def sync(self, key: tuple[str, str]) -> None:
        """Create and update the StatefulSets, recreate broken groups, then report the number of ready groups."""
        namespace, name = key
        owner = self.local.get("leaderworkersets", *key)
        if owner is None or "deletionTimestamp" in owner["metadata"]:
            return
        leaders = self.local.get("statefulsets", *key)
        if leaders is not None and (controller_of(leaders) or {}).get("uid") != owner["metadata"]["uid"]:
            return  # that of a deleted LeaderWorkerSet of this name, which is collected first
        pods = [] if leaders is None else self.local.controlled_by("pods", leaders["metadata"]["uid"])
        groups = {int(pod["metadata"]["labels"][_GROUP]): pod for pod in pods}
        revision, ready, updated = template_hash(owner["spec"]["leaderWorkerTemplate"]), [], 0
        for number, leader in groups.items():
            is_updated = leader["metadata"]["labels"].get(_REVISION) == revision
            updated += is_updated
            if await self._sync_group(owner, leader, number, is_updated=is_updated) and is_updated:
                ready.append(number)
        replicas = owner["spec"].get("replicas", 1)
        unready = [number for number in range(replicas) if number not in ready]
        await self._write_leaders(owner, leaders, revision, partition=max(unready, default=0))
        status = owner.get("status") or {}
        counts = {"readyReplicas": len(ready), "replicas": (leaders or {}).get("status", {}).get("replicas", 0)}
        counts["updatedReplicas"] = updated
        written = {
            "conditions": self._conditions(owner, are_ready=not unready),
            "hpaPodSelector": f"{_NAME}={name},{_WORKER}=0",
            "observedGeneration": owner["metadata"]["generation"],
            **{field: count for field, count in counts.items() if count},
        }
        if written != status:
            await self.local.update("leaderworkersets", namespace, {**owner, "status": written}, subresource="status")

    async def _sync_group(self, owner: Object, leader: Object, number: int, *, is_updated: bool) -> bool:
        """Create the workers of a leader, or delete it if one of its pods is deleted; return whether all are ready."""
        metadata, size = leader["metadata"], owner["spec"]["leaderWorkerTemplate"].get("size", 1)
        if "deletionTimestamp" in metadata:
            return False
        workers = self.local.get("statefulsets", metadata["namespace"], metadata["name"])
        if size == 1:
            return is_ready(leader)
        if workers is None:
            waits = owner["spec"].get("startupPolicy") == "LeaderReady" and not is_ready(leader)
            if is_updated and not waits:
                created = _workers(owner, leader, number, size)
                await self.local.create("statefulsets", metadata["namespace"], created)
            return False
        pods = self.local.controlled_by("pods", workers["metadata"]["uid"])
        is_own = (controller_of(workers) or {}).get("uid") == metadata["uid"]
        if is_own and workers["metadata"]["uid"] in self._broken:
            await self.remove("pods", leader, propagation="Foreground")
            return False
        return is_own and is_ready(leader) and len(pods) == size - 1 and all(map(is_ready, pods))

    async def _write_leaders(self, owner: Object, leaders: Object | None, revision: str, *, partition: int) -> None:
        """Create or update the StatefulSet of the leaders. `partition`: the lowest group that gets a new template."""
        replicas, templates = owner["spec"].get("replicas", 1), owner["spec"]["leaderWorkerTemplate"]
        name, size = owner["metadata"]["name"], templates.get("size", 1)
        labels = {_NAME: name, _WORKER: "0"}
        template = _template(
            templates.get("leaderTemplate") or templates["workerTemplate"],
            {**labels, _REVISION: revision},
            {f"{_LABEL}size": str(size)},
        )
        if leaders is None:
            created = _stateful_set(owner, owner, name, {_NAME: name, _REVISION: revision}, labels)
            created["metadata"]["annotations"][f"{_LABEL}replicas"] = str(replicas)
            created["spec"] |= {"replicas": replicas, "template": template}
            await self.local.create("statefulsets", owner["metadata"]["namespace"], created)
            return
        metadata, spec = leaders["metadata"], leaders["spec"]
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}
        is_same = metadata["labels"].get(_REVISION) == revision
        changed: Object = {} if is_same else {"template": template}
        present = spec["updateStrategy"]["rollingUpdate"]["partition"]
        if partition < present or not is_same:  # a group that becomes unready later does not raise it again
            changed["updateStrategy"] = strategy
        if spec["replicas"] != replicas:
            changed["replicas"] = replicas
        if changed:
            marks = {"labels": {**metadata["labels"], _REVISION: revision}}
            marks["annotations"] = {**metadata["annotations"], f"{_LABEL}replicas": str(replicas)}
            obj = {**leaders, "metadata": {**metadata, **marks}, "spec": {**spec, **changed}}
            await self.local.update("statefulsets", metadata["namespace"], obj)

    def _conditions(self, owner: Object, *, are_ready: bool) -> list[Object]:
        """Return Progressing, and Available once all groups have been ready for the first time."""
        before = {each["type"]: each for each in (owner.get("status") or {}).get("conditions", ())}
        wanted = [("Progressing", "GroupsProgressing", "Replicas are progressing", not are_ready)]
        if are_ready or "Available" in before:
            wanted.append(("Available", "AllGroupsReady", "All replicas are ready", are_ready))
        found = []
        for kind, reason, message, holds in wanted:
            status, was = str(holds), before.get(kind, {})
            since = was["lastTransitionTime"] if was.get("status") == status else rfc3339(self.clock.now())
            found.append({
                "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since,
                "observedGeneration": owner["metadata"]["generation"],
            })  # fmt: skip
        return found


def _number_pod(pod: Object) -> Object:
    """Return a new pod as LWS's webhook changes it: with its group, and its number in the group."""
    metadata = pod["metadata"]
    labels = _labels(pod)
    if _NAME not in labels:
        return pod
    number = metadata["name"].rpartition("-")[2]
    if labels.get(_WORKER) == "0":
        added = {_GROUP: number, _KEY: _group_key(metadata["namespace"], metadata["name"])}
    else:
        added = {_WORKER: number}
    return {**pod, "metadata": {**metadata, "labels": {**labels, **added}}}


def _labels(obj: Object) -> Mapping[str, str]:
    labels: Mapping[str, str] = obj["metadata"].get("labels") or {}
    return labels


def _group_key(namespace: str, leader: str) -> str:
    return sha1(f"{namespace}/{leader}".encode(), usedforsecurity=False).hexdigest()


def _workers(owner: Object, leader: Object, number: int, size: int) -> Object:
    """Return the StatefulSet of the workers of a leader."""
    metadata, name = leader["metadata"], owner["metadata"]["name"]
    selected = {_NAME: name, _GROUP: str(number), _KEY: metadata["labels"][_KEY]}
    labels = {**selected, _REVISION: metadata["labels"][_REVISION]}
    created = _stateful_set(owner, {"apiVersion": "v1", "kind": "Pod", **leader}, metadata["name"], labels, selected)
    about = {f"{_LABEL}size": str(size), f"{_LABEL}leader-name": metadata["name"]}
    template = _template(owner["spec"]["leaderWorkerTemplate"]["workerTemplate"], labels, about)
    created["spec"] |= {"replicas": size - 1, "ordinals": {"start": 1}, "template": template}
    return created


def _stateful_set(
    whole: Object, owner: Object, name: str, labels: Mapping[str, str], selected: Mapping[str, str]
) -> Object:
    """Return a StatefulSet without replicas and template, with labels and annotations of the LeaderWorkerSet."""
    metadata = whole["metadata"]
    return {
        "metadata": {
            "name": name,
            "labels": {**(metadata.get("labels") or {}), **labels},
            "annotations": {**(metadata.get("annotations") or {})},
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": {
            "podManagementPolicy": "Parallel",
            "serviceName": metadata["name"],
            "selector": {"matchLabels": {**selected}},
        },
    }


def _template(template: Object, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Object:
    """Return a copy of a pod template with more labels and annotations."""
    copied: dict[str, Any] = orjson.loads(orjson.dumps(template))
    metadata = copied.get("metadata") or {}
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}
    return {**copied, "metadata": metadata}
