"""In-memory storage: the current version of each object, and for each resource the recent events that watches read.

It is etcd and the watch cache in one. Versions are immutable by convention: a write makes a new version, which
shares unchanged parts with the old one and is serialised once for all readers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import orjson

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from admission.sandbox.apiserver.objects import Object

# Events that a resource keeps for watches; a watcher that falls further behind gets 410 Gone and has to list again.
HISTORY = 10_000
# Revision of a new cluster; above 1, so that a client with resourceVersion 1 gets 410 Gone from the start.
FIRST_REVISION = 100

EventType = Literal["ADDED", "MODIFIED", "DELETED"]


@dataclass(slots=True, eq=False)
class ObjectVersion:
    """One state of one object: `obj` as clients read it, `stored` as it is stored (usually the same)."""

    obj: Object
    stored: Object
    rv: int
    _raw: bytes = b""

    def raw(self) -> bytes:
        """Return the JSON of the object, serialised at first use."""
        if not self._raw:
            self._raw = orjson.dumps(self.obj)
        return self._raw

    def with_object(self, obj: Object) -> ObjectVersion:
        """Return this version with another representation of the object."""
        return ObjectVersion(obj, obj, self.rv)

    def at_revision(self, rv: int) -> ObjectVersion:
        """Return this state under a later resourceVersion, for the last event that a watcher receives of the object."""
        obj = {**self.obj, "metadata": {**self.obj["metadata"], "resourceVersion": str(rv)}}
        return ObjectVersion(obj, obj, rv)


@dataclass(slots=True, eq=False)
class StorageEvent:
    """A watch event. `version` is the state after it; after a deletion the last state, under the deletion's version."""

    type: EventType
    rv: int
    namespace: str
    name: str
    version: ObjectVersion
    before: ObjectVersion | None

    def line(self) -> bytes:
        """Return the event as one line of a watch stream."""
        return b'{"type":"%s","object":%s}\n' % (self.type.encode(), self.version.raw())


