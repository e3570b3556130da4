"""Base of the controllers of apps/v1 and CronJobs: owners that claim dependents of another kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import orjson

from admission.sandbox.apiserver.selectors import matches_label_selector
from admission.sandbox.controllers.base import SimulatedController, controller_of, owner_reference
from admission.sandbox.controllers.events import Recorder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.clock import Clock
    from admission.sandbox.local import LocalClient

Key = tuple[str, str]
"""(namespace, name) of a dependent or an owner."""

REFUSED_RETRY = 10.0
"""Sandbox seconds until a creation that the API server rejected is retried."""


class OwnerController(SimulatedController[str]):
    """Keys are the uids of owners. One with a selector claims dependents by it, as upstream's ControllerRefManager.

    Dependents that the selector no longer selects are released; orphans that it selects are adopted.
    """

    kind: ClassVar[str]
    plural: ClassVar[str]
    dependents: ClassVar[str]
    """Plural of the dependents."""
    component: ClassVar[str]
    """Component name in the Events it writes."""

    def __init__(self, local: LocalClient, clock: Clock) -> None:
        super().__init__(local, clock)
        self.plurals = (self.plural, self.dependents)
        self.events = Recorder(local, clock, self.component)
        self._owners: dict[str, Key] = {}
        self._dependents_of: dict[str, dict[Key, None]] = {}

    # ------------------------------------------------------------------ watching

    def observe(self, plural: str, change: str, obj: Object, before: Object | None) -> None:
        if plural == self.plural:
            self._observe_owner(change, obj, before)
        else:
            self._observe_dependent(change, obj, before)

    def _observe_owner(self, change: str, owner: Object, before: Object | None) -> None:
        metadata = owner["metadata"]
        uid: str = metadata["uid"]
        if change == "DELETED":
            self._owners.pop(uid, None)
            self._dependents_of.pop(uid, None)
            return
        if uid not in self._owners:
            self._owners[uid] = (metadata["namespace"], metadata["name"])
            if "selector" in owner["spec"]:
                for dependent in self.local.list(self.dependents, metadata["namespace"]):
                    self._enqueue_adopters(dependent, (uid,))
        if before is None or before["metadata"].get("generation") != metadata.get("generation"):
            self.enqueue(uid)

    def _observe_dependent(self, change: str, obj: Object, before: Object | None) -> None:
        key, uid = _key(obj), self._owner_of(obj)
        last = "" if before is None else self._owner_of(before)
        if last not in (uid, ""):
            self._dependents_of.get(last, {}).pop(key, None)
            self.enqueue(last)
        if change == "DELETED":
            if uid:
                self._dependents_of.get(uid, {}).pop(key, None)
                self.enqueue(uid)
        elif uid:
            known = self._dependents_of.setdefault(uid, {})
            if key not in known or before is None or self.needs_sync(obj, before):
                known[key] = None
                self.enqueue(uid)
        elif before is None or before["metadata"].get("labels") != obj["metadata"].get("labels") or uid != last:
            self._enqueue_adopters(obj, self._owners)

    def _owner_of(self, obj: Object) -> str:
        """Return the uid of the object's controller, if that is of this kind, else the empty string."""
        owner = controller_of(obj)
        return owner["uid"] if owner and owner["kind"] == self.kind else ""

    def _enqueue_adopters(self, orphan: Object, uids: Iterable[str]) -> None:
        """Enqueue the owners that may adopt an orphan."""
        if controller_of(orphan) is not None:
            return
        namespace, labels = orphan["metadata"]["namespace"], orphan["metadata"].get("labels") or {}
        for uid in uids:
            owner = self.owner(uid) if self._owners[uid][0] == namespace else None
            if owner and "selector" in owner["spec"] and matches_label_selector(owner["spec"]["selector"], labels):
                self._dependents_of.setdefault(uid, {})[_key(orphan)] = None
                self.enqueue(uid)

    def needs_sync(self, obj: Object, before: Object) -> bool:
        """Return whether a change of a dependent requires a sync of its owner."""
        return True

    def may_adopt(self, owner: Object, orphan: Object) -> bool:
        """Return whether an owner may adopt an orphan that its selector selects."""
        return "deletionTimestamp" not in orphan["metadata"] and "deletionTimestamp" not in owner["metadata"]

    # ------------------------------------------------------------------ owners and dependents

    def owner(self, uid: str) -> Object | None:
        """Return the current state of the owner; None if it was deleted."""
        if uid not in self._owners:
            return None
        owner = self.local.get(self.plural, *self._owners[uid])
        return owner if owner is not None and owner["metadata"]["uid"] == uid else None

    async def claim(self, owner: Object) -> list[Object]:
        """Release and adopt dependents; return those of the owner."""
        uid, claimed = owner["metadata"]["uid"], []
        for key in list(self._dependents_of.get(uid, ())):
            obj = self.local.get(self.dependents, *key)
            if obj is None:
                del self._dependents_of[uid][key]
                continue
            reference, metadata = controller_of(obj), obj["metadata"]
            selector = owner["spec"].get("selector")
            selected = selector is None or matches_label_selector(selector, metadata.get("labels") or {})
            if reference is not None and reference["uid"] != uid:
                del self._dependents_of[uid][key]
            elif reference is not None and selected:
                claimed.append(obj)
            elif reference is not None:
                others = [each for each in metadata["ownerReferences"] if each["uid"] != uid]
                await self._set_owner_references(obj, others)
            elif selected and self.may_adopt(owner, obj):
                adopted = [*(metadata.get("ownerReferences") or ()), owner_reference(owner)]
                claimed.append(await self._set_owner_references(obj, adopted))
        return claimed

    async def _set_owner_references(self, obj: Object, references: list[Object]) -> Object:
        changed = {**obj, "metadata": {**obj["metadata"], "ownerReferences": references}}
        return await self.local.update(self.dependents, obj["metadata"]["namespace"], changed)

    async def create(self, owner: Object, dependent: Object) -> Object:
        """Create a dependent, and index it before its watch event arrives. Raises ApiError."""
        metadata = owner["metadata"]
        created = await self.local.create(self.dependents, metadata["namespace"], dependent)
        self._dependents_of.setdefault(metadata["uid"], {})[_key(created)] = None
        await self.yield_to_loop()
        return created

    async def write_status(self, owner: Object, status: Object, *, annotations: Object | None = None) -> Object:
        """Update the status, and annotations with it, if they change; return the owner."""
        changed = {**owner, "status": status}
        if annotations:
            metadata = owner["metadata"]
            changed["metadata"] = {**metadata, "annotations": {**(metadata.get("annotations") or {}), **annotations}}
        if changed == owner:
            return owner
        namespace = owner["metadata"]["namespace"]
        return await self.local.update(self.plural, namespace, changed, subresource="status")


def _key(obj: Object) -> Key:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def pod_of(owner: Object, template: Object) -> Object:
    """Return a pod from a template, with a generateName; it shares nothing with the template."""
    copied: Object = orjson.loads(orjson.dumps(template))
    kept = ("labels", "annotations", "finalizers")
    metadata = {key: value for key, value in copied["metadata"].items() if key in kept}
    metadata["generateName"] = f"{owner['metadata']['name']}-"
    metadata["ownerReferences"] = [owner_reference(owner)]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": copied["spec"]}
