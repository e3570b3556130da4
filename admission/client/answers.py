"""Typed values of the client's responses: workloads, explanations, histories, impact, usage.

Times are timezone-aware datetimes in UTC. Quantities are strings as in Kubernetes (`500m`, `10Gi`). Fields that the
server leaves out are empty, 0 or None.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from admission.model.resource_words import usage_unit

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from admission.client.transport import Document

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition with a type of Kueue: QuotaReserved, Admitted, PodsReady, Evicted, Preempted, Requeued, Finished."""

    type: str
    holds: bool
    """Whether its status is True."""
    reason: str = ""
    message: str = ""
    since: datetime | None = None
    """Time of its last transition."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload: a queued Kubernetes object. `document` is the complete document of the server."""

    name: str
    namespace: str
    uid: str
    object_kind: str
    object_name: str
    queue: str
    """Name of the LocalQueue."""
    cluster_queue: str
    priority: int
    user: str
    """User who submitted the object."""
    created: datetime | None
    conditions: Mapping[str, Condition] = field(repr=False)
    """By type."""
    document: Document = field(repr=False, compare=False)

    @property
    def admitted(self) -> bool:
        """Whether it is admitted: it has quota, and may run."""
        return self._holds("Admitted")

    @property
    def finished(self) -> bool:
        """Whether it has finished; the reason of the condition says whether it succeeded or failed."""
        return self._holds("Finished")

    def _holds(self, kind: str) -> bool:
        condition = self.conditions.get(kind)
        return condition is not None and condition.holds


@dataclass(frozen=True, slots=True)
class Attempt:
    """A flavor that was tried for a pod set; `reason` (of docs/reasons.md) and `obstacles` say why it does not fit."""

    pod_set: str
    flavor: str
    reason: str = ""
    obstacles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lack:
    """Missing quota for one resource in one flavor."""

    flavor: str
    resource: str
    asked: str
    """The amount that all pod sets together request."""
    free: str
    """Amount that its ClusterQueue could use now, including borrowing."""
    borrowable: str
    """The part of `free` that would be borrowed."""
    most: str
    """Amount that its ClusterQueue could use if nothing else was in use."""
    used: str
    """Amount that its ClusterQueue uses."""
    used_by_others: str
    """Amount that all other ClusterQueues of its Cohorts use."""
    refused_by: str
    """The queue or Cohort that is the limit, and by which quota: `Cohort research: nominalQuota`."""
    hint: str
    """What would help."""


@dataclass(frozen=True, slots=True)
class StartEstimate:
    """Estimated start: half of the workloads with this estimate start before `p50`, nine of ten before `p90`."""

    p50: datetime
    p90: datetime
    made: datetime
    share_held: float | None
    """Share of past estimates for which the workload had started by p90; None while there are too few."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Explanation of a workload's state: `reason` is one of docs/reasons.md, `message` describes it and what helps."""

    state: str
    reason: str
    message: str
    cluster_queue: str
    position_in_cluster_queue: int
    """From 1; 0 if it is not pending, or cannot be admitted as it is."""
    position_in_local_queue: int
    not_before: datetime | None
    """End of its backoff, after an eviction that it caused itself."""
    ahead: int
    """Number of workloads ahead of it in its ClusterQueue."""
    ahead_first: tuple[str, ...]
    """`namespace/name` of the first of these in its own namespace."""
    attempts: tuple[Attempt, ...]
    lacks: tuple[Lack, ...]
    prospects: tuple[str, ...]
    """What preemption of others could free, one sentence for each missing resource."""
    estimated_start: StartEstimate | None = None
    remedies: tuple[str, ...] = ()
    """Changes, each of which would let it be admitted now; they complete the sentence "It could start now ..."."""
    sentences: tuple[str, ...] = ()
    """The answer in paragraphs, the headline first, as `sluice why` prints them."""
    standing: str = ""
    """Its position as text, as `sluice position` prints it."""
    details: tuple[str, ...] = ()
    """What `sluice why --verbose` prints below."""
    no_estimate: str = ""
    """Why there is no `estimated_start`, and when there will be."""
    waiting_in_cluster_queue: int = 0
    """Number of workloads with a position in its ClusterQueue."""
    waiting_in_local_queue: int = 0
    """Number of workloads with a position in its LocalQueue."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A pending workload with its positions: from 1; 0 if it cannot be admitted as it is."""

    name: str
    namespace: str
    priority: int
    local_queue: str
    position_in_cluster_queue: int
    position_in_local_queue: int
    created: datetime | None
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Transition:
    """An event in the history of a workload; `state` is its state from then on."""

    at: datetime
    state: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Held:
    """Quota that a workload had from `start` to `end` (None: it still has it)."""

    start: datetime
    end: datetime | None
    end_reason: str
    cluster_queue: str
    pod_set: str
    flavor: str
    resource: str
    amount: str
    count: int