@dataclass(eq=False)
class StoredCollection:
    """All objects of one resource. `items` is keyed by namespace (empty for cluster-scoped objects), then name."""

    store: ObjectStorage
    decorate: Callable[[Object], Object]
    items: dict[str, dict[str, ObjectVersion]] = field(default_factory=dict)
    events: list[StorageEvent] = field(default_factory=list)
    first: int = 0  # position of events[0]; positions count all events since the collection exists
    compacted_revision: int = 0  # compacted revision: events up to it are no longer in `events`
    _subscribers: list[Callable[[], None]] = field(default_factory=list)
    _last_listing: tuple[int, str | None, list[ObjectVersion]] | None = None
    _controlled: dict[str, dict[tuple[str, str], None]] | None = None
    """Uid of a controller to `(namespace, name)` of the objects it controls; built by the first `controlled_by`."""

    def get(self, namespace: str, name: str) -> ObjectVersion | None:
        found = self.items.get(namespace)
        return found.get(name) if found else None

    def versions(self, namespace: str | None = None) -> Iterator[ObjectVersion]:
        """Yield the current versions of one namespace or of all, ordered by namespace and name."""
        return ordered(self.items, namespace)

    def controlled_by(self, uid: str) -> list[ObjectVersion]:
        """Return the current versions of the objects controlled by this uid, ordered by namespace and name."""
        if self._controlled is None:
            self._controlled = {}
            for version in self.versions():
                self._index(None, version)
        return [self.items[namespace][name] for namespace, name in sorted(self._controlled.get(uid, ()))]

    def _index(self, before: ObjectVersion | None, now: ObjectVersion | None) -> None:
        """Update the index by controller after a write; None stands for an object that does not exist."""
        if self._controlled is None:
            return
        old, new = _controller(before), _controller(now)
        if old == new:
            return
        metadata = (before or now).obj["metadata"]  # type: ignore[union-attr]
        key = metadata.get("namespace", ""), metadata["name"]
        if old:
            del self._controlled[old][key]
            if not self._controlled[old]:
                del self._controlled[old]
        if new:
            self._controlled.setdefault(new, {})[key] = None

    def put(self, obj: Object, before: ObjectVersion | None) -> ObjectVersion:
        """Store a new state of an object; sets the resourceVersion in its metadata, which the caller must own."""
        rv = self.store.next_revision()
        metadata = obj["metadata"]
        metadata["resourceVersion"] = str(rv)
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        version = ObjectVersion(self.decorate(obj), obj, rv)
        self.items.setdefault(namespace, {})[name] = version
        self._index(before, version)
        self._record(StorageEvent("MODIFIED" if before else "ADDED", rv, namespace, name, version, before))
        return version

    def remove(self, before: ObjectVersion) -> ObjectVersion:
        """Delete an object; its DELETED event has the last state under a new resourceVersion."""
        rv = self.store.next_revision()
        version = before.at_revision(rv)
        metadata = version.obj["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        names = self.items[namespace]
        del names[name]
        if not names:
            del self.items[namespace]
        self._index(before, None)
        self._record(StorageEvent("DELETED", rv, namespace, name, version, before))
        return version

    def versions_at(self, rv: int, namespace: str | None = None) -> list[ObjectVersion] | None:
        """Return the versions as of an earlier resourceVersion; None if that is compacted.

        The last result is cached: a client that lists 100,000 objects in pages of 500 requests it 200 times.
        """
        if rv < self.compacted_revision:
            return None
        if self._last_listing is None or self._last_listing[:2] != (rv, namespace):
            self._last_listing = rv, namespace, list(ordered(self._snapshot(rv), namespace))
        return self._last_listing[2]

    def _snapshot(self, rv: int) -> dict[str, dict[str, ObjectVersion]]:
        state = {namespace: dict(names) for namespace, names in self.items.items()}
        for event in reversed(self.events):
            if event.rv <= rv:
                break
            if event.before is None:
                del state[event.namespace][event.name]
            else:
                state.setdefault(event.namespace, {})[event.name] = event.before
        return state

    def position(self, rv: int) -> int:
        """Return the position of the first event after resourceVersion `rv`."""
        low, high = 0, len(self.events)
        while low < high:
            middle = (low + high) // 2
            if self.events[middle].rv <= rv:
                low = middle + 1
            else:
                high = middle
        return self.first + low

    def since(self, position: int) -> list[StorageEvent] | None:
        """Return the events from a position on; None if some of them are compacted."""
        if position < self.first:
            return None
        return self.events[position - self.first :]

    @property
    def end(self) -> int:
        """Position after the latest event."""
        return self.first + len(self.events)

    def subscribe(self, wake: Callable[[], None]) -> None:
        """Call `wake` after every write, until `unsubscribe`."""
        self._subscribers.append(wake)

    def unsubscribe(self, wake: Callable[[], None]) -> None:
        self._subscribers.remove(wake)

    def compact(self, keep: int) -> None:
        """Drop all but the latest `keep` events; with 0 also every resourceVersion before the current one expires."""
        drop = len(self.events) - keep
        if drop > 0:
            self.compacted_revision = self.events[drop - 1].rv
            del self.events[:drop]
            self.first += drop
        if not keep:
            self.compacted_revision = self.store.revision

    def _record(self, event: StorageEvent) -> None:
        self.events.append(event)
        if len(self.events) > 2 * HISTORY:
            self.compact(HISTORY)
        for wake in self._subscribers:
            wake()


@dataclass(eq=False)
class ObjectStorage:
    """All collections, `(group, plural)` to Collection, with one revision counter that every write increments."""

    revision: int = FIRST_REVISION
    collections: dict[tuple[str, str], StoredCollection] = field(default_factory=dict)

    def next_revision(self) -> int:
        self.revision += 1
        return self.revision

    def add(self, key: tuple[str, str], decorate: Callable[[Object], Object]) -> StoredCollection:
        """Add an empty collection; resourceVersions before the current one are expired in it."""
        collection = self.collections[key] = StoredCollection(self, decorate, compacted_revision=self.revision)
        return collection

    def compact(self, keep: int) -> None:
        """Drop all but the latest `keep` events of each resource, as a compaction of etcd does."""
        for collection in self.collections.values():
            collection.compact(keep)


def _controller(version: ObjectVersion | None) -> str:
    """Return the uid of an object's controller (`ownerReferences`), empty if it has none."""
    owners = version.obj["metadata"].get("ownerReferences") if version else None
    return next((owner["uid"] for owner in owners or () if owner.get("controller")), "")


def ordered(state: dict[str, dict[str, ObjectVersion]], namespace: str | None) -> Iterator[ObjectVersion]:
    """Yield the versions of one namespace or of all, ordered by namespace and name."""
    for space in sorted(state) if namespace is None else (namespace,):
        names = state.get(space)
        if names:
            for name in sorted(names):
                yield names[name]
