"""Simulated LeaderWorkerSet controller: a leader and its workers for each replica, recreated when one of them ends.

The real controller creates StatefulSets, whose controller creates the pods; names and labels are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.sandbox.controllers.base import PARSE_ERRORS, Controller, is_over, is_ready
from admission.sandbox.controllers.owners import pod_of

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object

_LABEL: Final = "leaderworkerset.sigs.k8s.io/"


class LeaderWorkerSetController(Controller[tuple[str, str]]):
    """Keys are namespace and name. All sets are treated as `restartPolicy: RecreateGroupOnPodRestart`, the default."""

    plurals = ("leaderworkersets", "pods")
    malformed = PARSE_ERRORS

    def observe(self, plural: str, change: str, obj: Object, before: Object | None) -> None:
        """Enqueue the LeaderWorkerSet of an event about it or about one of its pods."""
        namespace = obj["metadata"]["namespace"]
        if plural == "leaderworkersets":
            self.enqueue((namespace, obj["metadata"]["name"]))
        elif name := (obj["metadata"].get("labels") or {}).get(f"{_LABEL}name"):
            self.enqueue((namespace, name))

    async def sync(self, key: tuple[str, str]) -> None:
        """Create and delete pods, then report the number of ready groups."""
        owner = self.local.get("leaderworkersets", *key)
        if owner is None or "deletionTimestamp" in owner["metadata"]:
            return
        name, spec = key[1], owner["spec"]
        size, replicas = spec["leaderWorkerTemplate"].get("size", 1), spec.get("replicas", 1)
        pods = {pod["metadata"]["name"]: pod for pod in self.local.controlled_by("pods", owner["metadata"]["uid"])}
        ready = 0
        wanted: set[str] = set()
        for group in range(replicas):
            names = [f"{name}-{group}", *(f"{name}-{group}-{number}" for number in range(1, size))]
            wanted.update(names)
            present = [pods[each] for each in names if each in pods]
            ready += len(present) == size and all(map(is_ready, present))
            if any(map(_is_ending, present)):
                for pod in present:
                    await self._remove(pod)
                continue
            leader = pods.get(names[0])
            waits = spec.get("startupPolicy") == "LeaderReady" and not (leader and is_ready(leader))
            for number, each in enumerate(names[:1] if waits else names):
                if each not in pods:
                    await self.local.create("pods", key[0], _pod(owner, each, group, number, size))
        for pod_name, pod in pods.items():
            if pod_name not in wanted:
                await self._remove(pod)
        status = {"replicas": replicas, "readyReplicas": ready}
        if status != owner.get("status"):
            await self.local.update("leaderworkersets", key[0], {**owner, "status": status}, subresource="status")

    async def _remove(self, pod: Object) -> None:
        if "deletionTimestamp" not in pod["metadata"]:
            await self.remove("pods", pod)


def _is_ending(pod: Object) -> bool:
    return is_over(pod) or "deletionTimestamp" in pod["metadata"]


def _pod(owner: Object, name: str, group: int, number: int, size: int) -> Object:
    templates = owner["spec"]["leaderWorkerTemplate"]
    template = templates["workerTemplate"] if number else templates.get("leaderTemplate") or templates["workerTemplate"]
    pod = pod_of(owner, {"metadata": {}, **template})
    metadata = pod["metadata"]
    metadata["name"] = name
    about = {f"{_LABEL}name": owner["metadata"]["name"], f"{_LABEL}group-index": str(group)}
    metadata["labels"] = {**metadata.get("labels", {}), **about, f"{_LABEL}worker-index": str(number)}
    metadata["annotations"] = {**metadata.get("annotations", {}), f"{_LABEL}size": str(size)}
    return pod
