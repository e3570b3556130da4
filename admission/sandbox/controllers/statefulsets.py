"""Simulated StatefulSet controller: numbered pods, created, updated and deleted in order or in parallel.

As upstream, the status counts the pods before the changes of the same sync: pods that it creates and deletes are
counted when their watch events arrive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from admission.sandbox.apiserver.errors import ApiError
from admission.sandbox.controllers.base import is_over, is_ready, owner_reference
from admission.sandbox.controllers.owners import REFUSED_RETRY, OwnerController, pod_of
from admission.sandbox.controllers.replicasets import pod_needs_sync
from admission.sandbox.controllers.templates import template_hash

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object

_REVISION_LABEL = "controller-revision-hash"
_HASH_LABEL = "controller.kubernetes.io/hash"


@dataclass(frozen=True, slots=True)
class _Revisions:
    """ControllerRevisions of a StatefulSet: `history` (oldest first, without `update`), and those of its pods.

    `current` is the revision before a rollout, `update` that of the present template.
    """

    history: list[Object]
    current: Object
    update: Object

    def name_of(self, pod: Object) -> str:
        name: str = (pod["metadata"].get("labels") or {}).get(_REVISION_LABEL, "")
        return name


class StatefulSetController(OwnerController):
    """Keys are the uids of StatefulSets."""

    kind, plural, dependents, component = "StatefulSet", "statefulsets", "pods", "statefulset-controller"

    def needs_sync(self, obj: Object, before: Object) -> bool:
        return pod_needs_sync(obj, before)

    def may_adopt(self, owner: Object, orphan: Object) -> bool:
        own_name = f"{owner['metadata']['name']}-{_ordinal(orphan)}"
        return super().may_adopt(owner, orphan) and orphan["metadata"]["name"] == own_name

    async def sync(self, key: str) -> None:
        owner = self.owner(key)
        if owner is None:
            return
        pods = {_ordinal(pod): pod for pod in await self.claim(owner)}
        revisions = await self._revisions(owner)
        if "deletionTimestamp" not in owner["metadata"]:
            try:
                await self._manage(owner, pods, revisions)
            except ApiError as error:
                text = f"create or delete Pod in StatefulSet {owner['metadata']['name']} failed error: {error}"
                await self.events.write(owner, "FailedCreate", text, kind="Warning")
                self.enqueue(key, REFUSED_RETRY)
        await self._update_status(owner, list(pods.values()), revisions)

    # ------------------------------------------------------------------ pods

    async def _manage(self, owner: Object, pods: dict[int, Object], revisions: _Revisions) -> None:
        """Create, delete and replace pods; one after the other unless podManagementPolicy is Parallel."""
        spec = owner["spec"]
        ordered, first = spec["podManagementPolicy"] == "OrderedReady", spec.get("ordinals", {}).get("start", 0)
        wanted = range(first, first + spec["replicas"])
        for ordinal in wanted:
            pod = pods.get(ordinal)
            if pod is None:
                await self._create(owner, ordinal, revisions)
            elif is_over(pod) and "deletionTimestamp" not in pod["metadata"]:
                await self._delete(owner, pod)
            if ordered and (pod is None or "deletionTimestamp" in pod["metadata"] or not is_ready(pod)):
                return
        condemned = sorted((ordinal for ordinal in pods if ordinal not in wanted), reverse=True)
        for ordinal in condemned:
            if "deletionTimestamp" not in pods[ordinal]["metadata"]:
                await self._delete(owner, pods[ordinal])
            if ordered:
                return
        if spec["updateStrategy"]["type"] == "RollingUpdate":
            await self._replace(owner, pods, wanted, revisions)

    async def _replace(self, owner: Object, pods: dict[int, Object], wanted: range, revisions: _Revisions) -> None:
        """Delete the highest pod of an old revision, once all pods above it are ready."""
        first = wanted.start + owner["spec"]["updateStrategy"]["rollingUpdate"]["partition"]
        for ordinal in reversed(range(first, wanted.stop)):
            pod = pods.get(ordinal)
            if pod is None or "deletionTimestamp" in pod["metadata"]:
                return
            if revisions.name_of(pod) != revisions.update["metadata"]["name"]:
                await self._delete(owner, pod)
                return
            if not is_ready(pod):
                return

    async def _create(self, owner: Object, ordinal: int, revisions: _Revisions) -> None:
        strategy, name = owner["spec"]["updateStrategy"], owner["metadata"]["name"]
        first = owner["spec"].get("ordinals", {}).get("start", 0)
        old = strategy["type"] == "RollingUpdate" and ordinal < first + strategy["rollingUpdate"]["partition"]
        revision = revisions.current if old else revisions.update
        pod = pod_of(owner, revision["data"]["spec"]["template"])
        pod_name = pod["metadata"]["name"] = f"{name}-{ordinal}"
        pod["metadata"]["labels"] = {
            **pod["metadata"].get("labels", {}),
            "apps.kubernetes.io/pod-index": str(ordinal),
            _REVISION_LABEL: revision["metadata"]["name"],
            "statefulset.kubernetes.io/pod-name": pod_name,
        }
        pod["spec"]["hostname"] = pod_name
        if service := owner["spec"].get("serviceName"):
            pod["spec"]["subdomain"] = service
        await self.create(owner, pod)
        text = f"create Pod {pod_name} in StatefulSet {name} successful"
        await self.events.write(owner, "SuccessfulCreate", text)

    async def _delete(self, owner: Object, pod: Object) -> None:
        await self.remove("pods", pod)
        text = f"delete Pod {pod['metadata']['name']} in StatefulSet {owner['metadata']['name']} successful"
        await self.events.write(owner, "SuccessfulDelete", text)

    # ------------------------------------------------------------------ revisions and status

    async def _revisions(self, owner: Object) -> _Revisions:
        """Return the revisions; that of the present template is created first if it is missing."""
        metadata, status = owner["metadata"], owner.get("status") or {}
        history = sorted(self.local.controlled_by("controllerrevisions", metadata["uid"]), key=_number)
        data = {"spec": {"template": {**owner["spec"]["template"], "$patch": "replace"}}}
        latest = _number(history[-1]) if history else 0
        update = next((each for each in history if each["data"] == data), None)
        if update is None:
            update = await self._create_revision(owner, data, latest + 1)
        elif _number(update) < latest:  # a rollback to an earlier template
            namespace = metadata["namespace"]
            update = await self.local.update("controllerrevisions", namespace, {**update, "revision": latest + 1})
        history = [each for each in history if each["metadata"]["uid"] != update["metadata"]["uid"]]
        current = next((each for each in history if each["metadata"]["name"] == status.get("currentRevision")), update)
        return _Revisions(history, current, update)

    async def _create_revision(self, owner: Object, data: Object, number: int) -> Object:
        """Create a revision, or adopt one of the same name whose owner was deleted and orphaned it. Raises ApiError."""
        metadata, template = owner["metadata"], owner["spec"]["template"]
        hash_text = template_hash(template)
        name = f"{metadata['name']}-{hash_text}"
        existing = self.local.get("controllerrevisions", metadata["namespace"], name)
        if existing is not None and not existing["metadata"].get("ownerReferences"):
            adopted = {**existing["metadata"], "ownerReferences": [owner_reference(owner)]}
            changed = {**existing, "metadata": adopted, "revision": number}
            return await self.local.update("controllerrevisions", metadata["namespace"], changed)
        return await self.local.create("controllerrevisions", metadata["namespace"], {
            "metadata": {
                "name": name,
                "labels": {**(template["metadata"].get("labels") or {}), _HASH_LABEL: hash_text},
                "ownerReferences": [owner_reference(owner)],
            },
            "data": data,
            "revision": number,
        })  # fmt: skip

    async def _update_status(self, owner: Object, pods: list[Object], revisions: _Revisions) -> None:
        before: Object = owner.get("status") or {}
        current, update = revisions.current["metadata"]["name"], revisions.update["metadata"]["name"]
        staying = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        ready, updated = sum(map(is_ready, pods)), sum(revisions.name_of(pod) == update for pod in staying)
        if updated == len(pods) == ready:  # the rollout is over
            current = update
        counts = {
            "observedGeneration": owner["metadata"]["generation"],
            "readyReplicas": ready,
            "currentReplicas": sum(revisions.name_of(pod) == current for pod in staying),
            "updatedReplicas": updated,
        }
        status = {
            **{name: count for name, count in counts.items() if count},
            "replicas": len(pods),
            "currentRevision": current,
            "updateRevision": update,
            "collisionCount": before.get("collisionCount", 0),
            "availableReplicas": ready,
        }
        await self.write_status(owner, status)
        await self._truncate_history(owner, pods, revisions, {current, update})

    async def _truncate_history(self, owner: Object, pods: list[Object], revisions: _Revisions, live: set[str]) -> None:
        """Delete the oldest revisions that no pod has, beyond revisionHistoryLimit (truncateHistory)."""
        live = live | {revisions.name_of(pod) for pod in pods}
        unused = [each for each in revisions.history if each["metadata"]["name"] not in live]
        for each in unused[: max(0, len(unused) - owner["spec"]["revisionHistoryLimit"])]:
            await self.remove("controllerrevisions", each)


def _number(revision: Object) -> int:
    number: int = revision.get("revision", 0)
    return number


def _ordinal(pod: Object) -> int:
    """Return the ordinal at the end of a pod's name; -1 if it has none."""
    text = pod["metadata"]["name"].rpartition("-")[2]
    return int(text) if text.isdecimal() and len(text) <= 10 else -1
