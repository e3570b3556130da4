"""Assignment of the default queue to objects without a queue label in managed namespaces.

The webhook does this when objects are created. This module does it for objects that existed before their namespace was
managed, or that were created while no webhook was running. Running objects are stopped once they are queued, so their
names are logged before.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from admission.cluster.errors import Conflict, NotFound
from admission.cluster.events import ObjectReference
from admission.cluster.writer import Patch
from admission.kinds.added_labels import ADDED_LABELS, annotation_value
from admission.kinds.base import DEFAULT_QUEUE
from admission.kinds.children import controller_of
from admission.kinds.declared import workload_of
from admission.model.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from admission.cluster.client import Object
    from admission.cluster.events import EventRecorder
    from admission.cluster.informer import WatchedChange
    from admission.cluster.writer import Writer
    from admission.controller.intake.watches import ClusterWatches
    from admission.kinds.base import Kind
    from admission.model.base import LabelSelector

log = logging.getLogger(__name__)

_RETRY_DELAY: Final = 2.0
"""Seconds between two attempts, and between two checks whether this replica is the leader."""
_MAX_LOGGED: Final = 20
"""Running objects that are logged by name, at most."""


@dataclass(frozen=True, slots=True)
class _Unqueued:
    """An unfinished object without a queue."""

    kind: Kind
    uid: str
    namespace: str
    name: str
    resource_version: str
    running: bool
    workloads: tuple[str, ...]
    """Uids of the workloads that its pod templates name."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class UnqueuedObjects:
    """Adds the label of the default queue to unqueued objects in managed namespaces, while this replica `leads`."""

    def __init__(
        self,
        writer: Writer,
        watches: ClusterWatches,
        events: EventRecorder,
        *,
        namespaces: LabelSelector,
        leads: Callable[[], bool],
        is_held: Callable[[str], bool],
    ) -> None:
        """`namespaces`: selects the managed namespaces.

        `is_held`: whether the workload of a uid holds quota although its kind is not queued any more: what belongs to
        it, by the label of its pods, runs with that quota.
        """
        self._is_held = is_held
        self._writer = writer
        self._watches = watches
        self._events = events
        self._namespaces = namespaces
        self._leads = leads
        self._known: dict[str, _Unqueued] = {}
        """Unqueued objects of all namespaces, by uid: the labels of a namespace may change, so that it is managed."""
        self._logged: set[str] = set()
        """Uids of the running objects of the last attempt, which are not logged again."""
        self._wakeup = asyncio.Event()
        watches.add_listener(self._seen, self._wakeup.set)

    async def run(self) -> NoReturn:
        """Queue objects until cancelled. Errors of the API server are logged, and the attempt is repeated."""
        await self._watches.context_synced()
        await self._watches.objects_synced.wait()
        self._wakeup.set()
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            found = [
                one
                for one in self._known.values()
                if self._is_managed(one.namespace) and not any(map(self._is_held, one.workloads))
            ]
            if not found:
                continue
            if not self._leads() or not await self._queue_all(found):
                await asyncio.sleep(_RETRY_DELAY)
                self._wakeup.set()

    def _seen(self, kind: Kind, change: WatchedChange) -> None:
        self._known.pop(change.uid, None)
        one = None if change.type == "DELETED" or change.object is None else _read(kind, change.object)
        if one is not None:
            self._known[change.uid] = one
            if self._is_managed(one.namespace):
                self._wakeup.set()

    def _is_managed(self, namespace: str) -> bool:
        labels = self._watches.context.namespace_labels(namespace)
        return labels is not None and self._namespaces.matches(labels)

    async def _queue_all(self, found: list[_Unqueued]) -> bool:
        """Add the queue label to the objects; return False if some have to be tried again.

        The informers then report them like any other queued object.
        """
        stopping = [one for one in found if one.running]
        running = [one.key for one in stopping if one.uid not in self._logged]
        self._logged = {one.uid for one in stopping}
        if running:
            names = {one.kind.kind for one in stopping}
            noun = names.pop() if len(names) == 1 else "object"
            more = f" and {len(running) - _MAX_LOGGED} more" if len(running) > _MAX_LOGGED else ""
            log.warning(
                "%d running %ss without a queue are in managed namespaces: each is stopped, and waits in its "
                'LocalQueue "%s": %s%s',
                len(running), noun, DEFAULT_QUEUE, ", ".join(running[:_MAX_LOGGED]), more,
            )  # fmt: skip
        return all([await self._queue_one(one) for one in found])

    async def _queue_one(self, one: _Unqueued) -> bool:
        """Add the queue label to an object, and record an Event; return False if that has to be tried again."""
        kinds, kind = self._watches.kinds, one.kind
        path = kinds.path(kind, one.namespace, one.name)
        labels = _label(kind)
        metadata: Object = {"uid": one.uid, "resourceVersion": one.resource_version, "labels": labels}
        metadata["annotations"] = {ADDED_LABELS: annotation_value(labels)}
        try:
            await self._writer.request(Patch(path, {"metadata": metadata}))
        except (Conflict, NotFound):
            return True  # it has changed or was deleted, which the watch will report
        except ClusterError as error:
            log.warning("cannot queue %s: %s", one.key, error)
            return False
        self._known.pop(one.uid, None)
        self._events.record(
            ObjectReference(kinds.api_version(kind), kind.kind, one.name, one.uid, one.namespace),
            reason="Queued",
            action="Queue",
            note=f'Everything in this namespace is queued: it waits in LocalQueue "{DEFAULT_QUEUE}" from now on',
        )
        return True


def _read(kind: Kind, obj: Object) -> _Unqueued | None:
    """Return an object that could be queued and is not; None if it is queued, finished, being deleted or excluded."""
    metadata = obj["metadata"]
    if kind.grouping is not None or kind.queue_name(obj) or "deletionTimestamp" in metadata:
        return None
    labels = {**(metadata.get("labels") or {}), **_label(kind)}
    if not kind.queue_name({**obj, "metadata": {**metadata, "labels": labels}}):
        return None
    seen = kind.observe(obj)
    if seen.finished is not None:
        return None
    workloads = () if controller_of(obj) is None else tuple(filter(None, map(workload_of, kind.templates(obj))))
    return _Unqueued(kind, seen.uid, seen.namespace, seen.name, seen.resource_version, not seen.suspended, workloads)


def _label(kind: Kind) -> dict[str, str]:
    """Return the queue label of the default queue."""
    return {kind.conventions.queue_labels[0]: DEFAULT_QUEUE}
