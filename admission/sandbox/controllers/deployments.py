"""Simulated Deployment controller: one ReplicaSet for each template, and rollouts from the old ones to the newest.

As upstream, the status is calculated from the ReplicaSets as they were before the changes of the same sync.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import orjson

from admission.sandbox.clock import parse_rfc3339, rfc3339
from admission.sandbox.controllers.base import condition, owner_reference
from admission.sandbox.controllers.owners import OwnerController
from admission.sandbox.controllers.templates import HASH_LABEL, template_hash

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.sandbox.apiserver.objects import Object

_REVISION = "deployment.kubernetes.io/revision"
_DESIRED, _MAX = "deployment.kubernetes.io/desired-replicas", "deployment.kubernetes.io/max-replicas"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class DeploymentController(OwnerController):
    """Keys are the uids of Deployments."""

    kind, plural, dependents, component = "Deployment", "deployments", "replicasets", "deployment-controller"

    async def sync(self, key: str) -> None:
        owner = self.owner(key)
        if owner is None:
            return
        sets = sorted(await self.claim(owner), key=_revision)
        newest = next((each for each in sets if _template(each) == owner["spec"]["template"]), None)
        if "deletionTimestamp" in owner["metadata"]:
            await self._update_status(owner, sets, newest, rolling=False)
            return
        if newest is not None:
            owner, updated = await self._update_revision(owner, sets, newest)
            sets, newest = [updated if each is newest else each for each in sets], updated
        if owner["spec"].get("paused") or _is_scaling_event(owner, sets):
            await self._scale(owner, sets, newest)
            await self._update_status(owner, sets, newest, rolling=False)
        else:
            await self._roll(owner, sets, newest)

    # ------------------------------------------------------------------ rollout

    async def _roll(self, owner: Object, sets: list[Object], newest: Object | None) -> None:
        """Make one step of a rollout to the newest template (rolloutRolling, rolloutRecreate)."""
        recreate = owner["spec"]["strategy"]["type"] == "Recreate"
        old = [each for each in sets if each is not newest]
        if recreate and any(each["spec"]["replicas"] for each in old):
            for each in old:
                await self._scale_replica_set(owner, each, 0)
            await self._update_status(owner, sets, newest, rolling=True)
            return
        if recreate and any(_pods_left(each) for each in old):
            await self._update_status(owner, sets, newest, rolling=True)
            return
        if newest is None:
            owner, newest = await self._create(owner, sets)
            sets = [*sets, newest]
        wanted = _newest_replicas(owner, sets, newest)
        if wanted != newest["spec"]["replicas"]:
            await self._scale_replica_set(owner, newest, wanted)
        else:
            await self._scale_down_old(owner, old, newest)
        await self._update_status(owner, sets, newest, rolling=True)

    async def _create(self, owner: Object, sets: list[Object]) -> tuple[Object, Object]:
        """Create the ReplicaSet of a new template; return the Deployment with updated status, and the ReplicaSet."""
        template, revision = owner["spec"]["template"], str(1 + max(map(_revision, sets), default=0))
        name = template_hash(template)
        labels = {**(template["metadata"].get("labels") or {}), HASH_LABEL: name}
        selector = owner["spec"]["selector"]
        wanted = _newest_replicas(owner, sets, None)
        created = await self.create(owner, {
            "metadata": {
                "name": f"{owner['metadata']['name']}-{name}",
                "labels": labels,
                "annotations": _annotations(owner, wanted=owner["spec"]["replicas"], revision=revision),
                "ownerReferences": [owner_reference(owner)],
            },
            "spec": {
                "replicas": wanted,
                "selector": {**selector, "matchLabels": {**selector.get("matchLabels", {}), HASH_LABEL: name}},
                "template": {**template, "metadata": {**template["metadata"], "labels": labels}},
            },
        })  # fmt: skip
        await self._record_scaling(owner, created, 0, wanted)
        status = orjson.loads(orjson.dumps(owner.get("status") or {}))
        set_created(status, created["metadata"]["name"], self.clock.now())
        return await self.write_status(owner, status, annotations={_REVISION: revision}), created

    async def _update_revision(self, owner: Object, sets: list[Object], newest: Object) -> tuple[Object, Object]:
        """Give the newest ReplicaSet the highest revision, also after a rollback to an earlier template."""
        others = [_revision(each) for each in sets if each is not newest]
        revision = str(max(_revision(newest), 1 + max(others, default=0)))
        annotations = newest["metadata"].get("annotations") or {}
        if annotations.get(_REVISION) != revision:
            metadata = {**newest["metadata"], "annotations": {**annotations, _REVISION: revision}}
            namespace = metadata["namespace"]
            newest = await self.local.update("replicasets", namespace, {**newest, "metadata": metadata})
        status = owner.get("status") or {}
        return await self.write_status(owner, status, annotations={_REVISION: revision}), newest

    async def _scale_down_old(self, owner: Object, old: list[Object], newest: Object) -> None:
        """Scale the old ReplicaSets down: unavailable pods first, then as many as the newest has replaced."""
        total = sum(each["spec"]["replicas"] for each in (*old, newest))
        available = sum(map(_available, (*old, newest)))
        minimum = owner["spec"]["replicas"] - max_unavailable(owner)
        spare = max(0, total - minimum - (newest["spec"]["replicas"] - _available(newest)))
        spare_available = max(0, available - minimum)
        for each in old:
            replicas = each["spec"]["replicas"]
            missing = min(spare, max(0, replicas - _available(each)))
            replaced = min(spare - missing, spare_available, replicas - missing)
            spare, spare_available = spare - missing - replaced, spare_available - replaced
            if missing + replaced:
                await self._scale_replica_set(owner, each, replicas - missing - replaced)

    # ------------------------------------------------------------------ scale

    async def _scale(self, owner: Object, sets: list[Object], newest: Object | None) -> None:
        """Apply a changed number of replicas to the only ReplicaSet with pods, or to the newest during a rollout."""
        desired, active = owner["spec"]["replicas"], [each for each in sets if each["spec"]["replicas"]]
        chosen = newest if newest is not None and len(active) != 1 else next(reversed(active or sets), None)
        for each in sets:
            if each is chosen:
                others = sum(other["spec"]["replicas"] for other in active if other is not each)
                await self._scale_replica_set(owner, each, max(0, desired - others))
            elif each in active:
                await self._scale_replica_set(owner, each, each["spec"]["replicas"])

    async def _scale_replica_set(self, owner: Object, each: Object, replicas: int) -> None:
        """Scale a ReplicaSet and record the Deployment's replicas in its annotations."""
        annotations = {
            **(each["metadata"].get("annotations") or {}),
            **_annotations(owner, wanted=owner["spec"]["replicas"]),
        }
        before = each["spec"]["replicas"]
        if replicas == before and annotations == each["metadata"].get("annotations"):
            return
        metadata = {**each["metadata"], "annotations": annotations}
        changed = {**each, "metadata": metadata, "spec": {**each["spec"], "replicas": replicas}}
        await self.local.update("replicasets", metadata["namespace"], changed)
        await self._record_scaling(owner, each, before, replicas)

    async def _record_scaling(self, owner: Object, each: Object, before: int, replicas: int) -> None:
        if before != replicas:
            direction, name = "up" if replicas > before else "down", each["metadata"]["name"]
            text = f"Scaled {direction} replica set {name} from {before} to {replicas}"
            await self.events.write(owner, "ScalingReplicaSet", text)

    # ------------------------------------------------------------------ status

    async def _update_status(self, owner: Object, sets: list[Object], newest: Object | None, *, rolling: bool) -> None:
        now = self.clock.now()
        status = status_of(owner, sets, newest, now, rolling=rolling)
        owner = await self.write_status(owner, status)
        if rolling and (deadline := progress_deadline(owner)) is not None:
            self.enqueue(owner["metadata"]["uid"], deadline - now)
        if is_complete(owner, status):
            kept = owner["spec"]["revisionHistoryLimit"]
            idle = (each for each in sets if not each["spec"]["replicas"] and not _pods_left(each))
            unused = [each for each in idle if each is not newest]
            for each in sorted(unused, key=_revision)[: max(0, len(unused) - kept)]:
                await self.remove("replicasets", each)


