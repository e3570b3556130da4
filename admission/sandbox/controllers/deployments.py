"""The pretend Deployment controller: one ReplicaSet for each template, and pods moved from the old ones to the newest.

As upstream, the status is reckoned from the ReplicaSets as they were before this look's changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from admission.sandbox.controllers import deployment_status as told
from admission.sandbox.controllers.base import owner_reference
from admission.sandbox.controllers.owners import OwnerController
from admission.sandbox.controllers.templates import HASH_LABEL, template_hash

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object

_REVISION = "deployment.kubernetes.io/revision"
_DESIRED, _MOST = "deployment.kubernetes.io/desired-replicas", "deployment.kubernetes.io/max-replicas"
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
            await self._report(owner, sets, newest, rolling=False)
            return
        if newest is not None:
            owner, numbered = await self._renumber(owner, sets, newest)
            sets, newest = [numbered if each is newest else each for each in sets], numbered
        if owner["spec"].get("paused") or _is_scaled(owner, sets):
            await self._scale(owner, sets, newest)
            await self._report(owner, sets, newest, rolling=False)
        else:
            await self._roll(owner, sets, newest)

    # ------------------------------------------------------------------ rollout

    async def _roll(self, owner: Object, sets: list[Object], newest: Object | None) -> None:
        """One step towards the newest template."""
        recreate = owner["spec"]["strategy"]["type"] == "Recreate"
        old = [each for each in sets if each is not newest]
        if recreate and any(each["spec"]["replicas"] for each in old):
            for each in old:
                await self._resize(owner, each, 0)
            await self._report(owner, sets, newest, rolling=True)
            return
        if recreate and any(_pods_left(each) for each in old):
            await self._report(owner, sets, newest, rolling=True)
            return
        if newest is None:
            owner, newest = await self._create(owner, sets)
            sets = [*sets, newest]
        wanted = _room_for_newest(owner, sets, newest)
        if wanted != newest["spec"]["replicas"]:
            await self._resize(owner, newest, wanted)
        else:
            await self._shrink(owner, old, newest)
        await self._report(owner, sets, newest, rolling=True)

    async def _create(self, owner: Object, sets: list[Object]) -> tuple[Object, Object]:
        """A ReplicaSet for a template that none has yet; the Deployment tells of it."""
        template, revision = owner["spec"]["template"], str(1 + max(map(_revision, sets), default=0))
        name = template_hash(template)
        labels = {**(template["metadata"].get("labels") or {}), HASH_LABEL: name}
        selector = owner["spec"]["selector"]
        wanted = _room_for_newest(owner, sets, None)
        created = await self.create(owner, {
            "metadata": {
                "name": f"{owner['metadata']['name']}-{name}",
                "labels": labels,
                "annotations": _notes(owner, wanted=owner["spec"]["replicas"], revision=revision),
                "ownerReferences": [owner_reference(owner)],
            },
            "spec": {
                "replicas": wanted,
                "selector": {**selector, "matchLabels": {**selector.get("matchLabels", {}), HASH_LABEL: name}},
                "template": {**template, "metadata": {**template["metadata"], "labels": labels}},
            },
        })  # fmt: skip
        await self._tell_scaled(owner, created, 0, wanted)
        status = orjson.loads(orjson.dumps(owner.get("status") or {}))
        told.put_created(status, created["metadata"]["name"], self.clock.now())
        return await self.write_status(owner, status, annotations={_REVISION: revision}), created

    async def _renumber(self, owner: Object, sets: list[Object], newest: Object) -> tuple[Object, Object]:
        """The newest template has the highest revision, also when it is an old one that came back."""
        others = [_revision(each) for each in sets if each is not newest]
        revision = str(max(_revision(newest), 1 + max(others, default=0)))
        notes = newest["metadata"].get("annotations") or {}
        if notes.get(_REVISION) != revision:
            metadata = {**newest["metadata"], "annotations": {**notes, _REVISION: revision}}
            namespace = metadata["namespace"]
            newest = await self.local.update("replicasets", namespace, {**newest, "metadata": metadata})
        status = owner.get("status") or {}
        return await self.write_status(owner, status, annotations={_REVISION: revision}), newest

    async def _shrink(self, owner: Object, old: list[Object], newest: Object) -> None:
        """Take from the old ReplicaSets what is not available first, then what the newest has replaced."""
        total = sum(each["spec"]["replicas"] for each in (*old, newest))
        available = sum(map(_available, (*old, newest)))
        least = owner["spec"]["replicas"] - told.max_unavailable(owner)
        spare = max(0, total - least - (newest["spec"]["replicas"] - _available(newest)))
        spare_available = max(0, available - least)
        for each in old:
            replicas = each["spec"]["replicas"]
            missing = min(spare, max(0, replicas - _available(each)))
            replaced = min(spare - missing, spare_available, replicas - missing)
            spare, spare_available = spare - missing - replaced, spare_available - replaced
            if missing + replaced:
                await self._resize(owner, each, replicas - missing - replaced)

    # ------------------------------------------------------------------ scale

    async def _scale(self, owner: Object, sets: list[Object], newest: Object | None) -> None:
        """A changed number of replicas goes to the ReplicaSet that has pods, in a rollout to the newest."""
        asked, active = owner["spec"]["replicas"], [each for each in sets if each["spec"]["replicas"]]
        chosen = newest if newest is not None and len(active) != 1 else next(reversed(active or sets), None)
        for each in sets:
            if each is chosen:
                others = sum(other["spec"]["replicas"] for other in active if other is not each)
                await self._resize(owner, each, max(0, asked - others))
            elif each in active:
                await self._resize(owner, each, each["spec"]["replicas"])

    async def _resize(self, owner: Object, each: Object, replicas: int) -> None:
        """Ask for so many pods of a ReplicaSet, and note what the Deployment asked for."""
        notes = {**(each["metadata"].get("annotations") or {}), **_notes(owner, wanted=owner["spec"]["replicas"])}
        before = each["spec"]["replicas"]
        if replicas == before and notes == each["metadata"].get("annotations"):
            return
        metadata = {**each["metadata"], "annotations": notes}
        changed = {**each, "metadata": metadata, "spec": {**each["spec"], "replicas": replicas}}
        await self.local.update("replicasets", metadata["namespace"], changed)
        await self._tell_scaled(owner, each, before, replicas)

    async def _tell_scaled(self, owner: Object, each: Object, before: int, replicas: int) -> None:
        if before != replicas:
            way, name = "up" if replicas > before else "down", each["metadata"]["name"]
            text = f"Scaled {way} replica set {name} from {before} to {replicas}"
            await self.events.write(owner, "ScalingReplicaSet", text)

    # ------------------------------------------------------------------ status

    async def _report(self, owner: Object, sets: list[Object], newest: Object | None, *, rolling: bool) -> None:
        now = self.clock.now()
        status = told.status_of(owner, sets, newest, now, rolling=rolling)
        owner = await self.write_status(owner, status)
        if rolling and (overdue := told.overdue_at(owner)) is not None:
            self.dirty(owner["metadata"]["uid"], overdue - now)
        if told.is_complete(owner, status):
            kept = owner["spec"]["revisionHistoryLimit"]
            idle = (each for each in sets if not each["spec"]["replicas"] and not _pods_left(each))
            unused = [each for each in idle if each is not newest]
            for each in sorted(unused, key=_revision)[: max(0, len(unused) - kept)]:
                await self.remove("replicasets", each)


def _template(each: Object) -> Object:
    """The template without the label that tells ReplicaSets apart."""
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


def _notes(owner: Object, *, wanted: int, revision: str = "") -> Object:
    most = str(wanted + told.max_surge(owner))
    notes = {_DESIRED: str(wanted), _MOST: most}
    if not revision:
        return notes
    own = owner["metadata"].get("annotations") or {}
    kept = {key: value for key, value in own.items() if key not in (_LAST_APPLIED, _REVISION, _DESIRED, _MOST)}
    return {**kept, **notes, _REVISION: revision}


def _is_scaled(owner: Object, sets: list[Object]) -> bool:
    """Whether the number of replicas was changed since the ReplicaSets were told."""
    wanted = str(owner["spec"]["replicas"])
    active = [each for each in sets if each["spec"]["replicas"]]
    return any((each["metadata"].get("annotations") or {}).get(_DESIRED, wanted) != wanted for each in active)


def _room_for_newest(owner: Object, sets: list[Object], newest: Object | None) -> int:
    """How many pods the newest ReplicaSet may have now."""
    asked: int = owner["spec"]["replicas"]
    own: int = newest["spec"]["replicas"] if newest is not None else 0
    if owner["spec"]["strategy"]["type"] == "Recreate" or own > asked:
        return asked
    total: int = sum(each["spec"]["replicas"] for each in sets)
    return max(own, min(own + asked + told.max_surge(owner) - total, asked))
