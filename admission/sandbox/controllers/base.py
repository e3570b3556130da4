"""What the pretend controllers have in common: a watch that marks keys dirty, and one loop that brings them up to date.

A controller is level-based: it keeps names in its indexes, reads the state itself from the API server at the moment
when it acts, and may be asked to look at a key once too often, never too seldom.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from contextlib import closing
from typing import TYPE_CHECKING, Generic, TypeVar

from admission.sandbox.apiserver.errors import ApiError

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.clock import Clock
    from admission.sandbox.local import Change, LocalClient

K = TypeVar("K", bound=tuple[str, ...] | str)

# Wall seconds that a controller may work before others get their turn of the event loop.
_SLICE = 0.002
# Sandbox seconds until a key is tried again that somebody else changed at the same time.
_RETRY = 0.1
# Sandbox seconds until a write is tried again that somebody's webhook denied.
_REFUSED_RETRY = 10.0

UNCHECKED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What reading an object raises that holds something else than it should."""

_log = logging.getLogger(__name__)


class Controller(Generic[K]):
    """One control loop. `K` is what names a piece of its work; two syncs never run at the same time."""

    plurals: tuple[str, ...]
    """The resources that it watches."""
    malformed: tuple[type[Exception], ...] = ()
    """What an object makes it raise whose form no schema has checked; `UNCHECKED` for custom resources."""

    def __init__(self, local: LocalClient, clock: Clock) -> None:
        self.local = local
        self.clock = clock
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, K]] = []
        self._turn = 0.0

    def observe(self, plural: str, change: str, obj: Object, before: Object | None) -> None:
        """Note a change (ADDED, MODIFIED or DELETED): keep the indexes, mark keys dirty. Must not wait."""
        raise NotImplementedError

    async def sync(self, key: K) -> None:
        """Drive what the key names towards its desired state; refused writes (ApiError) are tried again later."""
        raise NotImplementedError

    def dirty(self, key: K, delay: float = 0.0) -> None:
        """Have the key looked at in so many sandbox seconds; an earlier appointment stands.

        Never in the past: a key that makes itself dirty again must not keep the others waiting.
        """
        due = self.clock.now() + max(delay, 0.0)
        if self._due.get(key, due + 1) > due:
            self._due[key] = due
            heapq.heappush(self._heap, (due, key))

    async def remove(
        self, plural: str, obj: Object, *, grace: int | None = None, propagation: str | None = None
    ) -> None:
        """Delete this very object, if it is still there."""
        metadata = obj["metadata"]
        namespace, name, uid = metadata.get("namespace", ""), metadata["name"], metadata["uid"]
        try:
            await self.local.delete(plural, namespace, name, grace=grace, propagation=propagation, uid=uid)
        except ApiError as error:
            if error.code != 404:
                raise
        await self.breathe()

    async def breathe(self) -> None:
        """Let others run, if this controller has worked for long."""
        if time.monotonic() - self._turn > _SLICE:
            await asyncio.sleep(0)
            self._turn = time.monotonic()

    async def run(self) -> None:
        """Watch and work for ever. Whatever is raised beyond refused writes and `malformed` ends the controller."""
        self.watcher = self.local.watch(*self.plurals)
        with closing(self.watcher):
            batches = aiter(self.watcher)
            coming = asyncio.ensure_future(anext(batches))
            try:
                while True:
                    await asyncio.wait((coming,), timeout=self._pause())
                    if coming.done():
                        for plural, change, obj, before in coming.result():
                            self._notice(plural, change, obj, before)
                        coming = asyncio.ensure_future(anext(batches))
                    await self._work(coming)
            finally:
                coming.cancel()
                await asyncio.wait((coming,))

    def _notice(self, plural: str, change: str, obj: Object, before: Object | None) -> None:
        try:
            self.observe(plural, change, obj, before)
        except self.malformed as error:
            metadata = obj["metadata"]
            self._leave((metadata.get("namespace", ""), metadata["name"]), error)

    def _leave(self, key: object, error: Exception) -> None:
        """One object never stops the others, whatever its users wrote: it is left as it is until it changes."""
        _log.warning("%s cannot read %s, and leaves it until it changes: %r", type(self).__name__, key, error)

    def _pause(self) -> float | None:
        if not self._heap:
            return None
        return max(0.0, self._heap[0][0] - self.clock.now()) / self.clock.speed

    async def _work(self, coming: asyncio.Future[list[Change]]) -> None:
        """What is due, until more has happened: a watcher must not fall behind while webhooks keep writes waiting."""
        self._turn = time.monotonic()
        now = self.clock.now()
        while self._heap and self._heap[0][0] <= now and not coming.done():
            due, key = heapq.heappop(self._heap)
            if self._due.get(key) != due:
                continue  # superseded by an earlier appointment
            del self._due[key]
            try:
                await self.sync(key)
            except ApiError as error:
                self.dirty(key, self._retry_after(error))
            except self.malformed as error:
                self._leave(key, error)
            await self.breathe()

    def _retry_after(self, error: ApiError) -> float:
        """The pause that a refused write calls for. One object never stops the others, whatever its users wrote."""
        if error.code in (404, 409):
            return _RETRY
        _log.warning("%s was refused a write, and will try again: %s", type(self).__name__, error)
        return _REFUSED_RETRY


def controller_of(obj: Object) -> Object | None:
    """The owner reference that controls the object."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            found: Object = owner
            return found
    return None


def owner_reference(owner: Object) -> Object:
    """The reference by which an object says that this one controls it."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def condition(obj: Object, kind: str) -> Object | None:
    """The status condition of this type."""
    for entry in obj.get("status", {}).get("conditions") or ():
        if entry["type"] == kind:
            found: Object = entry
            return found
    return None


def is_ready(pod: Object) -> bool:
    """Whether the pod's Ready condition is True."""
    found = condition(pod, "Ready")
    return found is not None and found["status"] == "True"


def is_over(pod: Object) -> bool:
    """Whether the pod has ended, well or not."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def is_terminating(pod: Object) -> bool:
    """Whether the pod is being deleted and has not ended yet."""
    return "deletionTimestamp" in pod["metadata"] and not is_over(pod)