def _template(each: Object) -> Object:
    """Return a ReplicaSet's template without the label pod-template-hash."""
    template = each["spec"]["template"]
    labels = {key: value for key, value in (template["metadata"].get("labels") or {}).items() if key != HASH_LABEL}
    return {**template, "metadata": {**template["metadata"], "labels": labels}}


def _revision(each: Object) -> int:
    text = (each["metadata"].get("annotations") or {}).get(_REVISION, "")
    return int(text) if text.isdecimal() else 0


def _available(each: Object) -> int:
    count: int = each["status"].get("availableReplicas", 0)
    return count


def _pods_left(each: Object) -> int:
    counts: int = each["status"].get("replicas", 0) + each["status"].get("terminatingReplicas", 0)
    return counts


def _annotations(owner: Object, *, wanted: int, revision: str = "") -> Object:
    most = str(wanted + max_surge(owner))
    annotations = {_DESIRED: str(wanted), _MAX: most}
    if not revision:
        return annotations
    own = owner["metadata"].get("annotations") or {}
    kept = {key: value for key, value in own.items() if key not in (_LAST_APPLIED, _REVISION, _DESIRED, _MAX)}
    return {**kept, **annotations, _REVISION: revision}


def _is_scaling_event(owner: Object, sets: list[Object]) -> bool:
    """Return whether the number of replicas differs from that recorded in the ReplicaSets (isScalingEvent)."""
    wanted = str(owner["spec"]["replicas"])
    active = [each for each in sets if each["spec"]["replicas"]]
    return any((each["metadata"].get("annotations") or {}).get(_DESIRED, wanted) != wanted for each in active)


