"""What the API answers, described: nothing reads these models but OpenAPI, and the tests that hold answers to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from admission.model.base import Model, Name, Quantity
from admission.model.checks import CheckState, PodSetUpdate

Time: TypeAlias = str
"""An instant as RFC 3339 has it, in UTC."""


class Condition(Model):
    """Something that holds, or does not."""

    type: str
    """What it is about."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: str
    """Why, for programs."""
    message: str
    """Why, for people."""
    observed_generation: int | None = None
    """The generation of the object that this is about."""
    last_transition_time: Time | None = None
    """Since when, as far as it is known."""


class ResourceUsage(Model):
    """How much of a resource is held."""

    name: str
    """The resource."""
    total: Quantity
    """All of it."""
    borrowed: Quantity | None = None
    """The part beyond the nominal quota."""


class FlavorUsage(Model):
    """What is held of a flavor."""

    name: str
    """The ResourceFlavor."""
    resources: tuple[ResourceUsage, ...]
    """How much of each resource."""


class _QueueStatus(Model):
    conditions: tuple[Condition, ...]
    """Active: whether workloads can be admitted, and if not, why."""
    flavors_reservation: tuple[FlavorUsage, ...]
    """What its workloads hold."""
    flavors_usage: tuple[FlavorUsage, ...]
    """The same: quota counts as used from its reservation on."""
    pending_workloads: int
    """How many wait."""
    reserving_workloads: int
    """How many hold quota."""
    admitted_workloads: int
    """How many of those may run."""
    impact: Impact | None = None
    """In the answer to a dry run: what would follow."""


class FairSharingStatus(Model):
    """Where a ClusterQueue or Cohort stands among its siblings in fair sharing."""

    weighted_share: int
    """What it borrows of what its Cohort could lend, in thousandths, divided by its weight; the largest share first
    loses quota. 2^63-1: it borrows with a weight of 0."""


class ClusterQueueStatus(_QueueStatus):
    """What goes on in a ClusterQueue; computed at each read."""

    fair_sharing: FairSharingStatus
    """Its share, whether fair sharing is on or not."""


class CohortStatus(Model):
    """What goes on in a Cohort; computed at each read."""

    fair_sharing: FairSharingStatus
    """Its share, whether fair sharing is on or not."""
    impact: Impact | None = None
    """In the answer to a dry run: what would follow."""


class LocalQueueStatus(_QueueStatus):
    """What goes on in a LocalQueue; computed at each read."""


class AdmissionCheckStatus(Model):
    """Whether an AdmissionCheck can be asked for."""

    conditions: tuple[Condition, ...]
    """Active: whether it can be used."""
    impact: Impact | None = None
    """In the answer to a dry run: what would follow."""


class QueueObjectStatus(Model):
    """Only in the answer to a dry run."""

    impact: Impact | None = None
    """What would follow."""


class Named(Model):
    """A workload."""

    namespace: str
    """Its namespace."""
    name: str
    """The name of its object."""
    kind: str | None = None
    """The kind of its object."""
    reason: str | None = None
    """Why, for programs."""
    message: str | None = None
    """Why, for people."""


class Excess(Model):
    """More in use than may be."""

    cluster_queue: str | None = None
    """The ClusterQueue ..."""
    cohort: str | None = None
    """... or the Cohort."""
    flavor: str
    """The ResourceFlavor."""
    resource: str
    """The resource."""
    by: Quantity
    """How much too much."""


class Counts(Model):
    """How many, where lists are cut."""

    admitted: int
    """Workloads that would be admitted."""
    evicted: int
    """Workloads that would be stopped."""
    impossible: int
    """Workloads that could never be admitted any more."""


class Impact(Model):
    """What would follow at once from a write that was a dry run."""

    counts: Counts
    """How long the lists are, which may be cut."""
    admitted: tuple[Named, ...] = ()
    """Workloads that would be admitted."""
    evicted: tuple[Named, ...] = ()
    """Workloads that would be stopped."""
    impossible: tuple[Named, ...] = ()
    """Workloads that could never be admitted any more."""
    over_quota: tuple[Excess, ...] = ()
    """Where more would be in use than may be."""


# ---------------------------------------------------------------------- workloads


class WorkloadObject(Model):
    """The Kubernetes object that is queued."""

    api_version: str
    """Its API group and version."""
    kind: str
    """Its kind."""
    name: str
    """Its name."""


