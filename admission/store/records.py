"""Record types of the store: workloads, admins' orders, changes to commit, pages, counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from admission.model.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.model.checks import CheckState, PodSetUpdate
    from admission.model.queues import QueueObject
    from admission.model.workload import Admission, Workload

Document: TypeAlias = "dict[str, Any]"
"""A JSON document."""


class State(StrEnum):
    """State of a workload."""

    PENDING = "pending"
    """Holds no quota."""
    ADMITTED = "admitted"
    """Holds quota; whether it may run depends on its admission checks, see `WorkloadRecord.checks_pending`."""
    EVICTING = "evicting"
    """Is being stopped, and holds its quota until its pods have terminated."""
    FINISHED = "finished"
    """Its object has finished or was deleted, or has left its queue."""


FAILED = "Failed"
"""Outcome of a workload whose object has failed."""
DEQUEUED = "Dequeued"
"""Outcome of a workload whose queue label was removed: it may be queued again."""


RESIZED = "Resized"
"""Another number of pods was asked for; as the next three, an end reason of rows of the ledger whose admission goes on,
and a reason in the history."""
RECLAIMED = "Reclaimed"
"""Some of its pods are no longer needed (as in Kueue)."""
NODE_REPLACED = "NodeReplaced"
"""A node of its pods has failed."""
LEARNED = "Learned"
"""Its pods request more than their templates, and quota follows."""
FORCED = "ForcefullyTerminated"
"""A pod of it that stayed terminating on an unreachable node was taken for ended; a reason in the history only."""
IDLE = "Idle"
"""It has not used what it holds for a long time; a reason in the history only."""
SUCCEEDED = "Succeeded"
"""Outcome of a workload that has done what it was for."""
GOES_ON = (RESIZED, RECLAIMED, NODE_REPLACED, LEARNED)
"""End reasons of rows of the ledger whose admission goes on with other amounts or domains."""


@dataclass(frozen=True, slots=True)
class LastEviction:
    """The last eviction of a workload."""

    reason: str
    """Kueue's eviction reason: Preempted, PodsReadyTimeout, ClusterQueueStopped ..."""
    message: str
    at: float
    """Seconds since the epoch."""
    preemption: str = ""
    """Kueue's preemption reason, if it was preempted: InClusterQueue, InCohortReclamation ...; else empty."""


@frozen(frozen=True, slots=True)
class WorkloadRecord:
    """A workload with its persisted state. Times are seconds since the epoch."""

    workload: Workload
    state: State
    queued_at: float
    """Start of its present wait, or of the wait before its admission."""
    cluster_queue: str = ""
    """The ClusterQueue in which it holds quota, or last held it; empty if it never did. See `status_cluster_queue`."""
    reason: str = ""
    """Reason of its state, from the engine's vocabulary."""
    message: str = ""
    """Message for users that goes with `reason`."""
    evict_reason: str = ""
    """Why it is being evicted; else empty."""
    admission: Admission | None = None
    """Read from the ledger, and ignored when the record is written: `Changes` begins and ends admissions."""
    original: Document | None = None
    """Values of the Kubernetes object that its (last) admission replaced, to be restored on eviction."""
    admitted_at: float | None = None
    finished_at: float | None = None
    outcome: str = ""
    """Outcome of a finished workload, such as Succeeded, Failed or Deleted; else empty."""
    active: bool = True
    """Kueue's `spec.active`; False: deactivated, until its user or an admin activates it again."""
    checks_pending: bool = False
    """Whether it holds quota and some of its admission checks are not Ready."""
    cleared_at: float | None = None
    """When its start was allowed: it held quota, and all its admission checks were Ready."""
    ready_at: float | None = None
    """When all pods of the present admission were ready, first or again after some were not."""
    unready_at: float | None = None
    """Since when some pods are not ready any more; None: all are ready, or never were."""
    requeues: int = 0
    """Number of evictions that count for the requeue backoff."""
    not_before: float | None = None
    """End of its requeue backoff, until when cycles skip it."""
    past_seconds: float = 0.0
    """Seconds that it ran in former admissions; they count for its maximum execution time."""
    eviction: LastEviction | None = None
    """The last eviction; kept while it waits again, and after it was admitted again."""
    revision: int = 0
    """Revision of its last write, assigned by the database."""
    first_revision: int = field(default=0, compare=False)
    """Revision of its first write, assigned by the database."""

    @property
    def status_cluster_queue(self) -> str:
        """Where it holds quota or, if it has finished, last held it; empty while pending: its LocalQueue may change."""
        return "" if self.state is State.PENDING else self.cluster_queue

    @property
    def runs_in(self) -> str:
        """The cluster in which it runs or, if it does not, in which its object is."""
        sent_to = "" if self.admission is None else self.admission.cluster
        return sent_to or self.workload.cluster

    @property
    def is_stop_hindered(self) -> bool:
        """Whether something keeps it from being stopped, or given back as it was: its message then says what."""
        return self.state is State.EVICTING and self.eviction is not None and self.message != self.eviction.message


