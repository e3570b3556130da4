"""Records that are written to and read from the database: workloads, orders, changes, pages, numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from admission.model.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.model.checks import CheckState, PodSetUpdate
    from admission.model.queues import QueueObject
    from admission.model.workload import Admission, Workload

Document: TypeAlias = "dict[str, Any]"
"""A JSON document."""


class State(StrEnum):
    """The state of a workload."""

    PENDING = "pending"
    ADMITTED = "admitted"
    EVICTING = "evicting"
    """It was told to stop, and holds its quota until its pods are gone."""
    FINISHED = "finished"


DEQUEUED = "Dequeued"
"""The outcome of a workload whose queue label was removed: it may come back."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """The last eviction of a workload."""

    reason: str
    """Kueue's: Preempted, PodsReadyTimeout, ClusterQueueStopped ..."""
    message: str
    at: float
    preemption: str = ""
    """Of one that was preempted, Kueue's reason for that: InClusterQueue, InCohortReclamation ..."""


@frozen(frozen=True, slots=True)
class WorkloadRecord:
    """A workload with its state, as it survives a restart. Times are seconds since the epoch."""

    workload: Workload
    state: State
    queued_at: float
    """When it was last queued: the begin of the present wait, or of the one before its admission."""
    cluster_queue: str = ""
    """The ClusterQueue in which it is pending or holds quota; empty while its LocalQueue names none that exists."""
    reason: str = ""
    message: str = ""
    evict_reason: str = ""
    admission: Admission | None = None
    """Read from the ledger. To begin or end an admission, see `Changes`; what a record says of it is not written."""
    original: Document | None = None
    """The values in the Kubernetes object that its (last) admission replaced, to be restored on eviction."""
    admitted_at: float | None = None
    finished_at: float | None = None
    outcome: str = ""
    """The outcome of a finished workload, such as Succeeded, Failed or Deleted; else empty."""
    active: bool = True
    """Kueue's `spec.active`; False: deactivated, until its user or an admin activates it again."""
    checks_pending: bool = False
    """Whether it holds quota and some of its admission checks are not Ready."""
    cleared_at: float | None = None
    """When it was let run: it holds quota, and its admission checks are Ready."""
    ready_at: float | None = None
    """When all pods of this admission were first ready, or were so again."""
    unready_at: float | None = None
    """Since when they are not all ready any more; None: they are, or never were."""
    requeues: int = 0
    """The number of evictions that count for the requeue backoff."""
    not_before: float | None = None
    """The end of its requeue backoff, before which it takes no part in cycles."""
    past_seconds: float = 0.0
    """Seconds that it ran in former admissions; they count for its time limit."""
    eviction: Eviction | None = None
    """The last one, also while it waits again or was admitted again."""
    revision: int = 0
    """The revision of its last write, given by the database."""
    first_revision: int = field(default=0, compare=False)
    """The revision of its first write."""


@dataclass(frozen=True, slots=True)
class Order:
    """An admin's order about a workload, which overrides what its object asks for."""

    uid: str
    local_queue: str | None = None
    """The LocalQueue that it was moved to."""
    priority: int | None = None
    held: bool = False
    rank_priority: int | None = None
    """Its place in the order of its ClusterQueue is as if it had this priority ..."""
    rank_at: float | None = None
    """... and had waited since then."""
    active: bool | None = None
    """False: out of the queue for good, True: back in it. None: not ordered since Sluice itself took it out."""
    author: str = ""
    """The author of the last change."""
    reason: str = ""
    revision: int = 0
    """The revision of its last write, given by the database."""


@dataclass(frozen=True, slots=True)
class CheckRecord:
    """The state of an admission check of a workload. It counts for the present admission only."""

    uid: str
    name: str
    """Of the AdmissionCheck."""
    state: CheckState
    at: float
    """Since when it is in this state."""
    message: str = ""
    requeue_after_seconds: int | None = None
    retries: int = 0
    """How many times its state was Retry."""
    pod_set_updates: tuple[PodSetUpdate, ...] = ()
    revision: int = 0
    """The revision of its last write, given by the database."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The begin of an admission: quota is held from `at` on (Unix time, s)."""

    workload: Workload
    admission: Admission
    at: float


@dataclass(frozen=True, slots=True)
class Closed:
    """The end of a workload's admission: its quota is free from `at` on. Without effect if it holds none."""

    uid: str
    at: float
    reason: str
    """Finished, Preempted, Deleted ..."""


