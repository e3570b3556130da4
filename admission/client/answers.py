"""What Sluice says about workloads, usage and the past, as plain typed values. Times are aware datetimes, in UTC.

Quantities stay the strings of Kubernetes (`500m`, `10Gi`); what the server leaves out is empty, 0 or None here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from admission.model.usage_units import usage_unit

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from admission.client.transport import Document

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Condition:
    """One of Kueue's conditions: QuotaReserved, Admitted, PodsReady, Evicted, Preempted, Requeued, Finished."""

    type: str
    holds: bool
    reason: str = ""
    message: str = ""
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """One queued Kubernetes object. `document` is all that the server said of it."""

    name: str
    namespace: str
    uid: str
    object_kind: str
    object_name: str
    queue: str
    """The LocalQueue."""
    cluster_queue: str
    priority: int
    user: str
    created: datetime | None
    conditions: Mapping[str, Condition] = field(repr=False)
    document: Document = field(repr=False, compare=False)

    @property
    def admitted(self) -> bool:
        """Whether it may run now."""
        return self._holds("Admitted")

    @property
    def finished(self) -> bool:
        """Whether it has ended, well or not; the condition's reason says which."""
        return self._holds("Finished")

    def _holds(self, kind: str) -> bool:
        condition = self.conditions.get(kind)
        return condition is not None and condition.holds


@dataclass(frozen=True, slots=True)
class Attempt:
    """A flavor that was considered for a pod set; `reason` (of the vocabulary) and `obstacles` say why not."""

    pod_set: str
    flavor: str
    reason: str = ""
    obstacles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lack:
    """One resource of one flavor of which a pod set cannot get enough now."""

    pod_set: str
    flavor: str
    resource: str
    asked: str
    free: str
    borrowable: str
    most: str
    refused_by: str
    hint: str


@dataclass(frozen=True, slots=True)
class StartEstimate:
    """When a workload will probably start: half of those with this estimate before `p50`, nine of ten before `p90`."""

    p50: datetime
    p90: datetime
    made: datetime
    share_held: float | None
    """The share of past estimates where the workload had started by p90; None while there are too few."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where a workload stands: `reason` is of docs/reasons.md, `message` its sentence, with what helps."""

    state: str
    reason: str
    message: str
    cluster_queue: str
    position_in_cluster_queue: int
    """From 1; 0 if it waits in none, or can not be admitted as it is."""
    position_in_local_queue: int
    not_before: datetime | None
    """Until when it takes no part, after an eviction that was its own fault."""
    ahead: int
    ahead_first: tuple[str, ...]
    """`namespace/name` of the first of them."""
    attempts: tuple[Attempt, ...]
    lacks: tuple[Lack, ...]
    prospects: tuple[str, ...]
    """What it might get by preemption of others, a sentence for each thing that is lacking."""
    estimated_start: StartEstimate | None = None
    remedies: tuple[str, ...] = ()
    """Changes with each of which it would be admitted now, as ends of the sentence "It could start now ..."."""
    sentences: tuple[str, ...] = ()
    """All that there is to say, a paragraph each, as `sluice why` prints them."""
    standing: str = ""
    """Where in the line it stands, as `sluice position` prints it."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A workload that waits, and where in the line: from 1, 0 if it can not be admitted as it is."""

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
    """A moment in the story of a workload."""

    at: datetime
    state: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Held:
    """Quota that a workload held from `start` to `end` (None: it still does)."""

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
class Story:
    """All that has happened to a workload, oldest first."""

    transitions: tuple[Transition, ...]
    admissions: tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """One field of a diff; `before` or `after` is None where there was or is nothing."""

    path: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Revision:
    """One version of a queue object: who made it what, when and why."""

    revision: str
    at: datetime
    operation: str
    user: str
    reason: str
    changes: tuple[Change, ...]
    document: Document | None = field(repr=False)
    """The object as it was then; None if it was deleted."""


@dataclass(frozen=True, slots=True)
class Affected:
    """A workload that a change would move; `why` is the reason of its eviction, or why it could not run any more."""

    name: str
    namespace: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Overrun:
    """More is in use than a node of the quota tree would have."""

    kind: str
    name: str
    flavor: str
    resource: str
    by: str


@dataclass(frozen=True, slots=True)
class Impact:
    """What would follow at once from a write that was a dry run."""

    admitted: tuple[Affected, ...] = ()
    evicted: tuple[Affected, ...] = ()
    impossible: tuple[Affected, ...] = ()
    over_quota: tuple[Overrun, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.admitted or self.evicted or self.impossible or self.over_quota)


@dataclass(frozen=True, slots=True)
class Written(Generic[T]):
    """What a write made of the object (or, in a dry run, would); `impact` is None without one."""

    object: T
    impact: Impact | None


@dataclass(frozen=True, slots=True)
class UsageRow:
    """What was held of a resource, in resource-seconds (cpu: core-seconds), by one combination of what is asked for.

    `keys` are namespace and queue for `queue`, clusterQueue for `clusterqueue`, namespace, kind and workload for
    `workload`, else called as what was asked for;
    `period` (2026-11-22, or 2026-11), if it is divided by time.
    """

    keys: Mapping[str, str]
    resource: str
    amount_seconds: float
    nominal_seconds: float
    borrowed_seconds: float

    @property
    def unit(self) -> str:
        """What people count the resource in: core-hours, GiB-hours, or hours of one of whatever else there is."""
        return usage_unit(self.resource).name

    @property
    def used(self) -> float:
        """All of it, in `unit`."""
        return self.amount_seconds / usage_unit(self.resource).seconds

    @property
    def nominal(self) -> float:
        """The part within nominal quota, in `unit`."""
        return self.nominal_seconds / usage_unit(self.resource).seconds

    @property
    def borrowed(self) -> float:
        """The part beyond nominal quota, in `unit`."""
        return self.borrowed_seconds / usage_unit(self.resource).seconds


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Usage between two instants, `start` included, `end` not."""

    start: datetime
    end: datetime
    by: tuple[str, ...]
    rows: tuple[UsageRow, ...]
