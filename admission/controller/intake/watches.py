"""Informers of a replica: they run for the lifetime of the process, so that a takeover needs no lists.

While a leader decides, changes go to its inbox; otherwise the queued, unfinished objects are stored here for the next
leader. A stored workload whose object is not among them is read by a request of its own.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import aclosing
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from prometheus_client import Histogram

from admission.cluster.api_server_probe import ApiServerProbe
from admission.cluster.errors import Forbidden, NotFound, ServerError
from admission.cluster.informer import Informer
from admission.controller.intake.served import served_versions, watched
from admission.controller.state.context import PATHS, Context
from admission.controller.state.inbox import ContextChanged, DevicesChanged, KindListed, ObjectsChanged
from admission.controller.state.tracked import StoredObject, packed
from admission.kinds.children import claimed_owner, rendered_owner
from admission.kinds.devices import RESOURCES, SLICES, Inventory
from admission.kinds.grouped import belongs_to_groups
from admission.model.devices import DeviceRules
from admission.model.errors import ClusterError
from admission.serving.metrics import LATENCY_BUCKETS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
    from typing import Any, NoReturn

    from admission.cluster.client import Client, Object
    from admission.cluster.informer import WatchedChange
    from admission.controller.state.faults import Faults
    from admission.controller.state.inbox import Inbox, Message
    from admission.kinds.base import Kind
    from admission.kinds.devices import Claimed
    from admission.kinds.registry import Kinds

log = logging.getLogger(__name__)

DISCOVERY_INTERVAL = 10.0
"""Seconds between two discoveries of the custom resources that the API server serves."""

MAX_LIST_WAIT = 30.0
"""Seconds that a start waits for custom resources that cannot be listed, as while an API server starts up."""

Listener: TypeAlias = "Callable[[Kind, WatchedChange], None]"


class ClusterWatches:
    """The informers of all kinds, and of the objects that requests and priorities are computed from (`Context`).

    A custom resource is watched as long as the API server serves it.
    """

    def __init__(self, client: Client, kinds: Kinds, faults: Faults, devices: DeviceRules | None = None) -> None:
        """`faults`: receives exceptions of listeners. `devices`: which devices count; None: none."""
        self.probe = ApiServerProbe(client)
        self.devices = DeviceWatches(client, devices or DeviceRules(), put=self._put, sleep=self.probe.pause)
        self.context = Context(self.devices.inventory)
        self.kinds = kinds
        self._client = client
        self._faults = faults
        self._custom = [*(kind for kind in kinds if kind.is_custom), *kinds.sizes.values()]
        for kind in self._custom:
            kinds.withdraw(kind)  # until discovery finds them
        self._objects = {kind: self._informer(kind) for kind in kinds if not kind.is_custom}
        """Informers of the kinds that are watched now."""
        self._tasks: dict[Kind, asyncio.Task[None]] = {}
        self._context_informers = {
            resource: Informer(client, path, sleep=self.probe.pause) for resource, path in PATHS.items()
        }
        self.lag = WatchLag(kinds, self._objects)
        self.discovery_interval, self.max_list_wait = DISCOVERY_INTERVAL, MAX_LIST_WAIT
        self._undiscovered: ClusterError | str | None = "the API server was not yet asked for its resources"
        """Why the served custom resources are unknown; None: the last discovery succeeded."""
        self.objects_synced = asyncio.Event()
        """Set when the first lists of all kinds are complete and were passed on."""
        self._stored: dict[str, StoredObject] = {}
        """Queued, unfinished objects by uid. Empty while a leader decides, which then has them."""
        self._inbox: Inbox | None = None
        self._listeners: list[tuple[Listener, Callable[[], None]]] = []

    def add_listener(self, objects: Listener, namespaces: Callable[[], None]) -> None:
        """Add listeners: `objects` is called with each change, `namespaces` after a change of namespaces.

        An exception of `objects` is reported; the change then has no effect on that listener.
        """
        self._listeners.append((objects, namespaces))

    async def run(self) -> None:
        """Watch until cancelled; failures are waited out (see `failure`)."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.probe.run(), name="API server probe")
            for resource, informer in self._context_informers.items():
                group.create_task(self._follow_context(resource, informer), name=resource)
            for task in self.devices.tasks():
                group.create_task(task, name="devices")
            for kind, informer in self._objects.items():
                self._tasks[kind] = group.create_task(self._follow(kind, informer), name=kind.plural)
            if self._custom:
                group.create_task(self._discover(group), name="discovery")

    async def context_synced(self) -> None:
        """Wait for the first lists of the objects that requests and priorities are computed from."""
        for informer in self._context_informers.values():
            await informer.synced.wait()
        await self.devices.settled()

    def failure(self) -> str | None:
        """Return why the watches are incomplete or interrupted, as a message; None: they are neither."""
        if self.probe.failure is not None:
            return self.probe.failure
        informers = (*self._context_informers.values(), *self._objects.values())
        for informer in informers:
            if informer.failure is not None and not self._is_dispensable(informer):
                return str(informer.failure)
        if self._custom and self._undiscovered is not None and not self.objects_synced.is_set():
            return str(self._undiscovered)
        if all(informer.synced.is_set() or self._is_dispensable(informer) for informer in informers):
            return None
        return "the first lists from the API server are not complete yet"

    def informers(self) -> dict[str, bool]:
        """Return by resource whether its list is complete and its watch works."""
        informers = {**self._context_informers, **self.devices.informers}
        for kind in sorted(self._objects, key=lambda kind: kind.is_custom):
            # Batch and Volcano both have `jobs`: the custom resource is listed with its group.
            name = f"{kind.plural}.{kind.group}" if kind.plural in informers else kind.plural
            informers[name] = self._objects[kind]
        return {name: one.failure is None and one.synced.is_set() for name, one in informers.items()}

    def may_have(self, kind: Kind, key: str, uid: str) -> bool:
        """Whether an object of this kind, key (`namespace/name`) and uid exists, or that is not known."""
        informer = next((one for each, one in self._objects.items() if _name(each) == _name(kind)), None)
        if informer is None or not informer.synced.is_set():
            return True
        return informer.uid_of(key) == uid

    def unlisted(self) -> frozenset[Kind]:
        """Return the kinds that Sluice is not permitted to list, or that the API server fails to list."""
        return frozenset(kind for kind, informer in self._objects.items() if self._cannot_list(kind, informer))

    def _cannot_list(self, kind: Kind, informer: Informer) -> bool:
        """Whether a kind is excluded, e.g. because its conversion webhook fails: other kinds must not wait for that."""
        fails = kind.is_custom and isinstance(informer.failure, ServerError) and informer.failing > self.max_list_wait
        return fails or isinstance(informer.failure, Forbidden)

    def hand_over(self, inbox: Inbox) -> dict[str, StoredObject]:
        """Return all stored objects by uid; further changes are put into `inbox`."""
        stored, self._stored, self._inbox = self._stored, {}, inbox
        return stored

    def take_back(self, objects: dict[str, StoredObject], inbox: Inbox) -> None:
        """Store objects again after a leader's end: `objects` it knew, and the changes that are left in `inbox`."""
        self._stored, self._inbox = objects, None
        for message in inbox.take():
            if isinstance(message, ObjectsChanged):
                self._store(message.kind, message.changes)

    def _put(self, message: Message) -> None:
        if self._inbox is not None:
            self._inbox.put(message)

    # --- discovery of custom resources

    async def _discover(self, group: asyncio.TaskGroup) -> NoReturn:
        """Start and stop informers as the API server starts and stops serving custom resources."""
        while True:
            try:
                served = await served_versions(self._client, self._custom)
            except ClusterError as error:
                self._undiscovered = error
            else:
                await self._adjust(served, group)
                self._undiscovered = None
                self._check_synced()
            await asyncio.sleep(self.discovery_interval)

    async def _adjust(self, served: dict[Kind, str], group: asyncio.TaskGroup) -> None:
        for kind in self._custom:
            informer, version = self._objects.get(kind), served.get(kind)
            if informer is not None and version is None and await self._is_absent(kind):
                log.info("the API server no longer serves %s", self._name(kind))
                await self._stop_following(kind)
                self.kinds.withdraw(kind)
                if deleted := informer.forget():
                    await self._deliver(kind, deleted)
                if self._inbox is not None:
                    self._inbox.put(KindListed(self.unlisted()))
            elif informer is not None and version not in (None, self._version(kind)):
                await self._stop_following(kind)  # the same objects are listed again in the other version
            if kind not in self._objects and version is not None:
                self.kinds.serve(kind, version)
                log.info("watching %s", self._name(kind))
                # Objects that are deleted between the watches of two versions are reported by the second informer.
                reported = {} if informer is None else informer.reported()
                informer = self._objects[kind] = self._informer(kind, reported)
                self._tasks[kind] = group.create_task(self._follow(kind, informer), name=kind.plural)

    def _informer(self, kind: Kind, reported: Mapping[str, str] = MappingProxyType({})) -> Informer:
        """Return an informer for a kind; its backoff ends as soon as the API server answers again.

        `reported`: objects that a former informer of the kind has reported (`Informer.reported`).
        """
        path, selector = self.kinds.path(kind), watched(kind)
        return Informer(self._client, path, label_selector=selector, reported=reported, sleep=self.probe.pause)

    async def _is_absent(self, kind: Kind) -> bool:
        """Return whether the API server answers 404; while it starts, it may not announce a resource, but says 503."""
        try:
            await self._client.get(self.kinds.path(kind), params={"limit": "1"})
        except NotFound:
            return True
        except ClusterError as error:
            log.warning("cannot determine whether the API server still serves %s: %s", self._name(kind), error)
        return False

    async def _stop_following(self, kind: Kind) -> None:
        """End a kind's watch, and wait until the changes that it has reported are delivered."""
        task = self._tasks.pop(kind)
        task.cancel()
        await asyncio.wait([task])
        del self._objects[kind]

    def _version(self, kind: Kind) -> str:
        return self.kinds.api_version(kind).rpartition("/")[2]

    def _name(self, kind: Kind) -> str:
        return f"{kind.plural}.{self._version(kind)}.{kind.group}"

    def _is_dispensable(self, informer: Informer) -> bool:
        """Whether to go on without an informer: its kind is absent, forbidden, or not listable for long.

        Nothing is decided about objects of that kind then; all others are decided as usual. Objects that only give the
        size of other systems' groups are dispensable at any failure: their groups wait. Jobs are not dispensable.
        """
        kind = next((each for each, one in self._objects.items() if one is informer), None)
        if kind is None or informer.failure is None or (kind.group, kind.kind) == ("batch", "Job"):
            return False
        is_dispensable = (kind.group, kind.kind) in self.kinds.sizes or isinstance(informer.failure, NotFound)
        return is_dispensable or self._cannot_list(kind, informer)

    def _check_synced(self) -> None:
        if self.objects_synced.is_set():
            return
        known = not self._custom or self._undiscovered is None
        if known and all(
            informer.synced.is_set() or self._is_dispensable(informer) for informer in self._objects.values()
        ):
            self.objects_synced.set()
            if self._inbox is not None:
                self._inbox.wake()  # a new leader waits for the lists

    # --- changes of objects

    async def _follow(self, kind: Kind, informer: Informer) -> None:
        waiting = asyncio.create_task(self._wait_for_list(informer))
        try:
            async with aclosing(informer.batches()) as batches:
                async for batch in batches:
                    await self._deliver(kind, batch)
        finally:
            waiting.cancel()

    async def _wait_for_list(self, informer: Informer) -> None:
        await informer.synced.wait()
        if self.objects_synced.is_set() and self._inbox is not None:
            self._inbox.put(KindListed(self.unlisted()))
        self._check_synced()

    async def _deliver(self, kind: Kind, batch: list[WatchedChange]) -> None:
        self.lag.changes_delivered(kind, batch)
        for objects, _ in self._listeners:
            for change in batch:
                try:
                    objects(kind, change)
                except Exception as error:  # noqa: BLE001  a faulty object must not end the watch of all others
                    self._faults.report(f"{kind.kind} {change.key}", error)
        try:
            while (inbox := self._inbox) is not None:
                await inbox.offer(kind, batch)
                if inbox is self._inbox:
                    return
            self._store(kind, batch)
        except asyncio.CancelledError:  # the informer will not report these changes again
            if self._inbox is None:
                self._store(kind, batch)
            else:
                self._inbox.put(ObjectsChanged(kind, batch))
            raise

    def _store(self, kind: Kind, batch: list[WatchedChange]) -> None:
        for change in batch:
            obj = change.object
            if change.type != "DELETED" and obj is not None and self._is_relevant(kind, obj):
                self._stored[change.uid] = StoredObject(kind, packed(obj))
            else:
                self._stored.pop(change.uid, None)

    async def _follow_context(self, resource: str, informer: Informer) -> None:
        async with aclosing(informer.batches()) as batches:
            async for batch in batches:
                for namespace in {self.context.update(resource, change) for change in batch}:
                    if self._inbox is not None:
                        self._inbox.put(ContextChanged(namespace))
                if resource == "namespaces":
                    for _, namespaces in self._listeners:
                        namespaces()

    def _is_relevant(self, kind: Kind, obj: Object) -> bool:
        try:
            if kind.grouping is not None:
                return kind.grouping.has_grouped_pods(obj)
            # Finished pods of a group count for its total.
            if kind.queue_name(obj) and (kind.observe(obj).finished is None or belongs_to_groups(kind, obj)):
                return True
            claimed = claimed_owner(kind, obj, self.kinds)
            return claimed is not None and rendered_owner(kind, obj, claimed) != ""
        except Exception:  # noqa: BLE001  the leader then processes the object, and reports the error
            return True


