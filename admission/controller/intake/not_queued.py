"""Search for objects with a queue label that are not queued; each is told about in an Event, and reported by the API.

The webhook warns of such an object at its creation. This search also finds objects that existed before, and those that
are created while no webhook runs. Kinds that are watched are judged as they are observed, others are listed by label.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from admission.cluster.errors import Forbidden, NotFound
from admission.cluster.events import ObjectReference
from admission.controller.intake.served import served_versions
from admission.kinds.base import MANAGED, POD
from admission.kinds.not_queued import NotQueued, not_queued
from admission.kinds.registry import api_root
from admission.model.errors import ClusterError, StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection
    from typing import NoReturn

    from admission.cluster.client import Client, Object
    from admission.cluster.events import EventRecorder
    from admission.cluster.informer import WatchedChange
    from admission.controller.intake.watches import ClusterWatches
    from admission.kinds.base import Kind

log = logging.getLogger(__name__)

INTERVAL: Final = 60.0
"""Seconds between two searches."""


class NotQueuedSearch:
    """Searches while it runs, in each replica; the one that `leads` records Events."""

    def __init__(
        self,
        client: Client,
        watches: ClusterWatches,
        events: EventRecorder,
        *,
        leads: Callable[[], bool],
        on_record: Callable[[Collection[str]], Awaitable[Collection[str]]],
    ) -> None:
        """`on_record` returns which of these uids are those of unfinished workloads.

        An object whose kind was taken out while it was queued keeps its record, and the quota that it holds.
        """
        self._on_record = on_record
        self._client = client
        self._kinds = kinds = watches.kinds
        self._watches = watches
        self._events = events
        self._leads = leads
        self._known = {(kind.group, kind.kind) for kind in (*kinds.gated, *kinds.off)}
        self._observed: dict[str, tuple[Kind, NotQueued]] = {}
        """Of watched kinds, by uid."""
        self._listed: dict[str, tuple[Kind, NotQueued]] = {}
        """Of the other kinds, by uid, at the last search."""
        self._told: set[str] = set()
        """Uids of objects that have an Event."""
        self.interval = INTERVAL
        watches.add_listener(self._seen, lambda: None)

    def found(self) -> list[NotQueued]:
        """Return the objects that are known now, sorted by kind and name."""
        return sorted(each for _, each in (self._observed | self._listed).values())

    async def run(self) -> NoReturn:
        """Search until cancelled. Errors of the API server are logged, and the search is repeated."""
        await self._watches.objects_synced.wait()
        while True:
            try:
                listed = {each.uid: (kind, each) async for kind, each in self._list()}
                on_record = await self._on_record(listed.keys()) if listed else ()
                self._listed = {uid: each for uid, each in listed.items() if uid not in on_record}
            except (ClusterError, StoreError) as error:
                log.warning("cannot search for objects with a queue label that are not queued: %s", error)
            self._tell()
            await asyncio.sleep(self.interval)

    def _seen(self, kind: Kind, change: WatchedChange) -> None:
        self._observed.pop(change.uid, None)
        obj = change.object
        if change.type == "DELETED" or obj is None:
            self._told.discard(change.uid)
            return
        # Of other objects the queue label alone decides.
        may_be = kind.grouping is not None or obj["metadata"]["namespace"] in kind.conventions.excluded_namespaces
        if may_be and (found := not_queued(kind, obj, is_on=True, known=self._known)) is not None:
            self._observed[change.uid] = kind, found

    async def _list(self) -> AsyncIterator[tuple[Kind, NotQueued]]:
        """Yield the objects of kinds that are off, and of those whose objects are not all watched."""
        for kind, version, is_on in await self._listed_kinds():
            path = f"{api_root(kind.group, version)}/{kind.plural}"
            for selector in _selectors(kind):
                try:
                    async for page in self._client.list_pages(path, params={"labelSelector": selector}):
                        for obj in page["items"]:
                            if (found := self._judged(kind, obj, is_on=is_on)) is not None:
                                yield kind, found
                except (NotFound, Forbidden) as error:
                    log.debug("%s are not searched for a queue label: %s", kind.plural, error)

    async def _listed_kinds(self) -> list[tuple[Kind, str, bool]]:
        """Return each kind to list, with its served version, and whether it is queued."""
        custom = [kind for kind in self._kinds.off if kind.is_custom]
        served = await served_versions(self._client, custom) if custom else {}
        off = [(kind, served.get(kind, "") if kind.is_custom else kind.versions[0], False) for kind in self._kinds.off]
        watched = {(kind.group, kind.kind) for kind in self._kinds if not kind.watched_label}
        on = [(kind, kind.versions[0], True) for kind in self._kinds.gated if (kind.group, kind.kind) not in watched]
        return [each for each in (*off, *on) if each[1]]

    def _judged(self, kind: Kind, obj: Object, *, is_on: bool) -> NotQueued | None:
        try:
            return not_queued(kind, obj, is_on=is_on, known=self._known)
        except Exception as error:  # noqa: BLE001  an object of an unforeseen form must not end the search
            log.info("the %s %s cannot be judged: %r", kind.kind, (obj.get("metadata") or {}).get("name"), error)
            return None

    def _tell(self) -> None:
        """Record an Event for each object that has none yet."""
        found = self._observed | self._listed
        self._told &= found.keys()
        for uid, (kind, each) in found.items() if self._leads() else ():
            if uid in self._told:
                continue
            self._told.add(uid)
            version = kind.versions[0]
            reference = ObjectReference(
                f"{kind.group}/{version}" if kind.group else version, kind.kind, each.name, uid, each.namespace
            )
            sentence = each.sentence
            self._events.record(
                reference, reason="NotQueued", action="Queue", note=sentence, warning=True, occasion=each.why
            )


def _selectors(kind: Kind) -> list[str]:
    """Return label selectors that together select each object with a queue label once; of pods only ungated ones."""
    keys = kind.conventions.queue_labels
    ungated = [f"!{MANAGED}"] if (kind.group, kind.kind) == POD else []
    return [",".join([key, *(f"!{each}" for each in keys[:number]), *ungated]) for number, key in enumerate(keys)]
