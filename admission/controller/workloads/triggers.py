"""What can happen to a workload: the second argument of `transition`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.controller.state.tracked import StartPatch
    from admission.engine.events import Evict
    from admission.kinds.base import Object, Observed
    from admission.model.workload import Admission
    from admission.store.records import CheckRecord, Order


@dataclass(frozen=True, slots=True)
class ObjectSeen:
    """Its object is as it is now: a watch, a read or the answer to a patch says so."""

    seen: Observed
    object: Object


@dataclass(frozen=True, slots=True)
class ObjectGone:
    """Its object does not exist any more; `last` is what was seen of it at last, None: nothing."""

    last: Observed | None


@dataclass(frozen=True, slots=True)
class LastPodEnded:
    """No pod of it is left, though its object is gone, or does not say so."""


@dataclass(frozen=True, slots=True)
class SurplusCounted:
    """So many of its pods have not ended, by pod set; under an empty name those of which nobody can tell."""

    pods: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PodProblem:
    """What keeps its pods from running; empty: nothing does."""

    text: str


@dataclass(frozen=True, slots=True)
class StopRefused:
    """What the API server says that will not have it stopped, or given back as it was; empty: it has that done."""

    text: str


@dataclass(frozen=True, slots=True)
class ContextChange:
    """Something has changed that its pod sets or its priority are computed from."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """An admin has ordered something about it."""

    order: Order


@dataclass(frozen=True, slots=True)
class CheckAnswered:
    """An admission check has answered."""

    check: CheckRecord


@dataclass(frozen=True, slots=True)
class CheckRulesChanged:
    """The ClusterQueue whose quota it holds asks for other admission checks now."""


@dataclass(frozen=True, slots=True)
class QuotaGiven:
    """The engine admits it; `start` is the request that will start it."""

    admission: Admission
    start: StartPatch


@dataclass(frozen=True, slots=True)
class LargerAdmitted:
    """The engine gives what runs the quota for more pods that it has asked for; `admission` is the whole of it."""

    admission: Admission


@dataclass(frozen=True, slots=True)
class LargerReasonChanged:
    """The engine says why what runs has no quota yet for more pods."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class EvictionDecided:
    """The engine takes its quota back."""

    decision: Evict


@dataclass(frozen=True, slots=True)
class StartImpossible:
    """It cannot be started as it is at this generation; `message` says why, for its user."""

    generation: int
    message: str


@dataclass(frozen=True, slots=True)
class EditedBeforeStart:
    """What will have to be restored is another `original` than the one on record."""

    original: Object


@dataclass(frozen=True, slots=True)
class Stopped:
    """It was evicted, has stopped, and its object is as it was before its start."""


@dataclass(frozen=True, slots=True)
class ReasonChanged:
    """The engine says why it waits."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class LeftQueue:
    """It is no workload any more, for the reason that `message` gives."""

    message: str


@dataclass(frozen=True, slots=True)
class KindUnlisted:
    """Objects of its kind cannot be listed."""


@dataclass(frozen=True, slots=True)
class DeadlineReached:
    """The time has come that was set for it."""


Trigger: TypeAlias = (
    ObjectSeen
    | ObjectGone
    | LastPodEnded
    | PodProblem
    | StopRefused
    | SurplusCounted
    | ContextChange
    | Ordered
    | CheckAnswered
    | CheckRulesChanged
    | QuotaGiven
    | LargerAdmitted
    | LargerReasonChanged
    | EvictionDecided
    | StartImpossible
    | EditedBeforeStart
    | Stopped
    | ReasonChanged
    | LeftQueue
    | KindUnlisted
    | DeadlineReached
)