def _name(kind: Kind) -> tuple[str, str]:
    return kind.group, kind.kind


GROUP: Final = "resource.k8s.io"
PATH: Final = f"/apis/{GROUP}/v1/"
_PAUSE: Final = 0.2
"""Seconds between two times at which workloads are read again at most: who changes claims quickly delays only these."""
_PAUSE_OF_SLICES: Final = 5.0
"""The same for ResourceSlices, which drivers of many nodes write one after the other."""

_REFILL: Final = 1.0
"""Seconds in which users may have `Inventory` evaluate expressions for a quarter of a second."""


class DeviceWatches:
    """Informers of what ResourceClaims request: DeviceClasses, slices, templates and claims of `resource.k8s.io/v1`.

    They run only if a DeviceClass has a quota. While one of them fails, workloads that depend on it wait, and no
    others. `put` passes on what has changed, `sleep` waits for a retry.
    """

    def __init__(
        self,
        client: Client,
        rules: DeviceRules,
        *,
        put: Callable[[Message], None],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self.inventory = Inventory(rules, self._unread)
        watched = RESOURCES if self.inventory.is_on else ()
        self.informers = {
            plural: Informer(client, f"{PATH}{plural}", sleep=partial(self._pause, plural=plural)) for plural in watched
        }
        """By plural; none if no device counts."""
        self._put = put
        self._sleep = sleep
        self._answered = {plural: asyncio.Event() for plural in self.informers}
        """Set when the first list is complete, or has failed."""

    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        """Return what is to be run until cancelled."""
        for plural, informer in self.informers.items():
            yield self._follow(plural, informer)
            yield self._wait_for_list(plural, informer)
        if self.informers:
            yield self._refill()

    async def settled(self) -> None:
        """Wait until each list is complete, or has failed: workloads with devices then wait, and others do not."""
        for answered in self._answered.values():
            await answered.wait()

    def _unread(self, plural: str) -> str:
        """Return why objects of a resource cannot be read now; empty: they can."""
        informer = self.informers[plural]
        match informer.failure:
            case None:
                return "" if informer.synced.is_set() else "the first list from the API server is not complete yet"
            case Forbidden():
                return f"Sluice is not permitted to list and watch {plural}.{GROUP}"
            case NotFound():
                return f"the API server does not serve {plural} of {GROUP}/v1, which Kubernetes has since 1.34"
            case failure:
                return str(failure)

    async def _follow(self, plural: str, informer: Informer) -> None:
        async with aclosing(informer.batches()) as batches:
            async for batch in batches:
                claims: set[Claimed] = set()
                everything = False
                for change in batch:
                    found = self.inventory.update(
                        plural, change.key, change.object if change.type != "DELETED" else None
                    )
                    claims |= found.claims
                    everything = everything or found.everything
                if everything:
                    self._put(DevicesChanged())
                elif claims:
                    self._put(DevicesChanged(frozenset(claims)))
                if (everything or claims) and informer.synced.is_set():
                    await asyncio.sleep(_PAUSE_OF_SLICES if plural == SLICES else _PAUSE)

    async def _wait_for_list(self, plural: str, informer: Informer) -> None:
        await informer.synced.wait()
        self._answered[plural].set()
        self._put(DevicesChanged())  # workloads may wait because it could not be read

    async def _refill(self) -> NoReturn:
        while True:
            await asyncio.sleep(_REFILL)
            if self.inventory.refill():
                self._put(DevicesChanged())

    async def _pause(self, seconds: float, *, plural: str) -> None:
        """Sleep before an informer tries again. Workloads that need it are told of its first failure."""
        if self.informers[plural].failure is not None and not self._answered[plural].is_set():
            self._answered[plural].set()
            self._put(DevicesChanged())
        await self._sleep(seconds)


_MAX_AWAITED: Final = 1000
"""Patches whose watch events are awaited at the same time; further ones are not measured, which bounds the memory."""


class WatchLag:
    """Histogram of the watch lag, measured on the objects that Sluice patches, as watch events carry no timestamp."""

    def __init__(self, kinds: Kinds, informers: Mapping[Kind, Informer]) -> None:
        """`informers`: the running informers by kind, which may change."""
        self.histogram = Histogram(
            "sluice_informer_lag_seconds",
            "Time from the API server's answer to a patch until the watch delivers the change.",
            registry=None,
            buckets=LATENCY_BUCKETS,
        )
        self._kinds = kinds
        self._informers = informers
        self._awaited: dict[tuple[Kind, str], tuple[str, float]] = {}
        """resourceVersion in the response and time of the response, by kind and key (`namespace/name`)."""

    def patched(self, obj: Object) -> None:
        """Note the object with which the API server has answered a patch."""
        metadata = obj["metadata"]
        key, version = f"{metadata['namespace']}/{metadata['name']}", metadata["resourceVersion"]
        kind = self._kinds.get(obj["apiVersion"].rpartition("/")[0], obj["kind"])
        if kind is None or kind not in self._informers:
            return
        if self._informers[kind].has_seen(key, version):
            self.histogram.observe(0.0)
        elif len(self._awaited) < _MAX_AWAITED:
            self._awaited[kind, key] = version, time.monotonic()

    def changes_delivered(self, kind: Kind, changes: list[WatchedChange]) -> None:
        """Process changes that the watch of a kind has delivered."""
        informer = self._informers.get(kind)
        if not self._awaited or informer is None:
            return
        for change in changes:
            awaited = self._awaited.get((kind, change.key))
            if awaited is not None and informer.has_seen(change.key, awaited[0]):
                del self._awaited[kind, change.key]
                self.histogram.observe(time.monotonic() - awaited[1])
            elif change.type == "DELETED":
                self._awaited.pop((kind, change.key), None)
