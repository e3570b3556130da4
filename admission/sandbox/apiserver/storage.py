"""Where objects live: the current version of each, and for each resource the recent past that watches read.

Versions are immutable by convention. A write makes a new version that shares what it did not change, and
is serialised once, for all readers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import orjson

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from admission.sandbox.apiserver.objects import Object

# Versions that a resource keeps for watches; a watcher that falls further behind has to list again.
HISTORY = 10_000
# Where the versions of a fresh cluster begin: high enough that version 1 is in the past.
FIRST_REVISION = 100

EventType = Literal["ADDED", "MODIFIED", "DELETED"]


@dataclass(slots=True, eq=False)
class Version:
    """One state of one object: as it is shown to clients, and as it is stored where that differs."""

    obj: Object
    stored: Object
    rv: int
    _raw: bytes = b""

    def raw(self) -> bytes:
        """The JSON of the object, made at its first use."""
        if not self._raw:
            self._raw = orjson.dumps(self.obj)
        return self._raw

    def seen_as(self, obj: Object) -> Version:
        """The same version in another form."""
        return Version(obj, obj, self.rv)

    def under(self, rv: int) -> Version:
        """The same state under a later resourceVersion, as the last that some reader sees of the object."""
        obj = {**self.obj, "metadata": {**self.obj["metadata"], "resourceVersion": str(rv)}}
        return Version(obj, obj, rv)


@dataclass(slots=True, eq=False)
class Event:
    """A change. `version` is the state after it; of a deleted object, the last state under the deletion's version."""

    type: EventType
    rv: int
    namespace: str
    name: str
    version: Version
    before: Version | None

    def line(self) -> bytes:
        """The event as one line of a watch stream."""
        return b'{"type":"%s","object":%s}\n' % (self.type.encode(), self.version.raw())


@dataclass(eq=False)
class Collection:
    """All objects of one resource. `items` is keyed by namespace (empty for cluster-scoped objects), then name."""

    store: Store
    show: Callable[[Object], Object]
    items: dict[str, dict[str, Version]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    first: int = 0  # the position of events[0] since the beginning of time
    horizon: int = 0  # changes up to this version are no longer in `events`
    _wakes: list[Callable[[], None]] = field(default_factory=list)
    _listed: tuple[int, str | None, list[Version]] | None = None
    _controlled: dict[str, dict[tuple[str, str], None]] | None = None
    """By uid of what controls them: namespaces and names, once anybody has asked."""

    def get(self, namespace: str, name: str) -> Version | None:
        found = self.items.get(namespace)
        return found.get(name) if found else None

    def versions(self, namespace: str | None = None) -> Iterator[Version]:
        """The current versions in the order of their keys, of one namespace or of all."""
        return ordered(self.items, namespace)

    def controlled_by(self, uid: str) -> list[Version]:
        """The current versions of what an object of this uid controls, in the order of their keys."""
        if self._controlled is None:
            self._controlled = {}
            for version in self.versions():
                self._index(None, version)
        return [self.items[namespace][name] for namespace, name in sorted(self._controlled.get(uid, ()))]

    def _index(self, before: Version | None, now: Version | None) -> None:
        """An object has changed."""
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

    def count(self) -> int:
        return sum(len(names) for names in self.items.values())

    def put(self, obj: Object, before: Version | None) -> Version:
        """Store a new state of an object; its resourceVersion is set here, in the metadata that the caller owns."""
        rv = self.store.next_revision()
        metadata = obj["metadata"]
        metadata["resourceVersion"] = str(rv)
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        version = Version(self.show(obj), obj, rv)
        self.items.setdefault(namespace, {})[name] = version
        self._index(before, version)
        self._record(Event("MODIFIED" if before else "ADDED", rv, namespace, name, version, before))
        return version

    def remove(self, before: Version) -> Version:
        """Delete an object: the event carries its last state under a new resourceVersion."""
        rv = self.store.next_revision()
        version = before.under(rv)
        metadata = version.obj["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        names = self.items[namespace]
        del names[name]
        if not names:
            del self.items[namespace]
        self._index(before, None)
        self._record(Event("DELETED", rv, namespace, name, version, before))
        return version

    def versions_at(self, rv: int, namespace: str | None = None) -> list[Version] | None:
        """As `versions`, at an earlier version; None when the past does not reach back that far.

        The last answer is kept: whoever lists 100,000 objects in pages asks for it 200 times.
        """
        if rv < self.horizon:
            return None
        if self._listed is None or self._listed[:2] != (rv, namespace):
            self._listed = rv, namespace, list(ordered(self._snapshot(rv), namespace))
        return self._listed[2]

    def _snapshot(self, rv: int) -> dict[str, dict[str, Version]]:
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
        """Where a reader that knows everything up to `rv` goes on."""
        low, high = 0, len(self.events)
        while low < high:
            middle = (low + high) // 2
            if self.events[middle].rv <= rv:
                low = middle + 1
            else:
                high = middle
        return self.first + low

    def since(self, position: int) -> list[Event] | None:
        """What happened from a position on; None when a part of it was dropped."""
        if position < self.first:
            return None
        return self.events[position - self.first :]

    @property
    def end(self) -> int:
        """The position behind the latest event."""
        return self.first + len(self.events)

    def subscribe(self, wake: Callable[[], None]) -> None:
        """Have `wake` called after every change."""
        self._wakes.append(wake)

    def unsubscribe(self, wake: Callable[[], None]) -> None:
        self._wakes.remove(wake)

    def forget(self, keep: int) -> None:
        """Drop the past, but for the latest events."""
        drop = len(self.events) - keep
        if drop > 0:
            self.horizon = self.events[drop - 1].rv
            del self.events[:drop]
            self.first += drop
        if not keep:
            self.horizon = self.store.revision

    def _record(self, event: Event) -> None:
        self.events.append(event)
        if len(self.events) > 2 * HISTORY:
            self.forget(HISTORY)
        for wake in self._wakes:
            wake()


@dataclass(eq=False)
class Store:
    """All collections, under one increasing revision."""

    revision: int = FIRST_REVISION
    collections: dict[tuple[str, str], Collection] = field(default_factory=dict)

    def next_revision(self) -> int:
        self.revision += 1
        return self.revision

    def add(self, key: tuple[str, str], show: Callable[[Object], Object]) -> Collection:
        """A new, empty collection, whose history begins now."""
        collection = self.collections[key] = Collection(self, show, horizon=self.revision)
        return collection

    def compact(self, keep: int) -> None:
        """Forget the past of everything, but for the latest events of each resource."""
        for collection in self.collections.values():
            collection.forget(keep)


def _controller(version: Version | None) -> str:
    """The uid of what controls an object, empty if nothing does."""
    owners = version.obj["metadata"].get("ownerReferences") if version else None
    return next((owner["uid"] for owner in owners or () if owner.get("controller")), "")


def ordered(state: dict[str, dict[str, Version]], namespace: str | None) -> Iterator[Version]:
    """The versions of a state in the order of their keys, of one namespace or of all."""
    for space in sorted(state) if namespace is None else (namespace,):
        names = state.get(space)
        if names:
            for name in sorted(names):
                yield names[name]
