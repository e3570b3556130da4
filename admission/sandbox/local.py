"""In-process API client, for controllers and tests: the same rules as over HTTP, without HTTP."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from admission.sandbox.apiserver import errors
from admission.sandbox.apiserver.decoding import decode_new, decode_update
from admission.sandbox.apiserver.patch import merge_patch
from admission.sandbox.apiserver.requests import Call, DeleteOptions
from admission.sandbox.builtin.pods import bind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.registry import ObjectRegistry
    from admission.sandbox.apiserver.requests import User
    from admission.sandbox.apiserver.resources import ServedResource
    from admission.sandbox.apiserver.storage import EventType, ObjectVersion, StorageEvent, StoredCollection

# (plural, event type, object, previous object or None)
Change = tuple[str, "EventType", "Object", "Object | None"]


class LocalClient:
    """API client of one user. Returned objects are shared and must not be modified.

    Resources are named by their plural, or by `plural.group`; a plural that several groups have is the core group's,
    or that of the alphabetically first.
    """

    def __init__(self, registry: ObjectRegistry, user: User) -> None:
        self._registry = registry
        self._user = user
        self._by_plural: dict[str, ServedResource] = {}

    def get(self, plural: str, namespace: str, name: str) -> Object | None:
        """Return an object, or None; `namespace` is empty for cluster-scoped resources."""
        version = self._collection(plural).get(namespace, name)
        return version.obj if version else None

    def controlled_by(self, plural: str, uid: str) -> list[Object]:
        """Return the objects of a resource whose controller has this uid, ordered by namespace and name."""
        return [version.obj for version in self._collection(plural).controlled_by(uid)]

    def list(self, plural: str, namespace: str | None = None) -> list[Object]:
        """Return the objects of one namespace or of all, ordered by namespace and name."""
        return [version.obj for version in self._collection(plural).versions(namespace)]

    async def create(self, plural: str, namespace: str, obj: Object) -> Object:
        """Create an object from `obj`, which the caller gives up. Raises ApiError."""
        resource, call = self._resource(plural), self._call("CreateOptions")
        version = await self._registry.create(resource, namespace, decode_new(resource, obj, []), call)
        return version.obj

    async def update(self, plural: str, namespace: str, obj: Object, *, subresource: str = "") -> Object:
        """Replace an object; a resourceVersion in it must be the current one. Raises ApiError."""
        resource = self._resource(plural)

        def change(current: ObjectVersion | None) -> Object:
            assert current is not None
            return decode_update(resource, dict(obj), current.obj, [])

        return await self._update(resource, namespace, obj["metadata"]["name"], change, subresource)

    async def patch(self, plural: str, namespace: str, name: str, body: Object, *, subresource: str = "") -> Object:
        """Apply a JSON merge patch. Raises ApiError."""
        resource = self._resource(plural)

        def change(current: ObjectVersion | None) -> Object:
            assert current is not None
            return decode_update(resource, merge_patch(current.obj, body), current.obj, [])

        return await self._update(resource, namespace, name, change, subresource)

    async def delete(
        self,
        plural: str,
        namespace: str,
        name: str,
        *,
        grace: int | None = None,
        propagation: str | None = None,
        uid: str | None = None,
    ) -> None:
        """Delete an object or mark it as terminating; `grace` in seconds, `uid` is a precondition. Raises ApiError."""
        options = DeleteOptions(grace=grace, propagation=propagation, uid=uid)
        await self._registry.delete(self._resource(plural), namespace, name, options, self._call("DeleteOptions"))

    async def bind(self, namespace: str, name: str, node: str) -> None:
        """Bind a pod to a node, as the scheduler does. Raises ApiError."""
        binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        await bind(self._registry, namespace, name, binding, self._call("CreateOptions"))

    def plurals(self, *, namespaced: bool = False) -> tuple[str, ...]:
        """Return the names of all served resources, or with `namespaced` of the namespaced ones only."""
        served = self._registry.resources.values()
        return tuple(dict.fromkeys(self._name(each) for each in served if each.namespaced or not namespaced))

    def plural_of(self, api_version: str, kind: str) -> str | None:
        """Return the resource of an owner reference's apiVersion and kind; None if it is not served."""
        served = self._registry.resources.values()
        found = next((each for each in served if each.api_version == api_version and each.kind == kind), None)
        return None if found is None else self._name(found)

    def _name(self, resource: ServedResource) -> str:
        """Return the name by which `_resource` finds it: with the group if the plural alone means another resource."""
        is_meant = self._resource(resource.plural).group == resource.group
        return resource.plural if is_meant else f"{resource.plural}.{resource.group}"

    @contextmanager
    def mutating_new(self, plural: str, change: Callable[[Object], Object]) -> Iterator[None]:
        """Pass new objects of a resource through a function during the block, as an operator's own webhook would."""
        with self._registry.admission.mutating_new(self._resource(plural), change):
            yield

    @contextmanager
    def refusing_changes(self, plural: str, field: str, part: Callable[[Object, bool], object]) -> Iterator[None]:
        """Refuse changes of a part of a resource's objects during the block, as an operator's own webhook would.

        See `Admission.refusing_changes`.
        """
        with self._registry.admission.refusing_changes(self._resource(plural), field, part):
            yield

    def watch(self, *plurals: str) -> LocalWatcher:
        """Watch resources: existing objects as ADDED, then every change."""
        return LocalWatcher(self._collection, plurals)

    async def _update(
        self,
        resource: ServedResource,
        namespace: str,
        name: str,
        change: Callable[[ObjectVersion | None], Object],
        subresource: str,
    ) -> Object:
        call = self._call("UpdateOptions")
        version, _ = await self._registry.update(resource, namespace, name, change, call, subresource=subresource)
        return version.obj

    def _call(self, options: str) -> Call:
        return Call(self._user, options={"kind": options, "apiVersion": "meta.k8s.io/v1"})

    def _resource(self, plural: str) -> ServedResource:
        found = self._by_plural.get(plural)
        if found is None:
            name, _, group = plural.partition(".")  # the group distinguishes resources of the same plural
            served = self._registry.resources.values()
            candidates = [known for known in served if known.plural == name and group in ("", known.group)]
            if not candidates:
                raise errors.no_such_path()
            found = self._by_plural[plural] = min(candidates, key=lambda known: known.group)
        return found

    def _collection(self, plural: str) -> StoredCollection:
        return self._registry.collection(self._resource(plural))


