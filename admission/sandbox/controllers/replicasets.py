"""The pretend ReplicaSet controller: keeps as many pods of a template as are asked for.

As upstream, the status tells of the pods that there were before this look's changes: what it creates and deletes is
counted when it is seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.sandbox.apiserver.errors import ApiError
from admission.sandbox.controllers.base import is_over, is_ready, is_terminating
from admission.sandbox.controllers.jobpods import worth
from admission.sandbox.controllers.owners import REFUSED_RETRY, OwnerController, pod_of

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object


class ReplicaSetController(OwnerController):
    """Keys are the uids of ReplicaSets."""

    kind, plural, dependents, component = "ReplicaSet", "replicasets", "pods", "replicaset-controller"

    def matters(self, obj: Object, before: Object) -> bool:
        return pod_matters(obj, before)

    async def sync(self, key: str) -> None:
        owner = self.owner(key)
        if owner is None:
            return
        pods = await self.claim(owner)
        active = [pod for pod in pods if not is_over(pod) and "deletionTimestamp" not in pod["metadata"]]
        if "deletionTimestamp" not in owner["metadata"]:
            await self._manage(owner, active)
        await self._report(owner, active, sum(map(is_terminating, pods)))

    async def _manage(self, owner: Object, active: list[Object]) -> None:
        lacking = owner["spec"]["replicas"] - len(active)
        try:
            for _ in range(lacking):
                created = await self.create(owner, pod_of(owner, owner["spec"]["template"]))
                await self.events.write(owner, "SuccessfulCreate", f"Created pod: {created['metadata']['name']}")
        except ApiError as error:
            await self.events.write(owner, "FailedCreate", f"Error creating: {error}", kind="Warning")
            self.dirty(owner["metadata"]["uid"], REFUSED_RETRY)
        for pod in sorted(active, key=worth)[: max(0, -lacking)]:
            await self.remove("pods", pod)
            await self.events.write(owner, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")

    async def _report(self, owner: Object, active: list[Object], terminating: int) -> None:
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


def pod_matters(pod: Object, before: Object) -> bool:
    """Whether a change of a pod is one that those who keep pods count."""
    return any(
        look(pod) != look(before)
        for look in (
            is_ready,
            lambda each: each.get("status", {}).get("phase"),
            lambda each: each["metadata"].get("deletionTimestamp"),
            lambda each: each["metadata"].get("labels"),
        )
    )
