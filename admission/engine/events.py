"""Input and output of the engine: events for `Engine.observe`, and the decisions of cycles."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from admission.engine.policies.contract import PolicyEvent
from admission.engine.vocabulary import TIME_SLICE
from admission.model.names import listed
from admission.model.queues import (
    AdmissionCheck,
    Budget,
    Cluster,
    ClusterQueue,
    Cohort,
    Drain,
    LocalQueue,
    PriceBook,
    Reservation,
    ResourceFlavor,
    Topology,
    UserLimit,
)
from admission.model.workload import LOCAL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.engine.topology.nodes import NodeState
    from admission.model.queues import QueueObject
    from admission.model.workload import Admission, Toleration, Workload

_NAMED: Final = 3
"""Of many workloads a sentence names so many."""


@dataclass(frozen=True, slots=True)
class QueueObjectChanged:
    """A queue object, such as a ClusterQueue, was created or has changed."""

    object: QueueObject


def decisive_part(item: QueueObject | None) -> object:
    """Return the part of a queue object on which decisions depend; None: on nothing, or there is no object.

    A write that leaves it equal changes no decision. The reason for a stop only occurs in messages.
    """
    match item:
        case ResourceFlavor() | Cohort() | ClusterQueue() | LocalQueue() | Topology():
            return item.spec
        case Budget() | PriceBook() | Reservation() | Drain() | UserLimit():
            return item.spec
        case AdmissionCheck():
            return item.name  # only whether it exists
        case Cluster():
            return item.metadata.labels  # flavors select clusters by them
        case _:  # a WorkloadPriorityClass matters only when workloads are created
            return None


@dataclass(frozen=True, slots=True)
class QueueObjectDeleted:
    """A queue object was deleted. `namespace` is empty for all kinds but LocalQueue."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class NamespaceChanged:
    """A namespace was created or deleted, or its labels have changed, which namespaceSelectors match."""

    name: str
    labels: Mapping[str, str] | None
    """None: the namespace was deleted."""


@dataclass(frozen=True, slots=True)
class WorkloadPending:
    """A workload is pending: a new one, one that was requeued, or one that has changed."""

    workload: Workload
    on_hold: bool = False
    """Whether it is kept out of cycles by its user, an admin or a fault."""
    fault: tuple[str, str] | None = None
    """Reason and message if it cannot be admitted as it is."""
    not_before: float = 0.0
    """Unix time (s) at which its requeue backoff ends; before that it takes no part in cycles. 0: no backoff."""


@dataclass(frozen=True, slots=True)
class WorkloadAdmitted:
    """A workload holds quota that this engine did not decide: loaded state, or a resized workload. Not for an Admit."""

    workload: Workload
    admission: Admission
    at: float
    """Unix time (s) of the admission."""
    evicting: bool = False
    """Whether it is being evicted, and its pods have not all terminated."""
    cleared_at: float = 0.0
    """Unix time (s) at which its admission checks were ready; 0: they are not, or it needs none."""


@dataclass(frozen=True, slots=True)
class WorkloadCleared:
    """All admission checks of a workload that holds quota are ready, so that it starts."""

    uid: str
    at: float
    """Unix time (s)."""


@dataclass(frozen=True, slots=True)
class WorkloadEnded:
    """A workload has succeeded, or has ended in another way. For workloads that start after it."""

    namespace: str
    name: str
    kind: str
    """In lower case: `job`."""
    created: float
    """Unix time (s)."""
    succeeded: bool


@dataclass(frozen=True, slots=True)
class ClustersLost:
    """The clusters in which nothing can be stopped at present: their workloads are not preempted."""

    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class WorkloadPreempted:
    """A workload was preempted before this engine started, and has not finished."""

    uid: str
    at: float
    """Unix time (s)."""


@dataclass(frozen=True, slots=True)
class WorkloadEvicted:
    """A workload is being evicted by a decision outside of the engine. It holds its quota until WorkloadGone."""

    uid: str


@dataclass(frozen=True, slots=True)
class WorkloadGone:
    """A workload's quota is free: it has finished, was deleted, or its pods have terminated after an eviction."""

    uid: str
    requeue: Workload | None = None
    """After an eviction, the workload as it is pending from now on; None: it is not requeued."""
    on_hold: bool = False
    """As in WorkloadPending, if it is requeued."""
    not_before: float = 0.0
    """As in WorkloadPending, if it is requeued."""


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """A node was added or has changed. Only with `Policy.topology`, as all events of nodes and pods."""

    node: NodeState
    cluster: str = LOCAL


@dataclass(frozen=True, slots=True)
class NodeDeleted:
    """A node is gone."""

    name: str
    cluster: str = LOCAL


