"""Workload: a Kubernetes object as the queue sees it, with its pod sets, and the Admission, its quota.

All classes are frozen, and hashable by value where that is cheap: workloads of the same shape share their pod sets.
Amounts are integers: milli-units for `cpu`, base units for all other resources (bytes, devices, pods), rounded up.
Times are seconds since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from admission.model.frozen import frozen
from admission.model.quantity import together
from admission.model.terms import NO_TERMS, Terms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.model.topology import TopologyAssignment, TopologyRequest


LOCAL: Final = "local"
"""Name of the cluster that Sluice runs in, or whose kubeconfig it was given: the only one unless others have joined."""


SERVICE_ACCOUNTS: Final = "system:serviceaccount:"
_NO_PERSON: Final = "system:"
"""Begin of the names of service accounts and of Kubernetes' own components."""


def person_of(user: str, namespace: str) -> str:
    """Return the name under which what a user has in a namespace is counted: there all that are no people are one.

    Whoever may create service accounts could otherwise be any number of users. Which ones they are does not matter:
    Kubernetes' controllers and operators in other namespaces create objects for the users of this one.
    """
    return f"{SERVICE_ACCOUNTS}{namespace}" if user.startswith(_NO_PERSON) else user


@dataclass(frozen=True, slots=True)
class Toleration:
    """A pod's toleration; empty `key` with operator Exists tolerates all, empty `effect` every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None
    """For how long pods stay beside a taint with effect NoExecute; None: without limit."""


@dataclass(frozen=True, slots=True)
class NodeRequirement:
    """One `matchExpressions` entry of a node selector term: operator In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class ClaimReference(NamedTuple):
    """An entry of a pod's `resourceClaims`: the name of a ResourceClaim, which all pods share, or of a template."""

    name: str
    is_template: bool


@dataclass(frozen=True, slots=True)
class PodSet:
    """A set of `count` equal pods of a workload."""

    name: str
    count: int
    requests: Mapping[str, int]
    """Resource to the amount that one pod requests once the API server has admitted it (LimitRange, overhead); without
    `pods`."""
    min_count: int | None = None
    """The fewest pods that may be admitted instead of `count` (partial admission); None: all or nothing."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    affinity: tuple[tuple[NodeRequirement, ...], ...] | None = None
    """Required node affinity: terms, one of which must match; None: no required node affinity."""
    preferences: tuple[tuple[int, tuple[NodeRequirement, ...]], ...] = ()
    """Preferred node affinity: (weight, term). Only placement by topology reads it, if that is enabled."""
    group: str = ""
    """Pod sets of the same non-empty group get the same flavors (Kueue's podset-group-name)."""
    topology: TopologyRequest | None = None
    """In which domains of a topology its pods have to be; None: it requests nothing."""
    optional: tuple[str, ...] = ()
    """Resources of `requests` that only containers added by the object's operator request: they count where the
    ClusterQueue covers them, as `pods` does, and their lack keeps nobody from being admitted elsewhere."""
    learned: Mapping[str, int] = field(default_factory=dict)
    """The part of `requests` that its template does not show, but its pods do: others have added containers to them."""
    claims: tuple[ClaimReference, ...] = ()
    """What its template names in `resourceClaims`, in order: each entry of a template is a claim of its own."""
    devices: Mapping[str, int] = field(default_factory=dict)
    """The part of `requests` that is devices by claim (dynamic resource allocation): no node reports it as its own."""
    shared: Mapping[str, int] = field(default_factory=dict)
    """Resource to the amount that all of its pods hold together, however many they are: claims that they share."""

    @property
    def beside_devices(self) -> Mapping[str, int]:
        """The part of `requests` that nodes report: without `devices`."""
        if not self.devices:
            return self.requests
        return {
            resource: amount - self.devices.get(resource, 0)
            for resource, amount in self.requests.items()
            if amount != self.devices.get(resource, 0)
        }

    def total(self, count: int) -> dict[str, int]:
        """Return what `count` of its pods request together."""
        return together(self.requests, self.shared, count)


@frozen(frozen=True, slots=True)
class Workload:
    """A Kubernetes object that is queued as a whole."""

    uid: str
    """The uid of the Kubernetes object, which identifies the workload everywhere."""
    namespace: str
    name: str
    queue: str
    """The LocalQueue's name, in the same namespace."""
    priority: int
    created: float
    pod_sets: tuple[PodSet, ...]
    kind: str = "Job"
    api_version: str = "batch/v1"
    """`GROUP/VERSION` of the object: the version in which it was last read. Its identity is group and kind."""
    priority_class: str = ""
    user: str = ""
    """The user who submitted it, as recorded by the webhook; empty: unknown."""
    queued_at: float | None = None
    """Time since when it counts as waiting, after an eviction for its own fault (PodsReadyTimeout); None: `created`."""
    replaces: str = ""
    """Uid of the admitted workload of which this is a larger or smaller version, and whose quota it takes over."""
    max_seconds: int | None = None
    """The time limit that its user has set: it is stopped when it has run for so long; None: none."""
    may_preempt: bool = True
    """Whether preemption for it is permitted (Kueue's preemption gates)."""
    terms: Terms = NO_TERMS
    """What its user permits or waits for, beside quota."""
    rank_priority: int | None = None
    """Priority for its position in the ClusterQueue only, by an admin's order; None: `priority`."""
    rank_at: float | None = None
    """Time since when it counts as waiting for that position only, by an admin's order; None: `since`."""
    cluster: str = LOCAL
    """Name of the cluster that its object is in."""
    groups: tuple[str, ...] = ()
    """Groups of `user`, as recorded by the webhook at the submission, sorted."""
    clusters: tuple[tuple[str, ...], ...] = ()
    """Names of the clusters of which it may run in one, the preferred one first, and of several at one place the one
    that is least used; empty: it runs in its own."""
    passed_over: tuple[tuple[str, str], ...] = ()
    """Further clusters in which it may not run now, with the reasons."""

    @property
    def since(self) -> float:
        """Time since when it counts as waiting: Kueue's queue order timestamp."""
        return self.created if self.queued_at is None else self.queued_at

    @property
    def group(self) -> str:
        """The API group of its object."""
        return self.api_version.rpartition("/")[0]

    @property
    def key(self) -> str:
        """`namespace/name`, for messages."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class PodSetAssignment:
    """Flavors, quota and number of admitted pods of one pod set."""

    name: str
    flavors: Mapping[str, str]
    """Resource name to flavor name."""
    usage: Mapping[str, int]
    """Resource name to the amount held, for all `count` pods together."""
    count: int
    """Number of admitted pods."""
    topology: TopologyAssignment | None = None
    """The domains of its pods, if the flavor has a topology."""
    delayed: bool = False
    """Whether its pods are placed only when all admission checks are Ready."""


@dataclass(frozen=True, slots=True)
class Admission:
    """The quota that a workload holds, from the commit of its admission until its pods have terminated."""

    cluster_queue: str
    pod_sets: tuple[PodSetAssignment, ...]
    cluster: str = ""
    """Name of the cluster that it is dispatched to; empty: it runs in its own."""