class WorkloadPodSet(Model):
    """Equal pods."""

    name: str
    """The name of the set, unique in the workload."""
    count: int
    """How many there are."""
    requests: Mapping[str, Quantity]
    """What each of them asks for."""
    min_count: int | None = None
    """The fewest that may be admitted instead; not given: all or nothing."""


class WorkloadOrder(Model):
    """A place in the order of its ClusterQueue: in a write `top` or `before`, in an answer what follows from it."""

    top: bool | None = None
    """Before all that wait there."""
    before: str | None = None
    """Directly before this workload, by its name or that of its object, of another namespace as NAMESPACE/NAME."""
    priority: int | None = None
    """It stands as if it had this priority ..."""
    since: Time | None = None
    """... and had waited since then."""


class WorkloadSpec(Model):
    """What is asked for; queueName, priority, active, hold, order can be changed, the rest follows from its object."""

    object: WorkloadObject
    """What is queued."""
    queue_name: Name
    """The LocalQueue; another one moves the workload."""
    priority: int
    """The higher, the earlier; taken out: that of its priority class again."""
    priority_class_name: str | None = None
    """The WorkloadPriorityClass or PriorityClass."""
    pod_sets: tuple[WorkloadPodSet, ...]
    """What its pods ask for."""
    user: str | None = None
    """Who submitted it."""
    active: bool
    """False: out of the queue for good, and stopped if it runs."""
    hold: bool
    """Whether an admin holds it back."""
    order: WorkloadOrder | None = None
    """A place that an admin gave it; taken out: its own again."""


class PodSetAssignment(Model):
    """What a pod set was given."""

    name: str
    """The pod set."""
    flavors: Mapping[str, str]
    """The ResourceFlavor of each resource."""
    resource_usage: Mapping[str, Quantity]
    """How much is held for all its pods together."""
    count: int
    """How many pods that is."""


class WorkloadAdmission(Model):
    """The quota that a workload holds."""

    cluster_queue: str
    """The ClusterQueue of which it is held."""
    pod_set_assignments: tuple[PodSetAssignment, ...]
    """By pod set."""


class AdmissionCheckState(Model):
    """What an admission check says of a workload."""

    name: Name
    """The AdmissionCheck."""
    state: CheckState
    """Pending: not known yet. Ready: it may start. Retry: evict it, and try later. Rejected: it may never start."""
    message: str
    """Why, for people."""
    last_transition_time: Time
    """Since when."""
    retry_count: int
    """How often it has said Retry."""
    requeue_after_seconds: int | None = None
    """With Retry: how long the workload takes no part in decisions."""
    pod_set_updates: tuple[PodSetUpdate, ...] = ()
    """With Ready: what the pods get."""


class RequeueState(Model):
    """How an evicted workload comes back."""

    count: int
    """Evictions that count for the backoff."""
    requeue_at: Time | None = None
    """It takes no part in decisions until then."""


class EstimatedStart(Model):
    """When a workload that waits will probably start."""

    p50: Time
    """Half of the workloads with such an estimate start before ..."""
    p90: Time
    """... and nine of ten before this."""
    made_at: Time
    """When it was estimated."""
    share_held: float | None = None
    """The share of past estimates where the workload had started by p90."""


class WorkloadStatus(Model):
    """What became of it."""

    state: Literal["pending", "admitted", "evicting", "finished"]
    """Where it is on its way."""
    cluster_queue: str
    """Where it waits or holds quota; empty while its LocalQueue leads nowhere."""
    queued_at: Time
    """Since when it waits, or waited before it was last admitted."""
    conditions: tuple[Condition, ...]
    """Kueue's: QuotaReserved, Admitted, PodsReady, Evicted, Preempted, Requeued, Finished."""
    admission: WorkloadAdmission | None = None
    """What it holds."""
    admission_checks: tuple[AdmissionCheckState, ...] = ()
    """What admission checks say; those who answer them change it by way of the subresource status."""
    requeue_state: RequeueState | None = None
    """How it comes back after evictions."""
    accumulated_past_execution_time_seconds: int | None = None
    """How long it ran in former admissions."""
    impact: Impact | None = None
    """In the answer to a dry run: what would follow."""
    estimated_start: EstimatedStart | None = None
    """When it will probably start; in lists and single answers, not in watches, and not while too little is known."""
