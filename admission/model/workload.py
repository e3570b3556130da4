"""What is queued: one Kubernetes object seen as sets of equal pods, and the quota that it may be given.

Everything here is frozen and hashable by value where that is cheap: workloads of the same shape share their pod sets.
Amounts are integers: milli-units for `cpu`, base units for everything else (bytes, devices, pods), both rounded up.
Times are seconds since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from admission.model.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Toleration:
    """A pod's toleration; empty `key` with operator Exists tolerates all, empty `effect` every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One `matchExpressions` entry of a node selector term: operator In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PodSet:
    """`count` equal pods. `requests` are of one pod, as it will look after admission (without the `pods` resource)."""

    name: str
    count: int
    requests: Mapping[str, int]
    min_count: int | None = None
    """The fewest pods that may be admitted instead of `count`; None: all or nothing."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    affinity: tuple[tuple[Requirement, ...], ...] | None = None
    """Required node affinity: terms, any of which must match; None: no such affinity."""
    group: str = ""
    """Pod sets of the same non-empty group get the same flavors (Kueue's podset-group-name)."""


@frozen(frozen=True, slots=True)
class Workload:
    """What waits for quota. `uid` is that of the Kubernetes object and identifies it everywhere."""

    uid: str
    namespace: str
    name: str
    queue: str
    """The LocalQueue's name, in the same namespace."""
    priority: int
    created: float
    pod_sets: tuple[PodSet, ...]
    kind: str = "Job"
    api_version: str = "batch/v1"
    """`GROUP/VERSION` of the object. Group and kind are its identity; the version is the one it was last read in."""
    priority_class: str = ""
    user: str = ""
    """Who submitted it, as the webhook noted; empty if unknown."""
    queued_at: float | None = None
    """Since when it counts as waiting, if not since `created` (after an eviction that was its own fault)."""
    replaces: str = ""
    """The uid of the admitted workload of which this is a larger or smaller version, and whose quota it takes over."""
    may_preempt: bool = True
    """Whether others may be evicted for it yet."""
    rank_priority: int | None = None
    """Where an admin put it: it is ordered in its ClusterQueue as if it had this priority, and nowhere else."""
    rank_at: float | None = None
    """... and had waited since then."""

    @property
    def since(self) -> float:
        """Since when it counts as waiting."""
        return self.created if self.queued_at is None else self.queued_at

    @property
    def group(self) -> str:
        """The API group of its object."""
        return self.api_version.rpartition("/")[0]

    @property
    def key(self) -> str:
        """`namespace/name`, for people."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class PodSetAssignment:
    """What one pod set was given."""

    name: str
    flavors: Mapping[str, str]
    """Resource name to flavor name."""
    usage: Mapping[str, int]
    """Resource name to the amount held, for all `count` pods together."""
    count: int


@dataclass(frozen=True, slots=True)
class Admission:
    """The quota that a workload holds, from its commit until its pods are gone."""

    cluster_queue: str
    pod_sets: tuple[PodSetAssignment, ...]