@dataclass(frozen=True, slots=True)
class Order:
    """An admin's order: overrides for one workload, which take precedence over its object. None: no override."""

    uid: str
    """Uid of the workload."""
    local_queue: str | None = None
    """The LocalQueue that it was moved to."""
    priority: int | None = None
    """Priority in place of that of its priority class."""
    held: bool = False
    """Whether an admin has put it on hold."""
    rank_priority: int | None = None
    """Priority by which it is sorted among the pending workloads of its ClusterQueue ..."""
    rank_at: float | None = None
    """... and the queueing time (seconds since the epoch) that goes with it. Preemption does not use either."""
    active: bool | None = None
    """False: deactivated, True: activated again. None: no order since Sluice itself has deactivated it, if ever."""
    author: str = ""
    """The author of the last change."""
    reason: str = ""
    """The author's reason."""
    revision: int = 0
    """Revision of its last write, assigned by the database."""


@dataclass(frozen=True, slots=True)
class CheckRecord:
    """State of an admission check of a workload, for its present admission only."""

    uid: str
    """Uid of the workload."""
    name: str
    """Name of the AdmissionCheck."""
    state: CheckState
    at: float
    """Since when it has been in this state (Unix time, s)."""
    message: str = ""
    requeue_after_seconds: int | None = None
    """Backoff that the check's controller requests with Retry."""
    retries: int = 0
    """How many times its state was Retry."""
    pod_set_updates: tuple[PodSetUpdate, ...] = ()
    """Labels, annotations, node selectors and tolerations that the check adds to the pods."""
    revision: int = 0
    """Revision of its last write, assigned by the database."""


@dataclass(frozen=True, slots=True)
class Opened:
    """Start of an admission: the workload holds quota from `at` on (Unix time, s)."""

    workload: Workload
    admission: Admission
    at: float


@dataclass(frozen=True, slots=True)
class Closed:
    """End of a workload's admission: its quota is free from `at` on (Unix time, s). No-op if it holds none."""

    uid: str
    at: float
    reason: str
    """Why it ended: Finished, Preempted, Deleted ..."""


@dataclass(frozen=True, slots=True)
class Resized:
    """Change of the amounts of an admission: its ledger rows end at `at` (Unix time, s), and new ones start then.

    No-op if the workload holds no quota.
    """

    workload: Workload
    admission: Admission
    """The whole admission after the change."""
    at: float
    reason: str = RESIZED
    """End reason of the old rows."""


@dataclass(frozen=True, slots=True)
class Transition:
    """An entry in the history of a workload: its state, reason and message from `at` on (Unix time, s)."""

    uid: str
    at: float
    state: State
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes that the leader commits together, written in this order: records, closed, opened, resized, transitions.

    So an admission may end and the next one start in the same changes, but one that starts in them cannot end in them.
    """

    workloads: tuple[WorkloadRecord, ...] = ()
    """Upserts by uid; of several records of one workload the last one is written."""
    closed: tuple[Closed, ...] = ()
    opened: tuple[Opened, ...] = ()
    transitions: tuple[Transition, ...] = ()
    checks: tuple[CheckRecord, ...] = ()
    """Admission checks that are requested or reset; they replace the stored states."""
    dropped_checks: tuple[tuple[str, str], ...] = ()
    """(uid, name) of admission checks that are no longer required; their rows are deleted."""
    deactivated: tuple[str, ...] = ()
    """Uids of workloads that Sluice has deactivated; admins' earlier orders to activate them are cleared."""
    resized: tuple[Resized, ...] = ()
    known: int | None = None
    """Revision up to which the leader had read queue objects when it decided; None: the revision of this commit."""

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
    """A version of a queue object: its state after a change (before a deletion), with author and reason."""

    object: QueueObject
    operation: str
    """create, replace or delete."""
    author: str
    reason: str
    at: float
    """Seconds since the epoch."""
    revision: int
    """Revision of the database that the change created."""


