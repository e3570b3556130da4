"""Typed values of the client's responses that are not as the API answers: workloads, impact, usage.

Times are timezone-aware datetimes in UTC. Quantities are strings as in Kubernetes (`500m`, `10Gi`). Fields that the
server leaves out are empty, 0 or None.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

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
