"""What the controllers of apps/v1 and of CronJobs have in common: objects of one kind that keep objects of another."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import orjson

from admission.sandbox.apiserver.selectors import matches_label_selector
from admission.sandbox.controllers.base import Controller, controller_of, owner_reference
from admission.sandbox.controllers.events import Recorder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.clock import Clock
    from admission.sandbox.local import LocalClient

Key = tuple[str, str]
"""Namespace and name."""

REFUSED_RETRY = 10.0
"""Seconds until an object is created again that the API server refused."""


class OwnerController(Controller[str]):
    """Keys are the uids of owners. Where an owner has a selector, its dependents are what that selects.

    A dependent that the selector does not select any more is let go, one without controller that it selects is adopted.
    """

    kind: ClassVar[str]
    plural: ClassVar[str]
    dependents: ClassVar[str]
    """The resource of what is owned."""
    component: ClassVar[str]
    """Who writes the Events."""

    def __init__(self, local: LocalClient, clock: Clock) -> None:
        super().__init__(local, clock)
        self.plurals = (self.plural, self.dependents)
        self.events = Recorder(local, clock, self.component)
        self._owners: dict[str, Key] = {}
        self._known: dict[str, dict[Key, None]] = {}

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
            self._known.pop(uid, None)
            return
        if uid not in self._owners:
            self._owners[uid] = (metadata["namespace"], metadata["name"])
            if "selector" in owner["spec"]:
                for dependent in self.local.list(self.dependents, metadata["namespace"]):
                    self._offer(dependent, (uid,))
        if before is None or before["metadata"].get("generation") != metadata.get("generation"):
            self.dirty(uid)

    def _observe_dependent(self, change: str, obj: Object, before: Object | None) -> None:
        key, uid = _key(obj), self._owner_of(obj)
        last = "" if before is None else self._owner_of(before)
        if last not in (uid, ""):
            self._known.get(last, {}).pop(key, None)
            self.dirty(last)
        if change == "DELETED":
            if uid:
                self._known.get(uid, {}).pop(key, None)
                self.dirty(uid)
        elif uid:
            known = self._known.setdefault(uid, {})
            if key not in known or before is None or self.matters(obj, before):
                known[key] = None
                self.dirty(uid)
        elif before is None or before["metadata"].get("labels") != obj["metadata"].get("labels") or uid != last:
            self._offer(obj, self._owners)

    def _owner_of(self, obj: Object) -> str:
        """The uid of what controls it, if that is of this controller's kind, else nothing."""
        owner = controller_of(obj)
        return owner["uid"] if owner and owner["kind"] == self.kind else ""

    def _offer(self, orphan: Object, uids: Iterable[str]) -> None:
        """Have owners looked at that may adopt an object without controller."""
        if controller_of(orphan) is not None:
            return
        namespace, labels = orphan["metadata"]["namespace"], orphan["metadata"].get("labels") or {}
        for uid in uids:
            owner = self.owner(uid) if self._owners[uid][0] == namespace else None
            if owner and "selector" in owner["spec"] and matches_label_selector(owner["spec"]["selector"], labels):
                self._known.setdefault(uid, {})[_key(orphan)] = None
                self.dirty(uid)

    def matters(self, obj: Object, before: Object) -> bool:
        """Whether a change of a dependent is a reason to look at its owner."""
        return True

    def may_adopt(self, owner: Object, orphan: Object) -> bool:
        """Whether an object without controller may be taken that the owner's selector selects."""
        return "deletionTimestamp" not in orphan["metadata"] and "deletionTimestamp" not in owner["metadata"]

    # ------------------------------------------------------------------ what there is

    def owner(self, uid: str) -> Object | None:
        """The owner as it is now; None if it is gone."""
        if uid not in self._owners:
            return None
        owner = self.local.get(self.plural, *self._owners[uid])
        return owner if owner is not None and owner["metadata"]["uid"] == uid else None

    async def claim(self, owner: Object) -> list[Object]:
        """The dependents, after those were let go and adopted that should be."""
        uid, claimed = owner["metadata"]["uid"], []
        for key in list(self._known.get(uid, ())):
            obj = self.local.get(self.dependents, *key)
            if obj is None:
                del self._known[uid][key]
                continue
            reference, metadata = controller_of(obj), obj["metadata"]
            selector = owner["spec"].get("selector")
            selected = selector is None or matches_label_selector(selector, metadata.get("labels") or {})
            if reference is not None and reference["uid"] != uid:
                del self._known[uid][key]
            elif reference is not None and selected:
                claimed.append(obj)
            elif reference is not None:
                others = [each for each in metadata["ownerReferences"] if each["uid"] != uid]
                await self._refer(obj, others)
            elif selected and self.may_adopt(owner, obj):
                adopted = [*(metadata.get("ownerReferences") or ()), owner_reference(owner)]
                claimed.append(await self._refer(obj, adopted))
        return claimed

    async def _refer(self, obj: Object, references: list[Object]) -> Object:
        changed = {**obj, "metadata": {**obj["metadata"], "ownerReferences": references}}
        return await self.local.update(self.dependents, obj["metadata"]["namespace"], changed)

    async def create(self, owner: Object, dependent: Object) -> Object:
        """Store a new dependent, and know of it before the watch tells. Raises ApiError."""
        metadata = owner["metadata"]
        created = await self.local.create(self.dependents, metadata["namespace"], dependent)
        self._known.setdefault(metadata["uid"], {})[_key(created)] = None
        await self.breathe()
        return created

    async def write_status(self, owner: Object, status: Object, *, annotations: Object | None = None) -> Object:
        """Store a status, and annotations beside it, if that changes anything."""
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
    """A pod of a template, with a name to be generated, that the caller owns."""
    copied: Object = orjson.loads(orjson.dumps(template))
    kept = ("labels", "annotations", "finalizers")
    metadata = {key: value for key, value in copied["metadata"].items() if key in kept}
    metadata["generateName"] = f"{owner['metadata']['name']}-"
    metadata["ownerReferences"] = [owner_reference(owner)]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": copied["spec"]}
