"""Requests and Events for child objects of queued workloads: start, stop, deletion.

A pod is stopped by deletion. While its owner is being stopped, that is left to the owner's controller, which would
count a pod deleted by others as a failure. No more pods of an owner run than its pod sets have; beyond that the newest
are deleted, so that a user who removes a pod's gate gains nothing by an owner reference to a running owner.

A child that has waited for `WAIT_EVENT_DELAY` gets an Event with the reason; its owner's reason is reported there.
Each new leader records the Event again with the same `occasion`, by which it exists once, even if the previous leader
was killed before it was written.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

import orjson

from admission.cluster.events import ObjectReference
from admission.controller.state.lifecycle import Step
from admission.controller.state.workload_events import MAX_REPEATED, PENDING, WAIT_EVENT_DELAY
from admission.controller.workloads.plan import Write, started_child, starts_with_owner, stopped_child
from admission.kinds.children import controller_of
from admission.model import child_sentences
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from admission.cluster.events import EventRecorder
    from admission.controller.workloads.reconciler import Reconciler
    from admission.controller.workloads.sender import Sender
    from admission.kinds.base import Kind, Object, Observed
    from admission.kinds.pod_matching import Fitting

_RETRY_DELAY: Final = 2.0
"""Seconds until a pod is reconciled again whose owner is being stopped."""
_EXCESS_TOLERANCE: Final = 4.0
"""Seconds that an owner may have too many pods before the newest are deleted: the end of others may be unreported."""


class ChildVerdict(Enum):
    """The state that an object with an owner reference should be in."""

    WORKLOAD = "it is a workload of its own"
    RUN = "its owner holds quota for it"
    EXCESS = "as many pods of its owner run as its owner holds quota for"
    WAIT = "its owner is pending, or is being stopped"
    OUTDATED = "it does not match its owner's present template"
    ORPHANED = "its owner is deleted"
    OWNER_FINISHED = "its owner is finished"
    UNKNOWN = "its owner is not known yet, or not in its present version"

    @property
    def stops(self) -> bool:
        """Whether a running child is to be stopped."""
        return self in (ChildVerdict.WAIT, ChildVerdict.OUTDATED, ChildVerdict.ORPHANED)


_WAIT_MESSAGES: Final[Mapping[ChildVerdict, Callable[[str, str], str]]] = {
    ChildVerdict.EXCESS: lambda kind, name: child_sentences.no_room_beside(f"{kind} {name}"),
    ChildVerdict.WAIT: child_sentences.starts_with_owner,
    ChildVerdict.OUTDATED: lambda kind, name: child_sentences.older_than_owner(f"{kind} {name}"),
    ChildVerdict.ORPHANED: lambda kind, name: child_sentences.owner_is_gone(f"{kind} {name}"),
    ChildVerdict.OWNER_FINISHED: lambda kind, name: child_sentences.owner_has_ended(f"{kind} {name}"),
}
"""Message for a child that does not run, from kind and name of its owner."""


@dataclass(slots=True)
class Child:
    """An object with an owner reference to an object that may be queued."""

    kind: Kind
    raw: bytes
    """Its last observed version, packed."""
    version: str
    """resourceVersion of `raw`."""
    owner: str
    """Uid of the owner."""
    runs: bool = False
    """Whether it is neither suspended (a pod: gated) nor being deleted, or its start is under way."""
    owner_read: bool = False
    """Whether its owner was read after it was first seen: else a version may be known that does not name it yet."""
    was_part: bool = False
    """Whether its owner was seen to have specified it."""
    accepted: Mapping[str, int] = field(default_factory=dict)
    """Pods that its owner, which holds no quota itself, had then by pod set: an edit takes none from it."""
    was_ungated: bool = False
    """Whether this process has ungated it: it then takes precedence over a pod of the same second that it has not."""
    checked: tuple[int, int | None] | None = None
    """Its generation and its owner's, if that is a workload, when its pods were last compared."""
    is_beyond: bool = False
    """Whether it then had more pods than its owner was admitted with."""
    within: bytes = b""
    """Its last version, packed, that had no more; empty: none is known."""
    created: str = ""
    """Its creationTimestamp."""
    fitting: tuple[str, Fitting] | None = None
    """The pod sets of an owner that it fits, for the versions of both that are named first (see `children`)."""
    excess_since: float = 0.0
    """When the owner got too many pods for it to run, by the clock of the event loop; 0: there are not too many."""
    wait_message: str = ""
    """Why it does not run, as its last Event says, or a scheduled one will."""

    @property
    def object(self) -> Object:
        """The last observed version, unpacked anew on each call."""
        return dict(orjson.loads(self.raw))


