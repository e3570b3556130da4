"""Simulated garbage collector: deletes dependents without owners, performs foreground and orphan deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.sandbox.controllers.base import SimulatedController

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.clock import Clock
    from admission.sandbox.local import LocalClient

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
# Events never have owners and are by far the most numerous objects.
_IGNORED = "events"
# Seconds of real time between an owner's deletion and that of its dependents. Upstream's collector, which looks up
# each object in the API server, comes later than the Job controller, which removes its finalizer from the pods first.
_DELAY = 0.01


class Collector(SimulatedController[str]):
    """Keys are the uids of owners, also of deleted ones."""

    def __init__(self, local: LocalClient, clock: Clock) -> None:
        super().__init__(local, clock)
        self.plurals = tuple(plural for plural in local.plurals() if plural != _IGNORED)
        self._objects: dict[str, tuple[str, str, str]] = {}
        self._owners: dict[str, tuple[str, ...]] = {}
        self._dependents: dict[str, dict[str, None]] = {}
        self._delay = _DELAY * clock.speed

    def observe(self, plural: str, change: str, obj: Object, before: Object | None) -> None:
        metadata = obj["metadata"]
        uid: str = metadata["uid"]
        if change == "DELETED":
            self._objects.pop(uid, None)
            self._set_owners(uid, ())
            if uid in self._dependents:
                self.enqueue(uid, self._delay)
            return
        if change == "ADDED":
            self._objects[uid] = (plural, metadata.get("namespace", ""), metadata["name"])
        if plural == "customresourcedefinitions":
            spec = obj["spec"]
            versions = (f"{spec['group']}/{version['name']}" for version in spec["versions"])
            served = (self.local.plural_of(version, spec["names"]["kind"]) for version in versions)
            for each in dict.fromkeys(filter(None, served)):
                self.watcher.add(each)
        owners = metadata.get("ownerReferences")
        self._set_owners(uid, tuple(owner["uid"] for owner in owners) if owners else ())
        if "deletionTimestamp" in metadata and metadata.get("finalizers"):
            self.enqueue(uid, self._delay)

    def _set_owners(self, uid: str, owners: tuple[str, ...]) -> None:
        known = self._owners.get(uid, ())
        if owners == known:
            return
        for owner in known:
            dependents = self._dependents[owner]
            del dependents[uid]
            if not dependents:
                del self._dependents[owner]
            self.enqueue(owner)
        for owner in owners:
            self._dependents.setdefault(owner, {})[uid] = None
            if owner not in self._objects:
                self.enqueue(owner)
        if owners:
            self._owners[uid] = owners
        else:
            self._owners.pop(uid, None)

    def _read(self, uid: str) -> tuple[str, Object] | None:
        where = self._objects.get(uid)
        if where is None:
            return None
        obj = self.local.get(*where)
        return (where[0], obj) if obj is not None and obj["metadata"]["uid"] == uid else None

    async def sync(self, key: str) -> None:
        found = self._read(key)
        dependents = [each for uid in list(self._dependents.get(key, ())) if (each := self._read(uid)) is not None]
        if found is None:
            for plural, dependent in dependents:
                await self._collect_dependent(plural, dependent)
            return
        plural, owner = found
        finalizers = owner["metadata"].get("finalizers", ())
        if "deletionTimestamp" not in owner["metadata"]:
            return
        if ORPHAN in finalizers:
            for dependent_plural, dependent in dependents:
                await self._orphan(key, dependent_plural, dependent)
            await self._remove_finalizer(plural, owner, ORPHAN)
        elif FOREGROUND in finalizers:
            for dependent_plural, dependent in dependents:
                if "deletionTimestamp" not in dependent["metadata"]:
                    policy = "Foreground" if dependent["metadata"]["uid"] in self._dependents else "Background"
                    await self.remove(dependent_plural, dependent, propagation=policy)
            if not any(_blocks(dependent, key) for dependent in self._remaining(key)):
                await self._remove_finalizer(plural, owner, FOREGROUND)

    def _remaining(self, owner: str) -> list[Object]:
        return [each[1] for uid in self._dependents.get(owner, ()) if (each := self._read(uid)) is not None]

    async def _collect_dependent(self, plural: str, dependent: Object) -> None:
        """Delete a dependent without any existing owner; of another one remove the references to absent owners."""
        metadata = dependent["metadata"]
        references = metadata.get("ownerReferences", [])
        kept = [each for each in references if not self._is_absent(each, metadata.get("namespace", ""))]
        if references and not kept:
            await self.remove(plural, dependent, propagation="Background")
        elif len(kept) < len(references):
            await self._update_metadata(plural, dependent, "ownerReferences", kept)

    def _is_absent(self, reference: Object, namespace: str) -> bool:
        """Return whether an owner does not exist; one of a kind that is not served is assumed to exist."""
        plural, name = self.local.plural_of(reference["apiVersion"], reference["kind"]), reference["name"]
        if plural is None:
            return False
        found = self.local.get(plural, namespace, name) or self.local.get(plural, "", name)
        return found is None or found["metadata"]["uid"] != reference["uid"]

    async def _orphan(self, owner: str, plural: str, dependent: Object) -> None:
        references = dependent["metadata"].get("ownerReferences", [])  # a user may have removed them since
        kept = [reference for reference in references if reference["uid"] != owner]
        if len(kept) < len(references):
            await self._update_metadata(plural, dependent, "ownerReferences", kept)

    async def _remove_finalizer(self, plural: str, owner: Object, finalizer: str) -> None:
        kept = [name for name in owner["metadata"]["finalizers"] if name != finalizer]
        await self._update_metadata(plural, owner, "finalizers", kept)

    async def _update_metadata(self, plural: str, obj: Object, field: str, values: list[Object] | list[str]) -> None:
        metadata = {key: value for key, value in obj["metadata"].items() if key != field}
        if values:
            metadata[field] = values
        await self.local.update(plural, metadata.get("namespace", ""), {**obj, "metadata": metadata})
        await self.yield_to_loop()


def _blocks(dependent: Object, owner: str) -> bool:
    return any(
        reference["uid"] == owner and reference.get("blockOwnerDeletion")
        for reference in dependent["metadata"].get("ownerReferences", ())
    )
