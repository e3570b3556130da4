"""One place where everything arrives that the controller has to react to, so that one wakeup handles a whole burst."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.cluster.informer import Change
    from admission.controller.state.lifecycle import Step
    from admission.kinds.base import Kind, Object
    from admission.model.errors import ClusterError


@dataclass(frozen=True, slots=True)
class ObjectsChanged:
    """A watch delivered changes of objects of a kind that may be queued."""

    kind: Kind
    changes: list[Change]


@dataclass(frozen=True, slots=True)
class Answered:
    """A request about an object was answered with the object as it is; the watch may have told of its end since."""

    kind: Kind
    object: Object


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Something has changed that matters to this object. What is known of it when this is taken is judged anew."""

    uid: str


@dataclass(frozen=True, slots=True)
class ContextChanged:
    """Something that requests or priorities are computed from has changed; empty `namespace`: everywhere."""

    namespace: str = ""


@dataclass(frozen=True, slots=True)
class StepDone:
    """A request about an object has been answered: the object as it is now, or why not."""

    uid: str
    step: Step
    result: dict[str, Any] | ClusterError


@dataclass(frozen=True, slots=True)
class Due:
    """The time has come to look at a workload again."""

    uid: str


@dataclass(frozen=True, slots=True)
class PodsGone:
    """No pod of an object is left of those that `PodWaiter` was told to wait for."""

    uid: str
    wait: int
    """The number of the wait that is over."""


@dataclass(frozen=True, slots=True)
class PodsCounted:
    """So many pods of an object have not ended, by pod set; under an empty name those of which nobody can tell."""

    uid: str
    pods: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PodProblemsFound:
    """What keeps pods of an admitted workload from running; empty: nothing does, as far as is known."""

    uid: str
    text: str


@dataclass(frozen=True, slots=True)
class KindListed:
    """The objects of a kind became known that could not be listed before, or the API server no longer serves a kind.

    `unlisted`: the kinds whose objects cannot be listed now.
    """

    unlisted: frozenset[Kind]


Message: TypeAlias = (
    ObjectsChanged
    | Answered
    | LookAgain
    | ContextChanged
    | StepDone
    | Due
    | PodsGone
    | PodsCounted
    | PodProblemsFound
    | KindListed
)


class Inbox:
    """Messages since the last `take`. Sources that can wait are held back while it is full."""

    def __init__(self, *, capacity: int = 2_000) -> None:
        self._messages: list[Message] = []
        self._contexts: set[ContextChanged] = set()
        self._weight = 0
        self._capacity = capacity
        self._arrived = asyncio.Event()
        self._taken = asyncio.Event()

    def put(self, message: Message) -> None:
        """Of equal changes of the context one is kept, so that none of this grows while nobody takes it."""
        if isinstance(message, ContextChanged):
            if message in self._contexts:
                return
            self._contexts.add(message)
        self._messages.append(message)
        self._arrived.set()

    async def offer(self, kind: Kind, changes: list[Change]) -> None:
        """Put changes from a watch; while the inbox is full, wait: its connection then fills up, not our memory."""
        while self._weight >= self._capacity:
            self._taken.clear()
            await self._taken.wait()
        self._weight += len(changes)
        self.put(ObjectsChanged(kind, changes))

    @property
    def weight(self) -> int:
        """How many changes from watches wait to be taken."""
        return self._weight

    def wake(self) -> None:
        self._arrived.set()

    async def wait(self) -> None:
        """Until something has arrived, or somebody called `wake`."""
        await self._arrived.wait()

    def take(self) -> list[Message]:
        messages, self._messages = self._messages, []
        self._contexts = set()
        self._weight = 0
        self._arrived.clear()
        self._taken.set()
        return messages