class FinishedWorkload(NamedTuple):
    """What is remembered of a finished workload."""

    uid: str
    namespace: str
    name: str
    kind: str
    created: float
    """Unix time (s)."""
    outcome: str


@dataclass(frozen=True, slots=True)
class LoadedState:
    """The state that a leader starts from: one snapshot of the database, at `revision`."""

    queue_objects: tuple[QueueObject, ...]
    workloads: tuple[WorkloadRecord, ...]
    """Unfinished workloads, oldest first."""
    revision: int
    orders: tuple[Order, ...] = ()
    """Admins' orders about these workloads."""
    checks: tuple[CheckRecord, ...] = ()
    """Admission checks of these workloads."""
    last_transition_at: Mapping[str, float] = field(default_factory=dict)
    """Time of the last recent transition of each workload that is pending or being evicted, by uid (Unix time, s)."""
    recently_finished: tuple[FinishedWorkload, ...] = ()
    """The workloads that finished last, oldest first: a lagging watch may still show them unfinished, and others may
    start after them."""
    preemptions: tuple[tuple[str, float], ...] = ()
    """Preemptions of these workloads that protect from further ones: uid, and when its quota was free (Unix time, s).
    In the order of time; empty if no ClusterQueue protects them."""
    faults: Mapping[str, Exception] = field(default_factory=dict)
    """Errors of workload rows that cannot be read, by uid; their records have the columns that can."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a list of workloads, sorted by namespace, name and uid."""

    workloads: tuple[WorkloadRecord, ...]
    revision: int
    """Revision of the database when the page was read."""
    after: tuple[str, str, str] | None
    """Cursor of the next page: (namespace, name, uid) of the last workload on this one; None: this is the last page."""
    remaining: int | None = 0
    """Number of workloads after this page; None: not counted."""


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """Status counts of a ClusterQueue or LocalQueue, as in Kueue's status."""

    pending: int = 0
    """Number of pending workloads."""
    reserving: int = 0
    """Number of workloads that hold quota."""
    admitted: int = 0
    """Number of workloads that hold quota, have no pending admission check, and are not being evicted."""
    usage: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Quota in use by (flavor, resource): milli-CPU for cpu, else base units."""


@dataclass(slots=True)
class ClusterNumbers:
    """Status counts of a cluster."""

    pending: int = 0
    """Number of its pending workloads."""
    reserving: int = 0
    """Number of its workloads that hold quota."""
    waiting: dict[str, int] = field(default_factory=dict)
    """Number of its pending workloads by ClusterQueue; without those in LocalQueues that do not exist."""
    usage: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """Quota that they hold, by (ClusterQueue, flavor, resource): milli-CPU for cpu, else base units."""

    def used(self) -> dict[tuple[str, str], int]:
        """Return the quota that they hold in all ClusterQueues together, by (flavor, resource)."""
        found: Counter[tuple[str, str]] = Counter()
        for (_, flavor, resource), amount in self.usage.items():
            found[flavor, resource] += amount
        return dict(found)


@dataclass(frozen=True, slots=True)
class UnfinishedCount:
    """Number of unfinished workloads that have the same queue, state and reason."""

    namespace: str
    local_queue: str
    cluster_queue: str
    """Where they are pending or hold quota; empty if pending in a LocalQueue without an existing ClusterQueue."""
    state: State
    checks_pending: bool
    reason: str
    number: int


@dataclass(frozen=True, slots=True)
class HeldAmount:
    """Quota of one flavor and resource of a ClusterQueue that workloads of one LocalQueue hold."""

    namespace: str
    local_queue: str
    cluster_queue: str
    flavor: str
    resource: str
    checks_pending: bool
    """Whether the workloads have admission checks that are not Ready."""
    amount: int
    """Milli-CPU for cpu, else base units."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counters of the store since it was opened."""

    write_transactions: int
    commits: int
    """Successful calls of `Store.commit`; several may share a transaction."""


@dataclass(frozen=True, slots=True)
class PoolUse:
    """Use of a pool of database connections."""

    name: str
    """Purpose of its connections: write, read, maintain or look (read-only, in a worker thread)."""
    size: int
    """Maximum number of connections."""
    used: int
    """Number of connections in use."""
