"""Events, which the engine is told (`Engine.observe`), and decisions, which it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from admission.engine.policies.contract import PolicyEvent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.model.queues import QueueObject
    from admission.model.workload import Admission, Workload


@dataclass(frozen=True, slots=True)
class QueueObjectChanged:
    """A ResourceFlavor, ClusterQueue, Cohort, LocalQueue or WorkloadPriorityClass is new or has changed."""

    object: QueueObject


@dataclass(frozen=True, slots=True)
class QueueObjectDeleted:
    """A queue object was deleted. `namespace` is empty for all kinds but LocalQueue."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class NamespaceChanged:
    """A namespace is new, or its labels have changed; None: it is gone. namespaceSelectors are matched with them."""

    name: str
    labels: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class WorkloadPending:
    """A workload is pending: newly, again, or changed. `on_hold`: it takes no part in cycles."""

    workload: Workload
    on_hold: bool = False
    fault: tuple[str, str] | None = None
    """Reason and message if it can never be admitted as it is."""
    not_before: float = 0.0
    """Unix time (s) of its requeue backoff's end, before which it takes no part in cycles; 0: no backoff."""


@dataclass(frozen=True, slots=True)
class WorkloadAdmitted:
    """A workload holds quota already: told when the state is loaded, or when it was resized; not after an Admit."""

    workload: Workload
    admission: Admission
    at: float
    evicting: bool = False
    """It was told to stop and its pods are not gone yet."""


@dataclass(frozen=True, slots=True)
class WorkloadEvicted:
    """A workload is being stopped for a reason outside of the engine. It holds its quota until WorkloadGone."""

    uid: str


@dataclass(frozen=True, slots=True)
class WorkloadGone:
    """A workload has finished, was deleted, or (`requeue`) its pods are gone after an eviction: its quota is free."""

    uid: str
    requeue: Workload | None = None
    """The workload as it is pending from now on; None: it is not."""
    on_hold: bool = False
    not_before: float = 0.0


Event: TypeAlias = (
    QueueObjectChanged
    | QueueObjectDeleted
    | NamespaceChanged
    | PolicyEvent
    | WorkloadPending
    | WorkloadAdmitted
    | WorkloadEvicted
    | WorkloadGone
)


@dataclass(frozen=True, slots=True)
class Admit:
    """Admit the workload. Its quota counts as used from now on, until `Engine.forget` or WorkloadGone."""

    workload: Workload
    admission: Admission


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict the workload, for `preemptor` (the uid of a workload) or for another reason (None).

    It holds its quota until WorkloadGone; only with the reason WorkloadSliceReplaced the preemptor has it already.
    """

    workload: Workload
    reason: str
    """Kueue's eviction reason: Preempted, ClusterQueueStopped, LocalQueueStopped ..."""
    message: str
    preemptor: str | None = None
    preemption_reason: str = ""
    """For Preempted: InClusterQueue, InCohortReclamation, InCohortFairSharing, InCohortReclaimWhileBorrowing."""


@dataclass(frozen=True, slots=True)
class Park:
    """Why a workload is pending. Given only if reason or message differ from those given before."""

    workload: Workload
    reason: str
    """A reason of `vocabulary`, such as WaitingForQuota or ExceedsMaxQuota, or of a policy."""
    message: str


@dataclass(frozen=True, slots=True)
class Flap:
    """A preemption without effect: all victims are gone, and their preemptor is still pending.

    Not a decision, but worth a warning, as it may repeat. Kueue's rules allow it: the quota that became free may go to
    another workload, or the preemptor's next attempt may start at another flavor.
    """

    preemptor: Workload
    victims: tuple[str, ...]
    """Namespaced names (`namespace/name`) of the victims."""
    returned: tuple[str, ...]
    """Namespaced names of those victims that were admitted again meanwhile."""

    @property
    def message(self) -> str:
        """The warning, one sentence."""
        again = f", and {', '.join(self.returned)} were admitted again" if self.returned else ""
        return f"{', '.join(self.victims)} were preempted for {self.preemptor.key}, which was not admitted then{again}"


@dataclass(frozen=True, slots=True)
class Decisions:
    """The decisions of one or several cycles, each kind in the order in which they were made."""

    admitted: tuple[Admit, ...] = ()
    evicted: tuple[Evict, ...] = ()
    parked: tuple[Park, ...] = ()
    cycles: int = field(default=1)
    flapping: tuple[Flap, ...] = ()
    """Preemptions that turned out to be without effect."""

    def __bool__(self) -> bool:
        return bool(self.admitted or self.evicted or self.parked)
