"""The pretend garbage collector: deletes what has lost its owners, and carries out Foreground and Orphan deletions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.sandbox.controllers.base import Controller

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.clock import Clock
    from admission.sandbox.local import LocalClient

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
# Never owned, and by far the most numerous.
_IGNORED = "events"
# Wall seconds that an owner's own controller has before its dependents are deleted: upstream's collector, which asks
# the API server about each, comes later than the Job controller, which takes its finalizer from the pods first.
_WALL_PAUSE = 0.01


class Collector(Controller[str]):
    """Keys are uids of owners, whether they exist or not."""

    def __init__(self, local: LocalClient, clock: Clock) -> None:
        super().__init__(local, clock)
        self.plurals = tuple(plural for plural in local.plurals() if plural != _IGNORED)
        self._objects: dict[str, tuple[str, str, str]] = {}
        self._owners: dict[str, tuple[str, ...]] = {}
        self._dependents: dict[str, dict[str, None]] = {}
        self._grace = _WALL_PAUSE * clock.speed

    def observe(self, plural: str, change: str, obj: Object, before: Object | None) -> None:
        metadata = obj["metadata"]
        uid: str = metadata["uid"]
        if change == "DELETED":
            self._objects.pop(uid, None)
            self._own(uid, ())
            if uid in self._dependents:
                self.dirty(uid, self._grace)
            return
        if change == "ADDED":
            self._objects[uid] = (plural, metadata.get("namespace", ""), metadata["name"])
        if plural == "customresourcedefinitions":
            spec = obj["spec"]
            versions = (f"{spec['group']}/{version['name']}" for version in spec["versions"])
            served = (self.local.plural_of(version, spec["names"]["kind"]) for version in versions)
            for each in dict.fromkeys(filter(None, served)):
                self.watcher.also(each)
        owners = metadata.get("ownerReferences")
        self._own(uid, tuple(owner["uid"] for owner in owners) if owners else ())
        if "deletionTimestamp" in metadata and metadata.get("finalizers"):
            self.dirty(uid, self._grace)

    def _own(self, uid: str, owners: tuple[str, ...]) -> None:
        known = self._owners.get(uid, ())
        if owners == known:
            return
        for owner in known:
            dependents = self._dependents[owner]
            del dependents[uid]
            if not dependents:
                del self._dependents[owner]
            self.dirty(owner)
        for owner in owners:
            self._dependents.setdefault(owner, {})[uid] = None
            if owner not in self._objects:
                self.dirty(owner)
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
                await self._collect(plural, dependent)
            return
        plural, owner = found
        finalizers = owner["metadata"].get("finalizers", ())
        if "deletionTimestamp" not in owner["metadata"]:
            return
        if ORPHAN in finalizers:
            for of_kind, dependent in dependents:
                await self._disown(key, of_kind, dependent)
            await self._finalize(plural, owner, ORPHAN)
        elif FOREGROUND in finalizers:
            for of_kind, dependent in dependents:
                if "deletionTimestamp" not in dependent["metadata"]:
                    policy = "Foreground" if dependent["metadata"]["uid"] in self._dependents else "Background"
                    await self.remove(of_kind, dependent, propagation=policy)
            if not any(_blocks(dependent, key) for dependent in self._remaining(key)):
                await self._finalize(plural, owner, FOREGROUND)

    def _remaining(self, owner: str) -> list[Object]:
        return [each[1] for uid in self._dependents.get(owner, ()) if (each := self._read(uid)) is not None]

    async def _collect(self, plural: str, dependent: Object) -> None:
        """Delete what has no owner left; take absent owners from what has."""
        metadata = dependent["metadata"]
        references = metadata.get("ownerReferences", [])
        kept = [each for each in references if not self._is_absent(each, metadata.get("namespace", ""))]
        if references and not kept:
            await self.remove(plural, dependent, propagation="Background")
        elif len(kept) < len(references):
            await self._set(plural, dependent, "ownerReferences", kept)

    def _is_absent(self, reference: Object, namespace: str) -> bool:
        """Whether an owner does not exist; one of a kind that is not served here is presumed to."""
        plural, name = self.local.plural_of(reference["apiVersion"], reference["kind"]), reference["name"]
        if plural is None:
            return False
        found = self.local.get(plural, namespace, name) or self.local.get(plural, "", name)
        return found is None or found["metadata"]["uid"] != reference["uid"]

    async def _disown(self, owner: str, plural: str, dependent: Object) -> None:
        references = dependent["metadata"].get("ownerReferences", [])  # its user may have taken them away just now
        kept = [reference for reference in references if reference["uid"] != owner]
        if len(kept) < len(references):
            await self._set(plural, dependent, "ownerReferences", kept)

    async def _finalize(self, plural: str, owner: Object, finalizer: str) -> None:
        kept = [name for name in owner["metadata"]["finalizers"] if name != finalizer]
        await self._set(plural, owner, "finalizers", kept)

    async def _set(self, plural: str, obj: Object, field: str, values: list[Object] | list[str]) -> None:
        metadata = {key: value for key, value in obj["metadata"].items() if key != field}
        if values:
            metadata[field] = values
        await self.local.update(plural, metadata.get("namespace", ""), {**obj, "metadata": metadata})
        await self.breathe()


def _blocks(dependent: Object, owner: str) -> bool:
    return any(
        reference["uid"] == owner and reference.get("blockOwnerDeletion")
        for reference in dependent["metadata"].get("ownerReferences", ())
    )