@dataclass(frozen=True, slots=True)
class Fold:
    """Events in which a workload was admitted and evicted again and again; `first` and `last` are their indices."""

    first: int
    last: int
    rounds: int
    """The number of its admissions."""
    preemptors: int
    """The number of different workloads for which it was preempted."""


@dataclass(frozen=True, slots=True)
class Story:
    """History of a workload, the oldest events first."""

    transitions: tuple[Transition, ...]
    admissions: tuple[Held, ...]
    folds: tuple[Fold, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """A changed field; `before` or `after` is None if the field did not or does not exist."""

    path: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Revision:
    """A version of a queue object, with author, time and reason."""

    revision: str
    at: datetime
    operation: str
    user: str
    reason: str
    changes: tuple[Change, ...]
    document: Document | None = field(repr=False)
    """The object in this version; None if it was deleted."""


@dataclass(frozen=True, slots=True)
class Affected:
    """A workload that a write would affect; `why`: reason of its eviction, or why it could not be admitted any more."""

    name: str
    namespace: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Overrun:
    """Usage beyond quota in a ClusterQueue or Cohort (`kind`, `name`), by the amount `by`."""

    kind: str
    name: str
    flavor: str
    resource: str
    by: str


@dataclass(frozen=True, slots=True)
class Impact:
    """Immediate impact of a write on workloads, computed in a dry run."""

    admitted: tuple[Affected, ...] = ()
    evicted: tuple[Affected, ...] = ()
    impossible: tuple[Affected, ...] = ()
    over_quota: tuple[Overrun, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.admitted or self.evicted or self.impossible or self.over_quota)


@dataclass(frozen=True, slots=True)
class Written(Generic[T]):
    """Result of a write: the object, and the impact (None if it was not a dry run)."""

    object: T
    impact: Impact | None


@dataclass(frozen=True, slots=True)
class UsageRow:
    """Usage of a resource by one group of a report, in resource-seconds (cpu: core-seconds).

    `keys` identify the group: namespace and queue if it is grouped by `queue`, clusterQueue for `clusterqueue`,
    namespace, kind and workload for `workload`, `label:KEY` for such a label, else the field itself; and `period`
    (2026-11-22 or 2026-11), if the report is divided by period.
    """

    keys: Mapping[str, str]
    resource: str
    amount_seconds: float
    nominal_seconds: float
    borrowed_seconds: float
    partial: bool = False
    """Whether these are the figures of a part of the period only."""
    quota_seconds: float | None = None
    """Nominal quota of the group over the time, if it was asked for."""
    idle_seconds: float | None = None
    """The part of it that was not used."""

    @property
    def unit(self) -> str:
        """The customary unit of the resource: core-hours, GiB-hours, or hours of one unit of another resource."""
        return usage_unit(self.resource).name

    @property
    def used(self) -> float:
        """Total usage in `unit`."""
        return self.amount_seconds / usage_unit(self.resource).seconds

    @property
    def nominal(self) -> float:
        """Usage within nominal quota, in `unit`."""
        return self.nominal_seconds / usage_unit(self.resource).seconds

    @property
    def borrowed(self) -> float:
        """Usage beyond nominal quota, in `unit`."""
        return self.borrowed_seconds / usage_unit(self.resource).seconds


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Usage from `start` (included) to `end` (excluded), grouped by the fields in `by`."""

    start: datetime
    end: datetime
    by: tuple[str, ...]
    rows: tuple[UsageRow, ...]
    partial: bool = False
    """Whether it is about a part of the `month` or `quarter` only, such as one that is not over."""
