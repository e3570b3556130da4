"""What goes into the database and comes out of it: plain records, whole or nothing."""

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
    """Where a workload is on its way."""

    PENDING = "pending"
    ADMITTED = "admitted"
    EVICTING = "evicting"
    """Told to stop; it holds its quota until its pods are gone."""
    FINISHED = "finished"


DEQUEUED = "Dequeued"
"""The outcome of a workload whose queue label was removed: it may come back."""


@frozen(frozen=True, slots=True)
class WorkloadRecord:
    """A workload and all that has to survive a restart. Times are seconds since the epoch."""

    workload: Workload
    state: State
    queued_at: float
    """Since when it waits, or waited before it was last admitted."""
    cluster_queue: str = ""
    """Where it waits or holds quota; empty while its LocalQueue leads nowhere."""
    reason: str = ""
    message: str = ""
    evict_reason: str = ""
    admission: Admission | None = None
    """Read from the ledger. To begin or end an admission, see `Changes`; what a record says of it is not written."""
    original: Document | None = None
    """What its admission, the last one if it waits, replaced in the Kubernetes object, so that it can be put back."""
    admitted_at: float | None = None
    finished_at: float | None = None
    outcome: str = ""
    """How it ended, once it is finished."""
    active: bool = True
    """False: out of the queue for good (Kueue's `spec.active`), until its user or an admin takes it back in."""
    checks_pending: bool = False
    """It holds quota, and admission checks have not all said yet that it may start."""
    cleared_at: float | None = None
    """Since when it may run: it holds quota, and its admission checks are ready."""
    ready_at: float | None = None
    """Since when all pods of this admission are ready, or first were."""
    unready_at: float | None = None
    """Since when they are not all ready any more."""
    requeues: int = 0
    """Evictions that count for the backoff."""
    not_before: float | None = None
    """It takes no part in cycles until then."""
    past_seconds: float = 0.0
    """How long it ran in former admissions."""
    revision: int = 0
    """Of the last write, given by the database."""
    first_revision: int = field(default=0, compare=False)
    """Of the first one."""


@dataclass(frozen=True, slots=True)
class Order:
    """What an admin has ordered about one workload; it outweighs what its object asks for."""

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
    """Who ordered last."""
    reason: str = ""
    revision: int = 0
    """Of the last write, given by the database."""


@dataclass(frozen=True, slots=True)
class CheckRecord:
    """What an admission check says of a workload. What is said counts for the admission that it holds."""

    uid: str
    name: str
    """Of the AdmissionCheck."""
    state: CheckState
    at: float
    """Since when it is in this state."""
    message: str = ""
    requeue_after_seconds: int | None = None
    retries: int = 0
    """How often it has said Retry."""
    pod_set_updates: tuple[PodSetUpdate, ...] = ()
    revision: int = 0
    """Of the last write, given by the database."""


@dataclass(frozen=True, slots=True)
class Opened:
    """An admission begins: quota is held from `at` on."""

    workload: Workload
    admission: Admission
    at: float


@dataclass(frozen=True, slots=True)
class Closed:
    """Whatever the workload holds is free from `at` on. Nothing happens if it holds nothing."""

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
    """All that it holds from then on."""
    at: float
    reason: str = "Resized"


@dataclass(frozen=True, slots=True)
class Transition:
    """One line of a workload's story."""

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
    """Up to which revision the decider knew the queue objects; None: up to this commit's own."""

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
    """A queue object as it was after one change (before it, for a deletion), and who made the change why."""

    object: QueueObject
    operation: str
    """create, replace or delete."""
    author: str
    reason: str
    at: float
    revision: int


@dataclass(frozen=True, slots=True)
class LoadedState:
    """All that a restarted Sluice has to know, as of `revision`."""

    queue_objects: tuple[QueueObject, ...]
    workloads: tuple[WorkloadRecord, ...]
    """Those that are not finished, oldest first."""
    revision: int
    orders: tuple[Order, ...] = ()
    """About them."""
    checks: tuple[CheckRecord, ...] = ()
    ended: frozenset[str] = frozenset()
    """The uids of those that ended last, for good: a watch that lags behind may still show them as they were."""
    faults: Mapping[str, Exception] = field(default_factory=dict)
    """Why rows of workloads cannot be read, by uid; what could be read of them is among the records."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list of workloads, sorted by namespace, name and uid."""

    workloads: tuple[WorkloadRecord, ...]
    revision: int
    """The database's revision when the page was read."""
    after: tuple[str, str, str] | None
    """Where the next page begins; None at the end."""
    remaining: int | None = 0
    """How many there are after this page; None: not counted."""


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """What waits at a ClusterQueue or LocalQueue and what it holds."""

    pending: int = 0
    reserving: int = 0
    """Workloads that hold quota."""
    admitted: int = 0
    """Those of them that may run: not being stopped, and no admission check is pending."""
    usage: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """What they hold, by (flavor, resource)."""


@dataclass(frozen=True, slots=True)
class UnfinishedCount:
    """How many unfinished workloads have all of this in common."""

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
    """What workloads of one LocalQueue hold of one flavor and resource of a ClusterQueue."""

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
    """What the store has done since it was opened."""

    write_transactions: int
    commits: int
    """Calls of `Store.commit`; several may share a transaction."""


@dataclass(frozen=True, slots=True)
class PoolUse:
    """A pool of connections to the database at this moment."""

    name: str
    """write, read ...: what its connections are for."""
    size: int
    """Connections that there may be."""
    used: int
    """Those of them that somebody works with."""