@dataclass(frozen=True, slots=True)
class Resized:
    """The same admission holds other amounts from `at` on: its rows end, and new ones begin at the same instant.

    Nothing happens if the workload holds nothing.
    """

    workload: Workload
    admission: Admission
    """The whole admission as it is from then on."""
    at: float
    reason: str = "Resized"


@dataclass(frozen=True, slots=True)
class Transition:
    """A transition of a workload: an entry of its history."""

    uid: str
    at: float
    state: State
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Changes:
    """What one transaction writes, in this order: records (by uid), endings, beginnings, resizings, story.

    So an admission may end and the next one begin in the same changes, but one that begins in them cannot end in them.
    """

    workloads: tuple[WorkloadRecord, ...] = ()
    closed: tuple[Closed, ...] = ()
    opened: tuple[Opened, ...] = ()
    transitions: tuple[Transition, ...] = ()
    checks: tuple[CheckRecord, ...] = ()
    """Asked anew: these replace what was said before."""
    dropped_checks: tuple[tuple[str, str], ...] = ()
    """(uid, name) of those that are not asked any more."""
    deactivated: tuple[str, ...] = ()
    """Workloads that Sluice took out of the queue for good, whatever an admin had ordered before."""
    resized: tuple[Resized, ...] = ()
    known: int | None = None
    """The revision of queue objects that the decider had read; None: that of this commit."""

    def __bool__(self) -> bool:
        return bool(
            self.workloads
            or self.closed
            or self.opened
            or self.transitions
            or self.checks
            or self.dropped_checks
            or self.deactivated
            or self.resized
        )


@dataclass(frozen=True, slots=True)
class QueueObjectVersion:
    """A version of a queue object: as it was after a change (before a deletion), with author and reason."""

    object: QueueObject
    operation: str
    """create, replace or delete."""
    author: str
    reason: str
    at: float
    revision: int


@dataclass(frozen=True, slots=True)
class LoadedState:
    """The state that a leader starts from, as of `revision`."""

    queue_objects: tuple[QueueObject, ...]
    workloads: tuple[WorkloadRecord, ...]
    """Unfinished workloads, oldest first."""
    revision: int
    orders: tuple[Order, ...] = ()
    """About them."""
    checks: tuple[CheckRecord, ...] = ()
    written: Mapping[str, float] = field(default_factory=dict)
    """When the last line of the story of one that waits or is being evicted was written, by uid, if that was lately."""
    ended: tuple[str, ...] = ()
    """Uids of the workloads that finished last, oldest first: a watch that lags may still show them unfinished."""
    faults: Mapping[str, Exception] = field(default_factory=dict)
    """Why rows of workloads cannot be read, by uid; what could be read of them is among the records."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a list of workloads, sorted by namespace, name and uid."""

    workloads: tuple[WorkloadRecord, ...]
    revision: int
    """The database's revision when the page was read."""
    after: tuple[str, str, str] | None
    """The key after which the next page begins; None: this is the last."""
    remaining: int | None = 0
    """The number of workloads after this page; None: not counted."""


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """Numbers of a ClusterQueue or LocalQueue: pending workloads, workloads with quota, quota in use."""

    pending: int = 0
    reserving: int = 0
    """Workloads that hold quota."""
    admitted: int = 0
    """Those of them that may run: not being stopped, and no admission check is pending."""
    usage: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Amounts in use by (flavor, resource), as in the model."""


@dataclass(frozen=True, slots=True)
class UnfinishedCount:
    """A count of unfinished workloads by state, queue and reason."""

    namespace: str
    local_queue: str
    cluster_queue: str
    """Where they wait or hold quota; empty for those that wait where their LocalQueue leads nowhere."""
    state: State
    checks_pending: bool
    reason: str
    number: int


@dataclass(frozen=True, slots=True)
class HeldAmount:
    """The quota that workloads of a LocalQueue hold of one flavor and resource of a ClusterQueue."""

    namespace: str
    local_queue: str
    cluster_queue: str
    flavor: str
    resource: str
    checks_pending: bool
    """Whether their admission checks are not all ready."""
    amount: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counters of the store since it was opened."""

    write_transactions: int
    commits: int
    """Calls of `Store.commit`; several may share a transaction."""


@dataclass(frozen=True, slots=True)
class PoolUse:
    """The use of a pool of connections to the database."""

    name: str
    """write, read ...: what its connections are for."""
    size: int
    """The size of the pool."""
    used: int
    """Connections in use."""