class ChildRequests:
    """Sends the requests and records the Events that follow from a child's verdict."""

    def __init__(
        self,
        *,
        reconciler: Reconciler,
        sender: Sender,
        events: EventRecorder,
        recheck: Callable[[str], None],
    ) -> None:
        """`recheck`: callback that reconciles a child again, by its uid."""
        self._registry = reconciler.state.registry
        self._kinds = reconciler.environment.kinds
        self._now = reconciler.state.clock
        self._sender = sender
        self._events = events
        self._recheck = recheck
        self._leading_since = self._now()
        self._repeated_events = 0
        """Events recorded about children that may have got them from the previous leader."""

    def follow(self, child: Child, seen: Observed, obj: Object, verdict: ChildVerdict) -> None:
        """Start, stop or delete a child by its verdict; schedule an Event for one that does not run."""
        if self._sender.is_busy(seen.uid) or seen.deleting or seen.finished is not None:
            child.wait_message = ""
            return
        self._schedule_wait_event(child, seen, obj, verdict)
        if seen.kind.ends_by_deletion:
            self._follow_pod(child, seen, obj, verdict)
            return
        if verdict is ChildVerdict.RUN and seen.suspended and starts_with_owner(obj):
            self._send(seen, started_child(seen, obj))
        elif verdict.stops and not seen.suspended:
            self._send(seen, stopped_child(seen, obj), child_sentences.STOPPED_WITH_OWNER)

    def set_back(self, child: Child, seen: Observed, obj: Object, patch: list[Object], note: str) -> None:
        """Send the JSON patch that takes pods from a child again; suspend it if there is none.

        An Event `note` is recorded on the child, and on its owner if that is a workload.
        """
        if self._sender.is_busy(seen.uid) or seen.deleting:
            return
        tracked = self._registry.get(child.owner)
        for one in (seen, None if tracked is None else tracked.seen):
            if one is not None:
                self._sender.tell(self._reference(one), "Limited", note)
        if patch:
            self._send(seen, patch)
        else:
            self.follow(child, seen, obj, ChildVerdict.OUTDATED)

    def change(self, seen: Observed, patch: list[Object]) -> None:
        """Send a JSON patch about the pods of a running child."""
        if not self._sender.is_busy(seen.uid) and not seen.deleting:
            self._send(seen, patch)

    def _follow_pod(self, child: Child, seen: Observed, obj: Object, verdict: ChildVerdict) -> None:
        """Ungate or delete a pod by its verdict, or check it again later."""
        if verdict is not ChildVerdict.EXCESS:
            child.excess_since = 0.0
        if verdict is ChildVerdict.RUN and seen.suspended:
            child.runs = child.was_ungated = True
            self._send(seen, started_child(seen, obj))
        elif seen.suspended:
            return
        elif verdict.stops:
            tracked = self._registry.get(child.owner)
            if tracked is not None and tracked.record.state is State.EVICTING:
                asyncio.get_running_loop().call_later(_RETRY_DELAY, self._recheck, seen.uid)
            else:
                self._send(seen, None, child_sentences.POD_WITHOUT_OWNER)
        elif verdict is ChildVerdict.EXCESS:
            # The end of another pod may not have been reported yet.
            now = asyncio.get_running_loop().time()
            child.excess_since = child.excess_since or now
            if now - child.excess_since >= _EXCESS_TOLERANCE:
                self._send(seen, None, child_sentences.MORE_PODS_THAN_OWNER)
            else:
                asyncio.get_running_loop().call_later(_EXCESS_TOLERANCE / 4, self._recheck, seen.uid)

    # --- Events of waiting children

    def _schedule_wait_event(self, child: Child, seen: Observed, obj: Object, verdict: ChildVerdict) -> None:
        """Schedule an Event that says why a child does not run; it is recorded if the reason is the same by then."""
        reference = controller_of(obj)
        message = _WAIT_MESSAGES.get(verdict) if seen.suspended and reference is not None else None
        wait_message = ""
        if message is not None and reference is not None:
            wait_message = message(str(reference["kind"]), str(reference["name"]))
        if wait_message == child.wait_message:
            return
        child.wait_message = wait_message
        if wait_message:
            asyncio.get_running_loop().call_later(
                WAIT_EVENT_DELAY, self._record_wait_event, child, self._reference(seen), wait_message
            )

    def _record_wait_event(self, child: Child, regarding: ObjectReference, wait_message: str) -> None:
        """Record the Event, unless the reason has changed meanwhile."""
        if child.wait_message != wait_message:
            return
        tracked = self._registry.get(child.owner)
        since = f"{tracked.record.queued_at:.0f}" if tracked is not None else child.created
        if self._now() - self._leading_since < 2 * WAIT_EVENT_DELAY:
            self._repeated_events += 1
            if self._repeated_events > MAX_REPEATED:
                return
        occasion = f"{wait_message} since {since}"
        self._events.record(regarding, reason=PENDING, action=PENDING, note=wait_message, occasion=occasion)

    # --- requests

    def _reference(self, seen: Observed) -> ObjectReference:
        return ObjectReference(self._kinds.api_version(seen.kind), seen.kind.kind, seen.name, seen.uid, seen.namespace)

    def _send(self, seen: Observed, patch: list[Object] | None, note: str = "") -> None:
        """Send a JSON patch that starts, stops or scales a child, or None: delete it; with an Event `note`."""
        self._sender.send(Step.WAIT, Write(self._reference(seen), patch, note=note))