def _newest_replicas(owner: Object, sets: list[Object], newest: Object | None) -> int:
    """Return the number of replicas that the newest ReplicaSet may have now (NewRSNewReplicas)."""
    desired: int = owner["spec"]["replicas"]
    own: int = newest["spec"]["replicas"] if newest is not None else 0
    if owner["spec"]["strategy"]["type"] == "Recreate" or own > desired:
        return desired
    total: int = sum(each["spec"]["replicas"] for each in sets)
    return max(own, min(own + desired + max_surge(owner) - total, desired))


_COMPLETE, _CREATED, _OVERDUE = "NewReplicaSetAvailable", "NewReplicaSetCreated", "ProgressDeadlineExceeded"
_UPDATED = "ReplicaSetUpdated"
_NO_DEADLINE = 2**31 - 1


def max_surge(owner: Object) -> int:
    """Return the number of pods that a rollout may have beyond the replicas; a percentage is rounded up."""
    if owner["spec"]["strategy"]["type"] == "Recreate":
        return 0
    return _share(owner["spec"]["strategy"]["rollingUpdate"]["maxSurge"], owner["spec"]["replicas"], math.ceil)


def max_unavailable(owner: Object) -> int:
    """Return the number of replicas that may be unavailable in a rollout.

    A percentage is rounded down, but to no less than 1 if maxSurge is 0: otherwise the rollout could not progress.
    """
    replicas: int = owner["spec"]["replicas"]
    if owner["spec"]["strategy"]["type"] == "Recreate" or not replicas:
        return 0
    share = _share(owner["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"], replicas, math.floor)
    return min(share if share or max_surge(owner) else 1, replicas)


def _share(value: int | str, replicas: int, rounded: Callable[[float], int]) -> int:
    return value if isinstance(value, int) else rounded(int(value.removesuffix("%")) * replicas / 100)