class LocalWatcher:
    """Asynchronous iterator of batches of changes to resources, in their order.

    The first batch has the existing objects; it comes also if there are none, so that a state can be waited for that
    the resources have already.
    """

    def __init__(self, collection_of: Callable[[str], StoredCollection], plurals: Iterable[str]) -> None:
        self._collection_of = collection_of
        self._collections: dict[str, StoredCollection] = {}
        self._positions: dict[str, int] = {}
        self._existing: list[Change] = []
        self._wake = asyncio.Event()
        self._began = False
        self._closed = False
        for plural in plurals:
            self.add(plural)

    def add(self, plural: str) -> None:
        """Watch another resource too; its existing objects come in the next batch."""
        if plural in self._collections:
            return
        collection = self._collections[plural] = self._collection_of(plural)
        collection.subscribe(self._wake.set)
        self._positions[plural] = collection.end
        self._existing += [(plural, "ADDED", version.obj, None) for version in collection.versions()]
        self._wake.set()

    def close(self) -> None:
        """End the watch and its iteration. A second call has no effect."""
        if self._closed:
            return
        self._closed = True
        self._wake.set()
        for collection in self._collections.values():
            collection.unsubscribe(self._wake.set)

    def __aiter__(self) -> AsyncIterator[list[Change]]:
        return self._batches()

    async def _batches(self) -> AsyncIterator[list[Change]]:
        while not self._closed:
            self._wake.clear()
            batch = self._pending()
            if batch or not self._began:
                self._began = True
                yield batch
            else:
                await self._wake.wait()

    def _pending(self) -> list[Change]:
        events: list[tuple[int, str, StorageEvent]] = []
        for plural, collection in self._collections.items():
            new = collection.since(self._positions[plural])
            if new is None:
                raise errors.SandboxError(f"a watcher of {plural} fell behind by more than the history that is kept")
            self._positions[plural] += len(new)
            events += [(event.rv, plural, event) for event in new]
        if len(self._collections) > 1:
            events.sort(key=lambda item: item[0])
        existing, self._existing = self._existing, []
        return existing + [
            (plural, event.type, event.version.obj, event.before.obj if event.before else None)
            for _, plural, event in events
        ]
