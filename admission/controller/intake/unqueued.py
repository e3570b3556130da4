"""Jobs without a queue in managed namespaces: those that no gate has seen are given the default queue, and so queued.

The gate does that for what is created. This is for what was there before a namespace was managed, and for what came
while there was no gate. What runs is stopped as soon as it is queued, so that its names are logged before.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from admission.cluster.errors import Conflict, NotFound
from admission.cluster.events import Reference
from admission.kinds.base import DEFAULT_QUEUE
from admission.kinds.given import GIVEN_LABELS, noted
from admission.kinds.grouped import GroupedKind
from admission.model.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import NoReturn

    from admission.cluster.client import Client, Object
    from admission.cluster.events import EventRecorder
    from admission.cluster.informer import Change
    from admission.controller.intake.watches import ClusterWatches
    from admission.kinds.base import Kind
    from admission.model.base import LabelSelector

log = logging.getLogger(__name__)

_PAUSE: Final = 2.0
"""Seconds between two attempts, and between two looks whether this replica leads by now."""
_NAMED: Final = 20
"""How many are logged by name."""


@dataclass(frozen=True, slots=True)
class _Unqueued:
    kind: Kind
    uid: str
    namespace: str
    name: str
    resource_version: str
    running: bool

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class Unqueued:
    """Takes them in while `run` runs, on the replica that `leads`."""

    def __init__(
        self,
        client: Client,
        watches: ClusterWatches,
        events: EventRecorder,
        *,
        namespaces: LabelSelector,
        leads: Callable[[], bool],
    ) -> None:
        """`namespaces` selects those that are managed."""
        self._client = client
        self._watches = watches
        self._events = events
        self._namespaces = namespaces
        self._leads = leads
        self._known: dict[str, _Unqueued] = {}
        """By uid: those without a queue in any namespace, for another one may become a managed one."""
        self._news = asyncio.Event()
        watches.tell(self._seen, self._news.set)

    async def run(self) -> NoReturn:
        """Until cancelled. Failures are waited out."""
        await self._watches.context_synced()
        await self._watches.objects_synced.wait()
        self._news.set()
        while True:
            await self._news.wait()
            self._news.clear()
            found = [one for one in self._known.values() if self._is_managed(one.namespace)]
            if not found:
                continue
            if not self._leads() or not await self._take_in(found):
                await asyncio.sleep(_PAUSE)
                self._news.set()

    def _seen(self, kind: Kind, changes: Iterable[Change]) -> None:
        for change in changes:
            one = None if change.type == "DELETED" or change.object is None else _read(kind, change.object)
            if one is not None:
                self._known[change.uid] = one
                if self._is_managed(one.namespace):
                    self._news.set()
            else:
                self._known.pop(change.uid, None)

    def _is_managed(self, namespace: str) -> bool:
        labels = self._watches.context.namespace_labels(namespace)
        return labels is not None and self._namespaces.matches(labels)

    async def _take_in(self, found: list[_Unqueued]) -> bool:
        """Give them the label; the rest follows as for all that is queued. False: some have to be tried again."""
        if running := [one.key for one in found if one.running]:
            names = {one.kind.kind for one in found if one.running}
            noun = names.pop() if len(names) == 1 else "object"
            more = f" and {len(running) - _NAMED} more" if len(running) > _NAMED else ""
            log.warning(
                "%d running %ss without a queue are in managed namespaces: each is stopped, and waits in its "
                'LocalQueue "%s": %s%s',
                len(running), noun, DEFAULT_QUEUE, ", ".join(running[:_NAMED]), more,
            )  # fmt: skip
        return all([await self._label_one(one) for one in found])

    async def _label_one(self, one: _Unqueued) -> bool:
        kinds, kind = self._watches.kinds, one.kind
        path = kinds.path(kind, one.namespace, one.name)
        labels = _label(kind)
        metadata = {"uid": one.uid, "resourceVersion": one.resource_version, "labels": labels}
        metadata["annotations"] = {GIVEN_LABELS: noted(labels)}
        try:
            await self._client.patch(path, {"metadata": metadata}, permitted=self._leads)
        except (Conflict, NotFound):
            return True  # it has changed: what it is now, the watch tells
        except ClusterError as error:
            log.warning("cannot queue %s: %s", one.key, error)
            return False
        self._known.pop(one.uid, None)
        self._events.record(
            Reference(kinds.api_version(kind), kind.kind, one.name, one.uid, one.namespace),
            reason="Queued",
            action="Queue",
            note=f'Everything in this namespace is queued: it waits in LocalQueue "{DEFAULT_QUEUE}" from now on',
        )
        return True


def _read(kind: Kind, obj: Object) -> _Unqueued | None:
    """None: it is queued, has ended, or is none of ours."""
    metadata = obj["metadata"]
    if isinstance(kind, GroupedKind) or kind.queue_name(obj) or "deletionTimestamp" in metadata:
        return None
    labels = {**(metadata.get("labels") or {}), **_label(kind)}
    if not kind.queue_name({**obj, "metadata": {**metadata, "labels": labels}}):
        return None
    seen = kind.observe(obj)
    if seen.finished is not None:
        return None
    return _Unqueued(kind, seen.uid, seen.namespace, seen.name, seen.resource_version, running=not seen.suspended)


def _label(kind: Kind) -> dict[str, str]:
    return {kind.conventions.queue_labels[0]: DEFAULT_QUEUE}