def status_of(owner: Object, sets: list[Object], newest: Object | None, now: float, *, rolling: bool) -> Object:
    """Return the status; with `rolling` (neither paused nor being scaled) the condition Progressing is updated too."""
    before: Object = owner.get("status") or {}
    available = _sum(sets, "availableReplicas")
    counts = {
        "observedGeneration": owner["metadata"]["generation"],
        "replicas": _sum(sets, "replicas"),
        "updatedReplicas": _sum([newest] if newest else [], "replicas"),
        "readyReplicas": _sum(sets, "readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(0, sum(each["spec"]["replicas"] for each in sets) - available),
    }
    status: Object = {name: count for name, count in counts.items() if count}
    status["terminatingReplicas"] = _sum(sets, "terminatingReplicas")
    if before.get("conditions"):
        status["conditions"] = orjson.loads(orjson.dumps(before["conditions"]))
    enough = available >= owner["spec"]["replicas"] - max_unavailable(owner)
    if enough:
        text = "Deployment has minimum availability."
        _set_condition(status, "Available", "True", "MinimumReplicasAvailable", text, now)
    else:
        text = "Deployment does not have minimum availability."
        _set_condition(status, "Available", "False", "MinimumReplicasUnavailable", text, now)
    if rolling and newest is not None:
        _set_progressing(owner, status, newest["metadata"]["name"], now)
    return status


def set_created(status: Object, name: str, now: float) -> None:
    """Set the condition Progressing after the creation of a ReplicaSet."""
    _set_condition(status, "Progressing", "True", _CREATED, f'Created new replica set "{name}"', now)


def is_complete(owner: Object, status: Object) -> bool:
    """Return whether all replicas are of the newest template and available."""
    wanted = owner["spec"]["replicas"]
    counts = (status.get(name, 0) for name in ("updatedReplicas", "replicas", "availableReplicas"))
    return all(count == wanted for count in counts)


def progress_deadline(owner: Object) -> float | None:
    """Return the time (s since the epoch) at which the progress deadline is exceeded; None: no rollout is under way."""
    progress = condition(owner, "Progressing")
    if progress is None or progress["reason"] in (_COMPLETE, _OVERDUE):
        return None
    seconds: int = owner["spec"].get("progressDeadlineSeconds", _NO_DEADLINE)
    return None if seconds == _NO_DEADLINE else parse_rfc3339(progress["lastUpdateTime"]) + seconds


def _set_progressing(owner: Object, status: Object, name: str, now: float) -> None:
    before, current = owner.get("status") or {}, condition({"status": status}, "Progressing")
    done = status.get("replicas", 0) == status.get("updatedReplicas", 0)
    if done and current is not None and current["reason"] == _COMPLETE:
        return
    if is_complete(owner, status):
        _set_condition(
            status, "Progressing", "True", _COMPLETE, f'ReplicaSet "{name}" has successfully progressed.', now
        )
    elif _has_progressed(status, before):
        _set_condition(status, "Progressing", "True", _UPDATED, f'ReplicaSet "{name}" is progressing.', now)
    elif (deadline := progress_deadline(owner)) is not None and now >= deadline:
        text = f'ReplicaSet "{name}" has timed out progressing.'
        _set_condition(status, "Progressing", "False", _OVERDUE, text, now)


def _has_progressed(status: Object, before: Object) -> bool:
    grown = any(
        status.get(name, 0) > before.get(name, 0) for name in ("updatedReplicas", "readyReplicas", "availableReplicas")
    )
    old, old_before = (each.get("replicas", 0) - each.get("updatedReplicas", 0) for each in (status, before))
    return grown or old < old_before


def _sum(sets: list[Object], name: str) -> int:
    return sum((each.get("status") or {}).get(name, 0) for each in sets)


def _set_condition(status: Object, kind: str, value: str, reason: str, message: str, now: float) -> None:
    """Set a condition; with equal status and reason it keeps its times, unless it reports further progress."""
    conditions = status.setdefault("conditions", [])
    current = condition({"status": status}, kind)
    same = current is not None and (current["status"], current["reason"]) == (value, reason)
    if same and reason != _UPDATED:
        return
    instant = rfc3339(now)
    transition = current["lastTransitionTime"] if current is not None and current["status"] == value else instant
    if current is not None:
        conditions.remove(current)
    conditions.append(
        {"type": kind, "status": value, "lastUpdateTime": instant, "lastTransitionTime": transition,
         "reason": reason, "message": message}
    )  # fmt: skip
