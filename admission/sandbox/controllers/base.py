"""Base of the simulated controllers: a watch that enqueues keys, and one loop that reconciles them.

A controller is level-based: its indexes hold names only, it reads the state from the API server when it reconciles a
key, and an extra reconciliation of a key does no harm, whereas a missing one would.
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

# Seconds of real time that a controller may work before it yields to the event loop.
_SLICE = 0.002
# Sandbox seconds until a key is retried after a conflict with another writer (404, 409).
_RETRY = 0.1
# Sandbox seconds until a write that was denied, for example by a webhook, is retried.
_DENIED_RETRY = 10.0
# Sandbox seconds until a key is retried after an unexpected exception: doubled for each further one, up to a limit.
_FIRST_BACKOFF, _LONGEST_BACKOFF = 1.0, 1000.0

PARSE_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Exceptions raised by reading an object with missing fields or values of a wrong type."""

log = logging.getLogger(__name__)


class SimulatedController(Generic[K]):
    """A control loop with a queue of keys of type `K`; two `sync` calls never run concurrently."""

    plurals: tuple[str, ...]
    """Plurals of the resources that it watches."""
    malformed: tuple[type[Exception], ...] = ()
    """Exceptions caused by objects that no schema has validated: `PARSE_ERRORS` in controllers of custom resources."""

    def __init__(self, local: LocalClient, clock: Clock) -> None:
        self.local = local
        self.clock = clock
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, K]] = []
        self._delays: dict[K, float] = {}  # key whose last sync failed -> seconds until its retry
        self._slice_started = 0.0

    def observe(self, plural: str, change: str, obj: Object, before: Object | None) -> None:
        """Process a watch event (`change`: ADDED, MODIFIED, DELETED): update indexes, enqueue keys. Must not block."""
        raise NotImplementedError

    async def sync(self, key: K) -> None:
        """Reconcile the object that the key names; after an ApiError the key is retried later."""
        raise NotImplementedError

    def enqueue(self, key: K, delay: float = 0.0) -> None:
        """Reconcile the key after `delay` sandbox seconds, unless it is already due earlier.

        The due time is never in the past: a key that enqueues itself again must not starve the others.
        """
        due = self.clock.now() + max(delay, 0.0)
        if self._due.get(key, due + 1) > due:
            self._due[key] = due
            heapq.heappush(self._heap, (due, key))

    async def remove(
        self, plural: str, obj: Object, *, grace: int | None = None, propagation: str | None = None
    ) -> None:
        """Delete the object with this uid, if it still exists."""
        metadata = obj["metadata"]
        namespace, name, uid = metadata.get("namespace", ""), metadata["name"], metadata["uid"]
        try:
            await self.local.delete(plural, namespace, name, grace=grace, propagation=propagation, uid=uid)
        except ApiError as error:
            if error.code != 404:
                raise
        await self.yield_to_loop()

    async def yield_to_loop(self) -> None:
        """Yield to the event loop, if this controller has worked for longer than _SLICE."""
        if time.monotonic() - self._slice_started > _SLICE:
            await asyncio.sleep(0)
            self._slice_started = time.monotonic()

    async def run(self) -> None:
        """Watch and reconcile until cancelled.

        An exception for one object is logged, and never ends the controller; its key is retried with backoff.
        """
        self.watcher = self.local.watch(*self.plurals)
        with closing(self.watcher):
            batches = aiter(self.watcher)
            next_batch = asyncio.ensure_future(anext(batches))
            try:
                while True:
                    await asyncio.wait((next_batch,), timeout=self._timeout())
                    if next_batch.done():
                        for plural, change, obj, before in next_batch.result():
                            self._dispatch(plural, change, obj, before)
                        next_batch = asyncio.ensure_future(anext(batches))
                    await self._process_due(next_batch)
            finally:
                next_batch.cancel()
                await asyncio.wait((next_batch,))

    def _dispatch(self, plural: str, change: str, obj: Object, before: Object | None) -> None:
        try:
            self.observe(plural, change, obj, before)
        except self.malformed as error:
            metadata = obj["metadata"]
            self._log_malformed((metadata.get("namespace", ""), metadata["name"]), error)
        except Exception:  # must not end the controller: it would stop all other objects
            key = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
            log.exception("%s could not process %s of %s %s", type(self).__name__, change, plural, key)

    def _log_malformed(self, key: object, error: Exception) -> None:
        """Log that an object is malformed. It is not retried before it changes, and never stops the other objects."""
        log.warning("%s cannot read %s, and ignores it until it changes: %r", type(self).__name__, key, error)

    def _timeout(self) -> float | None:
        if not self._heap:
            return None
        return max(0.0, self._heap[0][0] - self.clock.now()) / self.clock.speed

    async def _process_due(self, next_batch: asyncio.Future[list[Change]]) -> None:
        """Reconcile the due keys, until there are further watch events.

        These come first, so that the watcher does not fall behind while webhooks delay writes.
        """
        self._slice_started = time.monotonic()
        now = self.clock.now()
        while self._heap and self._heap[0][0] <= now and not next_batch.done():
            due, key = heapq.heappop(self._heap)
            if self._due.get(key) != due:
                continue  # superseded by an earlier due time
            del self._due[key]
            try:
                await self.sync(key)
            except ApiError as error:
                self.enqueue(key, self._retry_after(error))
            except self.malformed as error:
                self._log_malformed(key, error)
            except Exception:  # must not end the controller, either
                backoff = self._delays[key] = min(2 * self._delays.get(key, _FIRST_BACKOFF / 2), _LONGEST_BACKOFF)
                log.exception("%s could not reconcile %s, and will retry in %g s", type(self).__name__, key, backoff)
                self.enqueue(key, backoff)
            else:
                self._delays.pop(key, None)
            await self.yield_to_loop()

    def _retry_after(self, error: ApiError) -> float:
        """Return the delay before the retry of a rejected write; the other keys are reconciled meanwhile."""
        if error.code in (404, 409):
            return _RETRY
        log.warning("%s could not write, and will retry: %s", type(self).__name__, error)
        return _DENIED_RETRY


def controller_of(obj: Object) -> Object | None:
    """Return the owner reference of the object's controller."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            found: Object = owner
            return found
    return None


def owner_reference(owner: Object) -> Object:
    """Return the owner reference that makes `owner` an object's controller."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def condition(obj: Object, kind: str) -> Object | None:
    """Return the status condition of this type."""
    for entry in obj.get("status", {}).get("conditions") or ():
        if entry["type"] == kind:
            found: Object = entry
            return found
    return None


def is_ready(pod: Object) -> bool:
    """Return whether the pod's condition Ready is True."""
    found = condition(pod, "Ready")
    return found is not None and found["status"] == "True"


def is_over(pod: Object) -> bool:
    """Return whether the pod is Succeeded or Failed."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def is_terminating(pod: Object) -> bool:
    """Return whether the pod is being deleted and has not finished yet."""
    return "deletionTimestamp" in pod["metadata"] and not is_over(pod)
