"""Simulated ReplicaSet controller: keeps the requested number of pods of a template.

As upstream, the status counts the pods before the changes of the same sync: pods that it creates and deletes are
counted when their watch events arrive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.sandbox.apiserver.errors import ApiError
from admission.sandbox.controllers.base import is_over, is_ready, is_terminating
from admission.sandbox.controllers.jobpods import retention_rank
from admission.sandbox.controllers.owners import REFUSED_RETRY, OwnerController, pod_of

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object


class ReplicaSetController(OwnerController):
    """Keys are the uids of ReplicaSets."""

    kind, plural, dependents, component = "ReplicaSet", "replicasets", "pods", "replicaset-controller"

    def needs_sync(self, obj: Object, before: Object) -> bool:
        return pod_needs_sync(obj, before)

    async def sync(self, key: str) -> None:
        owner = self.owner(key)
        if owner is None:
            return
        pods = await self.claim(owner)
        active = [pod for pod in pods if not is_over(pod) and "deletionTimestamp" not in pod["metadata"]]
        if "deletionTimestamp" not in owner["metadata"]:
            await self._manage(owner, active)
        await self._update_status(owner, active, sum(map(is_terminating, pods)))

    async def _manage(self, owner: Object, active: list[Object]) -> None:
        missing = owner["spec"]["replicas"] - len(active)
        try:
            for _ in range(missing):
                created = await self.create(owner, pod_of(owner, owner["spec"]["template"]))
                await self.events.write(owner, "SuccessfulCreate", f"Created pod: {created['metadata']['name']}")
        except ApiError as error:
            await self.events.write(owner, "FailedCreate", f"Error creating: {error}", kind="Warning")
            self.enqueue(owner["metadata"]["uid"], REFUSED_RETRY)
        for pod in sorted(active, key=retention_rank)[: max(0, -missing)]:
            await self.remove("pods", pod)
            await self.events.write(owner, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")

    async def _update_status(self, owner: Object, active: list[Object], terminating: int) -> None:
        labels = (owner["spec"]["template"]["metadata"].get("labels") or {}).items()
        ready = sum(map(is_ready, active))
        counts = {
            "replicas": len(active),
            "fullyLabeledReplicas": sum(labels <= pod["metadata"]["labels"].items() for pod in active),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "terminatingReplicas": terminating,
            "observedGeneration": owner["metadata"]["generation"],
        }
        always = ("replicas", "terminatingReplicas")
        await self.write_status(owner, {name: count for name, count in counts.items() if count or name in always})


def pod_needs_sync(pod: Object, before: Object) -> bool:
    """Return whether a change of a pod affects the status of its ReplicaSet or StatefulSet."""
    return any(
        read(pod) != read(before)
        for read in (
            is_ready,
            lambda each: each.get("status", {}).get("phase"),
            lambda each: each["metadata"].get("deletionTimestamp"),
            lambda each: each["metadata"].get("labels"),
        )
    )
