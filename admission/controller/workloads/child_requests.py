"""What is requested for an object that is part of a queued one: that it starts, stops or is deleted, and its Events.

A pod is stopped by deleting it; while its owner is being stopped that is left to the owner's controller, which else
would take it for a failure. Of an owner's pods no more are let run than it asks for, and of more that run the newest
are deleted: whoever takes a gate away himself gains nothing by naming an owner that runs.

A child that waits for `WAITS_AFTER` is told so by an Event of its own, which says what it waits for: what is known of
its owner's wait is told with the owner. Each leader tells it again as of the same occasion, so that it is there once,
whoever was killed before it was written.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

import orjson

from admission.cluster.client import PatchType
from admission.cluster.events import Reference
from admission.cluster.writer import Deletion, Patch
from admission.controller.state.inbox import Answered
from admission.controller.state.workload_events import PENDING, TOLD_AGAIN, WAITS_AFTER
from admission.kinds.base import START_WITH_OWNER
from admission.kinds.children import controller_of
from admission.kinds.patches import pointer
from admission.model import child_sentences
from admission.model.errors import ClusterError
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from admission.cluster.events import EventRecorder
    from admission.cluster.writer import Writer
    from admission.controller.state.inbox import Inbox
    from admission.controller.workloads.reconciler import Reconciler
    from admission.kinds.base import Kind, Object, Observed

log = logging.getLogger(__name__)

_PAUSE: Final = 2.0
"""Seconds before a request that failed is tried again."""
_EXCESS: Final = 4.0
"""Seconds that an owner may seem to have too many pods before the newest are deleted."""


class Verdict(Enum):
    """What becomes of an object that claims an owner."""

    WORKLOAD = "it queues by itself"
    RUN = "its owner holds quota for it"
    NO_ROOM = "so many pods of its owner run that its owner holds quota for no more"
    WAIT = "its owner waits, or is being stopped"
    OUTDATED = "it is not yet as its owner is now"
    ORPHANED = "its owner is gone"
    LEAVE = "its owner has ended"
    UNKNOWN = "its owner is not known yet"

    @property
    def stops(self) -> bool:
        """Whether it may not run."""
        return self in (Verdict.WAIT, Verdict.OUTDATED, Verdict.ORPHANED)


_WAITS: Final[Mapping[Verdict, Callable[[str, str], str]]] = {
    Verdict.NO_ROOM: lambda kind, name: child_sentences.no_room_beside(f"{kind} {name}"),
    Verdict.WAIT: child_sentences.starts_with_owner,
    Verdict.OUTDATED: lambda kind, name: child_sentences.older_than_owner(f"{kind} {name}"),
    Verdict.ORPHANED: lambda kind, name: child_sentences.owner_is_gone(f"{kind} {name}"),
    Verdict.LEAVE: lambda kind, name: child_sentences.owner_has_ended(f"{kind} {name}"),
}
"""What one that does not run is told of its owner (kind, name)."""


@dataclass(slots=True)
class Child:
    """One object that claims an owner that may be queued."""

    kind: Kind
    raw: bytes
    version: str
    owner: str
    """The uid."""
    in_flight: bool = False
    """A request for it is under way."""
    runs: bool = False
    """Whether it is a pod without a gate, or is just being let run."""
    was_let_run: bool = False
    """Whether this process has taken its gate away: it counts before a pod of the same second that lacks that."""
    created: str = ""
    excess_since: float = 0.0
    """Since when (in the time of the event loop) there are too many pods beside it; 0: there are not."""
    waits: str = ""
    """Why it does not run, as it was told or will be."""

    @property
    def object(self) -> Object:
        return dict(orjson.loads(self.raw))


class ChildRequests:
    """Requests and Events about children; what becomes of one is the verdict that it is called with."""

    def __init__(
        self,
        *,
        reconciler: Reconciler,
        writer: Writer,
        events: EventRecorder,
        inbox: Inbox,
        look_again: Callable[[str], None],
    ) -> None:
        """`look_again`: has a child, by its uid, judged anew."""
        self._registry = reconciler.state.registry
        self._kinds = reconciler.environment.kinds
        self._now = reconciler.state.clock
        self._writer = writer
        self._events = events
        self._inbox = inbox
        self._look_again = look_again
        self._began = self._now()
        self._told_again = 0
        """Events so far about children that waited already when this lead began."""

    def follow(self, child: Child, seen: Observed, obj: Object, verdict: Verdict) -> None:
        """Do what follows from the verdict, and tell a child that does not run why."""
        if child.in_flight or seen.deleting or seen.finished is not None:
            child.waits = ""
            return
        self._tell_wait(child, seen, obj, verdict)
        if seen.kind.ends_by_deletion:
            self._follow_pod(child, seen, obj, verdict)
            return
        asked = START_WITH_OWNER in (obj["metadata"].get("annotations") or {})
        annotation = pointer("metadata", "annotations", START_WITH_OWNER)
        if verdict is Verdict.RUN and seen.suspended and asked:
            self._send(child, seen, [*seen.kind.resume_patch(obj), {"op": "remove", "path": annotation}])
        elif verdict.stops and not seen.suspended:
            # What its controller has started once it may not start again by itself.
            metadata: Mapping[str, Any] = obj["metadata"]
            parent = [] if "annotations" in metadata else [{"op": "add", "path": "/metadata/annotations", "value": {}}]
            noted = {"op": "add", "path": annotation, "value": "true"}
            self._send(child, seen, [*seen.kind.stop_patch(obj), *parent, noted])
            self._events.record(
                self._reference(seen), reason="Stopped", action="Stop", note=child_sentences.STOPPED_WITH_OWNER
            )

    def _follow_pod(self, child: Child, seen: Observed, obj: Object, verdict: Verdict) -> None:
        if verdict is not Verdict.NO_ROOM:
            child.excess_since = 0.0
        if verdict is Verdict.RUN and seen.suspended:
            child.runs = child.was_let_run = True
            mark = pointer("metadata", "annotations", START_WITH_OWNER)
            marked = START_WITH_OWNER in (obj["metadata"].get("annotations") or {})
            unmarked = [{"op": "remove", "path": mark}] if marked else []
            self._send(child, seen, [*seen.kind.resume_patch(obj), *unmarked])
        elif seen.suspended:
            return
        elif verdict.stops:
            tracked = self._registry.get(child.owner)
            if tracked is not None and tracked.record.state is State.EVICTING:
                asyncio.get_running_loop().call_later(_PAUSE, self._look_again, seen.uid)
            else:
                self._delete(child, seen, child_sentences.POD_WITHOUT_OWNER)
        elif verdict is Verdict.NO_ROOM:
            # What has just ended may not be heard of yet.
            now = asyncio.get_running_loop().time()
            child.excess_since = child.excess_since or now
            if now - child.excess_since >= _EXCESS:
                self._delete(child, seen, child_sentences.MORE_PODS_THAN_OWNER)
            else:
                asyncio.get_running_loop().call_later(_EXCESS / 4, self._look_again, seen.uid)

    # --- why it waits

    def _tell_wait(self, child: Child, seen: Observed, obj: Object, verdict: Verdict) -> None:
        """Have one that does not run told why, if that is still so in a while."""
        reference = controller_of(obj)
        said = _WAITS.get(verdict) if seen.suspended and reference is not None else None
        waits = said(str(reference["kind"]), str(reference["name"])) if said and reference is not None else ""
        if waits == child.waits:
            return
        child.waits = waits
        if waits:
            asyncio.get_running_loop().call_later(WAITS_AFTER, self._tell, child, self._reference(seen), waits)

    def _tell(self, child: Child, regarding: Reference, waits: str) -> None:
        if child.waits != waits:
            return
        tracked = self._registry.get(child.owner)
        since = f"{tracked.record.queued_at:.0f}" if tracked is not None else child.created
        if self._now() - self._began < 2 * WAITS_AFTER:
            self._told_again += 1
            if self._told_again > TOLD_AGAIN:
                return
        occasion = f"{waits} since {since}"
        self._events.record(regarding, reason=PENDING, action=PENDING, note=waits, occasion=occasion)

    # --- requests

    def _reference(self, seen: Observed) -> Reference:
        return Reference(self._kinds.api_version(seen.kind), seen.kind.kind, seen.name, seen.uid, seen.namespace)

    def _delete(self, child: Child, seen: Observed, note: str) -> None:
        child.in_flight = True

        def done(result: Object | ClusterError) -> None:
            child.in_flight = False
            if isinstance(result, ClusterError):
                log.debug("cannot delete %s: %s", seen.key, result)
                asyncio.get_running_loop().call_later(_PAUSE, self._look_again, seen.uid)

        self._events.record(self._reference(seen), reason="Stopped", action="Stop", note=note)
        self._writer.submit(Deletion(self._kinds.path(seen.kind, seen.namespace, seen.name), seen.uid), done)

    def _send(self, child: Child, seen: Observed, body: list[Object]) -> None:
        child.in_flight = True

        def done(result: Object | ClusterError) -> None:
            child.in_flight = False
            if isinstance(result, ClusterError):
                log.debug("cannot start or stop %s: %s", seen.key, result)
                asyncio.get_running_loop().call_later(_PAUSE, self._look_again, seen.uid)
            else:
                self._inbox.put(Answered(seen.kind, result))

        path = self._kinds.path(seen.kind, seen.namespace, seen.name)
        self._writer.submit(Patch(path, body, patch_type=PatchType.JSON), done)
