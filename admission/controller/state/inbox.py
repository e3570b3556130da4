"""Inbox of the controller: a queue of all messages that it reacts to, so that one wakeup handles a whole burst."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from admission.cluster.informer import WatchedChange
    from admission.controller.state.lifecycle import Step
    from admission.controller.state.triggers import Trigger
    from admission.engine.events import TopologyEvent
    from admission.kinds.base import Kind, Object
    from admission.kinds.devices import Claimed
    from admission.model.errors import ClusterError


@dataclass(frozen=True, slots=True)
class ObjectsChanged:
    """A watch delivered changes of objects of a kind that may be queued."""

    kind: Kind
    changes: list[WatchedChange]


@dataclass(frozen=True, slots=True)
class ObjectReturned:
    """A response contained the present object; the watch may have reported its deletion before this is processed."""

    kind: Kind
    object: Object


@dataclass(frozen=True, slots=True)
class ObjectGone:
    """A response tells that an object does not exist any more."""

    uid: str


@dataclass(frozen=True, slots=True)
class Recheck:
    """A dependency of this object has changed: its last observed version is processed again."""

    uid: str


@dataclass(frozen=True, slots=True)
class ContextChanged:
    """A LimitRange, RuntimeClass, PriorityClass or namespace has changed; empty `namespace`: in all namespaces."""

    namespace: str = ""


@dataclass(frozen=True, slots=True)
class DevicesChanged:
    """ResourceClaims or their templates have changed; None: what all requests for devices depend on."""

    claims: frozenset[Claimed] | None = None


@dataclass(frozen=True, slots=True)
class StepDone:
    """A request about an object was answered: `result` is the object as it is now, or the error."""

    uid: str
    step: Step
    result: dict[str, Any] | ClusterError


@dataclass(frozen=True, slots=True)
class CopyAnswered:
    """A request about the copy of a dispatched workload was answered: `result` is the copy, or the error."""

    uid: str
    """Uid of the workload."""
    cluster: str
    """The cluster of the copy."""
    verb: str
    """`create`, `get`, `delete`, `scale`, `look` (for what it needs; no result), `complete` (copy that along)."""
    result: dict[str, Any] | ClusterError
    copy: str = ""
    """Uid of the copy that is to be deleted or completed."""


@dataclass(frozen=True, slots=True)
class DelayEnded:
    """A delay is over, after which an object is read again."""

    uid: str


@dataclass(frozen=True, slots=True)
class Told:
    """Something became known about a workload, such as that no pod of it is left."""

    uid: str
    trigger: Trigger


@dataclass(frozen=True, slots=True)
class KindListed:
    """The first list of a kind is complete, or the API server no longer serves a kind.

    `unlisted`: the kinds whose objects cannot be listed now.
    """

    unlisted: frozenset[Kind]


@dataclass(frozen=True, slots=True)
class NodesAndPodsChanged:
    """Nodes, or pods that are not terminated, have changed, as far as placement by topology depends on them."""

    events: list[TopologyEvent]
    """For the engine."""
    nodes: set[str] = field(default_factory=set)
    """Hostnames of the nodes among them."""
    pods: set[tuple[str, str]] = field(default_factory=set)
    """(uid of a placed workload, hostname of the node) of the pods among them; "": they are sent to no node."""
    complete: bool = False
    """Whether these are all that exist."""

    @property
    def workloads(self) -> set[str]:
        """Uids of the placed workloads whose pods have changed."""
        return {uid for uid, _ in self.pods}


Message: TypeAlias = (
    ObjectsChanged
    | ObjectReturned
    | ObjectGone
    | Recheck
    | ContextChanged
    | DevicesChanged
    | StepDone
    | CopyAnswered
    | DelayEnded
    | Told
    | KindListed
    | NodesAndPodsChanged
)


class Inbox:
    """Queue of messages between two calls of `take`. `offer` blocks while it is full, `put` never does."""

    def __init__(self, arrived: asyncio.Event | None = None, *, capacity: int = 2_000) -> None:
        """`arrived`: the event of another inbox: both wake the same leader, which then takes from both at once."""
        self._messages: list[Message] = []
        self._contexts: set[ContextChanged | DevicesChanged] = set()
        self._weight = 0
        self._capacity = capacity
        self.arrived = asyncio.Event() if arrived is None else arrived
        """Set when a message has arrived, or `wake` was called, since `take`."""
        self._taken = asyncio.Event()

    def put(self, message: Message) -> None:
        """Add a message. Equal ones about the context are kept once, which bounds them while nothing is taken."""
        if isinstance(message, ContextChanged | DevicesChanged):
            if message in self._contexts:
                return
            self._contexts.add(message)
        self._messages.append(message)
        self.arrived.set()

    async def offer(self, kind: Kind, changes: list[WatchedChange]) -> None:
        """Add changes of a watch; wait while the inbox is full: this throttles the connection and bounds the memory."""
        while self._weight >= self._capacity:
            self._taken.clear()
            await self._taken.wait()
        self._weight += len(changes)
        self.put(ObjectsChanged(kind, changes))

    @property
    def weight(self) -> int:
        """Number of changes from watches in the inbox."""
        return self._weight

    def wake(self) -> None:
        self.arrived.set()

    async def wait(self) -> None:
        """Wait until a message has arrived or `wake` was called."""
        await self.arrived.wait()

    def take(self) -> list[Message]:
        messages, self._messages = self._messages, []
        self._contexts = set()
        self._weight = 0
        self.arrived.clear()
        self._taken.set()
        return messages
