"""What is in the cluster, known from the start of the process on: a follower that takes over need not list anything.

It is told to whoever decides, if anybody does. Objects that are not queued, or have ended, are not kept: one that is on
record and not among those kept is looked at singly.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from admission.cluster.informer import Informer
from admission.cluster.pulse import Pulse
from admission.controller.state.context import PATHS, Context
from admission.controller.state.inbox import ContextChanged, ObjectsChanged
from admission.controller.state.lag import WatchLag
from admission.controller.state.tracked import packed

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.cluster.client import Client, Object
    from admission.cluster.informer import Change
    from admission.controller.state.inbox import Inbox
    from admission.kinds.base import Kind


class Watching:
    """The informers of one kind and of what its workloads are computed from; they run once, as long as the process."""

    def __init__(self, client: Client, kind: Kind) -> None:
        self.context = Context()
        self._kind = kind
        self._objects = Informer(client, f"/apis/{kind.group}/{kind.version}/{kind.plural}")
        self._context_informers = {resource: Informer(client, path) for resource, path in PATHS.items()}
        self.pulse = Pulse(client)
        self.lag = WatchLag(self._objects)
        self._kept: dict[str, bytes] = {}
        """Packed, by uid: all that are queued and have not ended. While somebody decides, that is for him to know."""
        self._inbox: Inbox | None = None
        self._listeners: list[tuple[Callable[[list[Change]], None], Callable[[], None]]] = []

    def tell(self, objects: Callable[[list[Change]], None], namespaces: Callable[[], None]) -> None:
        """Call `objects` with all changes of objects of the kind, and `namespaces` after each of namespaces."""
        self._listeners.append((objects, namespaces))

    async def run(self) -> None:
        """Watch until cancelled; failures are waited out (see `failure`)."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.pulse.run(), name="pulse")
            for resource, informer in self._context_informers.items():
                group.create_task(self._follow_context(resource, informer), name=resource)
            group.create_task(self._follow_objects(), name=self._kind.plural)

    @property
    def objects_synced(self) -> asyncio.Event:
        """Set when the first list of objects is complete, and was taken by whoever decides."""
        return self._objects.synced

    async def context_synced(self) -> None:
        """Wait until all is known that workloads are computed from."""
        for informer in self._context_informers.values():
            await informer.synced.wait()

    def failure(self) -> str | None:
        """None if all is known and heard of; else the sentence that says why not."""
        if self.pulse.failure is not None:
            return self.pulse.failure
        informers = (*self._context_informers.values(), self._objects)
        for informer in informers:
            if informer.failure is not None:
                return str(informer.failure)
        if all(informer.synced.is_set() for informer in informers):
            return None
        return "the first lists from the API server are not complete yet"

    def informers(self) -> dict[str, bool]:
        """By resource: whether all of it is known and heard of."""
        informers = {**self._context_informers, self._kind.plural: self._objects}
        return {name: one.failure is None and one.synced.is_set() for name, one in informers.items()}

    def hand_over(self, inbox: Inbox) -> dict[str, bytes]:
        """All objects that are known, packed, by uid; from now on all that changes is put into `inbox`."""
        kept, self._kept, self._inbox = self._kept, {}, inbox
        return kept

    def take_back(self, objects: dict[str, bytes], inbox: Inbox) -> None:
        """Nobody decides any more: `objects` is what was known then, and `inbox` what was not yet taken from it."""
        self._kept, self._inbox = objects, None
        for message in inbox.take():
            if isinstance(message, ObjectsChanged):
                self._keep(message.changes)

    async def _follow_objects(self) -> None:
        async for batch in self._objects.batches():
            self.lag.heard(batch)
            for objects, _ in self._listeners:
                objects(batch)
            while (inbox := self._inbox) is not None:
                await inbox.offer(batch)
                if inbox is self._inbox:
                    break
            else:
                self._keep(batch)

    def _keep(self, batch: list[Change]) -> None:
        for change in batch:
            obj = change.object
            if change.type != "DELETED" and obj is not None and self._concerns_us(obj):
                self._kept[change.uid] = packed(obj)
            else:
                self._kept.pop(change.uid, None)

    def _concerns_us(self, obj: Object) -> bool:
        try:
            return bool(self._kind.queue_name(obj)) and self._kind.observe(obj).finished is None
        except Exception:  # noqa: BLE001  whoever leads then finds out what is wrong with it
            return True

    async def _follow_context(self, resource: str, informer: Informer) -> None:
        async for batch in informer.batches():
            for namespace in {self.context.see(resource, change) for change in batch}:
                if self._inbox is not None:
                    self._inbox.put(ContextChanged(namespace))
            if resource == "namespaces":
                for _, namespaces in self._listeners:
                    namespaces()
