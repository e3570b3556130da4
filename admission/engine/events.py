"""What the engine is told, and what it answers: the whole vocabulary between decisions and the world."""

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
    """One of them is gone. `namespace` is empty for all but a LocalQueue."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class NamespaceChanged:
    """The labels that a ClusterQueue's namespaceSelector looks at; None: the namespace is gone."""

    name: str
    labels: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class WorkloadPending:
    """A workload waits, newly or again, or has changed while it waited. `held` keeps it out of every cycle."""

    workload: Workload
    held: bool = False
    fault: tuple[str, str] | None = None
    """Why it may never be admitted as it is (a reason of the vocabulary, and a sentence), if that is so."""
    not_before: float = 0.0
    """Until when it takes no part in cycles (backoff)."""


@dataclass(frozen=True, slots=True)
class WorkloadAdmitted:
    """A workload holds quota already: told when the state is loaded, never as an echo of a decision."""

    workload: Workload
    admission: Admission
    at: float
    evicting: bool = False
    """It was told to stop and its pods are not gone yet."""


@dataclass(frozen=True, slots=True)
class WorkloadEvicted:
    """A workload that holds quota is being stopped for a reason outside the engine; it holds it until it is gone."""

    uid: str


@dataclass(frozen=True, slots=True)
class WorkloadGone:
    """A workload finished, was deleted, or (`requeue`) was stopped completely: what it held is free."""

    uid: str
    requeue: Workload | None = None
    """How it waits from now on, if it does."""
    held: bool = False
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
    """Give `admission` to the workload. It counts as used from now on, until `forget` or WorkloadGone."""

    workload: Workload
    admission: Admission


@dataclass(frozen=True, slots=True)
class Evict:
    """Take the quota of a workload back, for `preemptor` (the uid of a workload) or for a reason of its own.

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
    """Why a workload was not admitted this time; only where it differs from what was said of it before."""

    workload: Workload
    reason: str
    """Of Kueue's vocabulary: WaitingForQuota, ExceedsMaxQuota, NoMatchingFlavor, Misconfigured, Suspended ..."""
    message: str


@dataclass(frozen=True, slots=True)
class Flap:
    """A preemption that was in vain: all its victims are gone, and the workload that they went for still waits.

    Not a decision, but worth a warning: it may happen again and again. So it is in Kueue, when what became free goes to
    somebody else, or the next search for a flavor starts at another one.
    """

    preemptor: Workload
    victims: tuple[str, ...]
    """Their keys."""
    returned: tuple[str, ...]
    """Those of them that were admitted again meanwhile."""

    @property
    def message(self) -> str:
        """One sentence."""
        again = f", and {', '.join(self.returned)} were admitted again" if self.returned else ""
        return f"{', '.join(self.victims)} were preempted for {self.preemptor.key}, which was not admitted then{again}"


@dataclass(frozen=True, slots=True)
class Decisions:
    """What one or several cycles decided, in the order in which it was decided."""

    admitted: tuple[Admit, ...] = ()
    evicted: tuple[Evict, ...] = ()
    parked: tuple[Park, ...] = ()
    cycles: int = field(default=1)
    flapping: tuple[Flap, ...] = ()
    """Preemptions that turned out to have been in vain."""

    def __bool__(self) -> bool:
        return bool(self.admitted or self.evicted or self.parked)
