"""Triggers: the events that can change a workload (second argument of `transition`).

Decisions of the engine are triggers as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from admission.engine.events import Evict, Park, Reassign

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.controller.state.tracked import StartPatch
    from admission.kinds.base import Object, Observed
    from admission.model.topology import TopologyAssignment
    from admission.model.workload import Admission
    from admission.store.records import CheckRecord, Order


@dataclass(frozen=True, slots=True)
class ObjectSeen:
    """A version of the workload's object was received from a watch, a GET or the response to a PATCH."""

    seen: Observed
    object: Object


@dataclass(frozen=True, slots=True)
class ObjectDeleted:
    """The workload's object was deleted. `last`: its last observed version; None: it was never observed."""

    last: Observed | None


@dataclass(frozen=True, slots=True)
class LastPodEnded:
    """No unfinished pod of the workload was found. For kinds whose status does not count pods, and deleted objects."""

    wait_number: int
    """Number of the wait (`Tracked.wait_number`); one that is not the workload's last is ignored."""


@dataclass(frozen=True, slots=True)
class PodsCounted:
    """The workload's unfinished pods were counted.

    `pods`: number by pod set, such as `{"worker": 3, "": 1}`; under the empty name pods whose pod set is unknown.
    """

    pods: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PlacesGivenUp:
    """The pods that the workload has kept have other domains than all of its places. `places`: theirs, by pod set."""

    places: Mapping[str, TopologyAssignment]


@dataclass(frozen=True, slots=True)
class RequestsMeasured:
    """Pods of the workload were read. `requests`: those of one pod, by pod set.

    `pods`: number of pods, by pod set, where only the pods show it.
    """

    requests: Mapping[str, Mapping[str, int]]
    pods: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PodProblem:
    """The obstacle that keeps the workload's pods from running has changed; empty `text`: there is none."""

    text: str


@dataclass(frozen=True, slots=True)
class Noted:
    """Something that changes nothing is written to its history."""

    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class StopHindered:
    """Why it is not stopped or restored: the API server's refusal, or pods that nothing stops; empty: nothing is."""

    text: str


@dataclass(frozen=True, slots=True)
class ContextChange:
    """An object has changed from which pod sets or priority are computed, such as a LimitRange or a PriorityClass."""


@dataclass(frozen=True, slots=True)
class ClaimsChanged:
    """A ResourceClaim or template that the workload's pods name was created, deleted, or is another one now."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """An admin's order for the workload was created or changed."""

    order: Order


@dataclass(frozen=True, slots=True)
class CheckAnswered:
    """The state of one of the workload's admission checks was updated."""

    check: CheckRecord


@dataclass(frozen=True, slots=True)
class CheckRulesChanged:
    """The ClusterQueue whose quota the workload holds requires other admission checks now."""


@dataclass(frozen=True, slots=True)
class QuotaReserved:
    """The engine has reserved quota for the workload. `start`: the patch that will start it."""

    admission: Admission
    start: StartPatch


@dataclass(frozen=True, slots=True)
class LargerAdmitted:
    """The engine has admitted the larger version of a running workload. `admission`: for all pods, old and new."""

    admission: Admission


@dataclass(frozen=True, slots=True)
class NodesLost:
    """So many of the nodes have failed on which the workload is placed that it is evicted. `message`: which."""

    message: str


@dataclass(frozen=True, slots=True)
class Drained:
    """It has pods on a node whose drain has ended. `message`: which."""

    message: str


@dataclass(frozen=True, slots=True)
class StartImpossible:
    """The object cannot be started in this generation. `message`: the cause, for its user."""

    generation: int
    message: str
    begun: bool = False
    """Whether a first request of the start has been sent. To restore that makes another generation."""


@dataclass(frozen=True, slots=True)
class EditedBeforeStart:
    """The object was edited between admission and start, so that a stop has to restore another `original`."""

    original: Object


@dataclass(frozen=True, slots=True)
class Stopped:
    """An evicted workload has no running pods, and its object is restored to the state before its start."""


@dataclass(frozen=True, slots=True)
class LeftQueue:
    """The object is no longer a workload of its own. `message`: the reason."""

    message: str


@dataclass(frozen=True, slots=True)
class KindUnlisted:
    """Objects of the workload's kind cannot be listed."""


@dataclass(frozen=True, slots=True)
class DispatchFailed:
    """The workload cannot run in the cluster that it was dispatched to, or not any more."""

    reason: str
    message: str
    barred: str = ""
    """The cluster, if it is not to be dispatched there again before `until` (Unix time, s)."""
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class DeadlineReached:
    """`Tracked.deadline` is reached."""


Trigger: TypeAlias = (
    ObjectSeen
    | ObjectDeleted
    | LastPodEnded
    | PodProblem
    | Noted
    | StopHindered
    | PodsCounted
    | PlacesGivenUp
    | RequestsMeasured
    | ContextChange
    | ClaimsChanged
    | Ordered
    | CheckAnswered
    | CheckRulesChanged
    | Evict
    | Park
    | Reassign
    | QuotaReserved
    | LargerAdmitted
    | NodesLost
    | Drained
    | StartImpossible
    | EditedBeforeStart
    | Stopped
    | LeftQueue
    | KindUnlisted
    | DispatchFailed
    | DeadlineReached
)