@dataclass(frozen=True, slots=True)
class PodBound:
    """A pod that is not placed by topology takes room on a node."""

    uid: str
    node: str
    requests: Mapping[str, int]
    """Resource to amount, without `pods`."""
    cluster: str = LOCAL


@dataclass(frozen=True, slots=True)
class PodEnded:
    """Such a pod has ended, or is gone."""

    uid: str
    cluster: str = LOCAL


@dataclass(frozen=True, slots=True)
class NodesListed:
    """All nodes of a cluster, and all pods on them, follow: others that were known before are gone."""

    cluster: str = LOCAL


@dataclass(frozen=True, slots=True)
class NodesFailed:
    """Nodes on which an admitted workload has pods have failed, so that these need another place."""

    uid: str
    nodes: tuple[str, ...]
    """All failed nodes of the workload; empty: all work again."""


@dataclass(frozen=True, slots=True)
class PodAdditions:
    """What an admission check adds to the pods of a pod set, as far as it decides where they may run."""

    node_selector: Mapping[str, str]
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class ChecksReady:
    """All admission checks of a workload are Ready that holds quota: pods whose placement was delayed are placed."""

    uid: str
    additions: Mapping[str, PodAdditions]
    """By name of the pod set."""


TopologyEvent: TypeAlias = NodeChanged | NodeDeleted | PodBound | PodEnded | NodesListed | NodesFailed | ChecksReady

Event: TypeAlias = (
    QueueObjectChanged
    | QueueObjectDeleted
    | NamespaceChanged
    | ClustersLost
    | PolicyEvent
    | TopologyEvent
    | WorkloadPending
    | WorkloadAdmitted
    | WorkloadCleared
    | WorkloadEnded
    | WorkloadEvicted
    | WorkloadGone
    | WorkloadPreempted
)


@dataclass(frozen=True, slots=True)
class Admit:
    """Admit the workload: its quota counts as used until `Engine.forget` or WorkloadGone."""

    workload: Workload
    admission: Admission


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict the workload. It holds its quota until WorkloadGone.

    Exception: with the reason WorkloadSliceReplaced the quota belongs to the preemptor, the new slice, immediately.
    """

    workload: Workload
    reason: str
    """Kueue's eviction reason: Preempted, ClusterQueueStopped, LocalQueueStopped ..."""
    message: str
    preemptor: str | None = None
    """Uid of the workload for which it is evicted; None: it is evicted for another reason."""
    preemption_reason: str = ""
    """For Preempted: InClusterQueue, TimeSlice, InCohortReclamation, InCohortFairSharing or
    InCohortReclaimWhileBorrowing."""

    @property
    def to_queue_end(self) -> bool:
        """Whether it queues again behind all others of its priority."""
        return self.preemption_reason == TIME_SLICE


@dataclass(frozen=True, slots=True)
class Reassign:
    """A workload that holds quota has other domains: a node has failed, or its placement was delayed."""

    workload: Workload
    admission: Admission


@dataclass(frozen=True, slots=True)
class Park:
    """Why a workload stays pending. Reported only if reason or message differ from the last ones reported."""

    workload: Workload
    reason: str
    """A reason of `vocabulary`, such as WaitingForQuota or ExceedsMaxQuota, or of a policy."""
    message: str


@dataclass(frozen=True, slots=True)
class Flap:
    """A preemption without effect: the targets have released their quota, and the preemptor is still pending.

    Not a decision, but reported as a warning, as it may repeat. Kueue's rules allow it: the released quota may go to
    another workload, or the preemptor's next nomination may start at another flavor.
    """

    preemptor: Workload
    victims: tuple[str, ...]
    """Namespaced names (`namespace/name`) of the preempted workloads."""
    returned: tuple[str, ...]
    """Namespaced names of the preempted workloads that were admitted again in the meantime."""

    @property
    def message(self) -> str:
        """The warning for the log."""
        again = f", and {listed(self.returned, limit=_NAMED)} were admitted again" if self.returned else ""
        victims = listed(self.victims, limit=_NAMED)
        return f"{victims} were preempted for {self.preemptor.key}, which was not admitted then{again}"


@dataclass(frozen=True, slots=True)
class Decisions:
    """The decisions of one or more cycles; each list is in the order in which they were made."""

    admitted: tuple[Admit, ...] = ()
    evicted: tuple[Evict, ...] = ()
    parked: tuple[Park, ...] = ()
    cycles: int = field(default=1)
    """The number of cycles."""
    flapping: tuple[Flap, ...] = ()
    """Preemptions without effect that were detected."""
    reassigned: tuple[Reassign, ...] = ()
    """Workloads that were placed once more."""
    unplaced: tuple[Park, ...] = ()
    """Workloads that could not be placed once more; they hold quota, and it is tried again."""

    def __bool__(self) -> bool:
        return bool(self.admitted or self.evicted or self.parked or self.reassigned)
