"""Schemas of the documents that the API returns, for OpenAPI; tests validate responses against them.

Docstrings of classes and attributes become the descriptions that `kubectl explain` shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from admission.model.answers import EstimatedStart, Time
from admission.model.base import Model, Name, Quantity
from admission.model.checks import CheckState, PodSetUpdate


class Condition(Model):
    """A condition of an object: one aspect of its status."""

    type: str
    """The aspect, such as Active or QuotaReserved."""
    status: Literal["True", "False", "Unknown"]
    """Whether the condition holds."""
    reason: str
    """Reason for the status, in CamelCase, for programs."""
    message: str
    """Reason for the status, for people."""
    observed_generation: int | None = None
    """Generation of the object that the condition was computed from."""
    last_transition_time: Time | None = None
    """Time since which it has this status, if known."""


class ResourceUsage(Model):
    """Usage of one resource."""

    name: str
    """Name of the resource, such as cpu."""
    total: Quantity
    """Amount in use."""
    borrowed: Quantity | None = None
    """The part beyond nominal quota."""


class FlavorUsage(Model):
    """Usage of one ResourceFlavor."""

    name: str
    """Name of the ResourceFlavor."""
    resources: tuple[ResourceUsage, ...]
    """Usage by resource."""


class _QueueStatus(Model):
    conditions: tuple[Condition, ...]
    """Active: whether workloads can be admitted, and if not, why."""
    flavors_reservation: tuple[FlavorUsage, ...]
    """Quota reserved by its workloads."""
    flavors_usage: tuple[FlavorUsage, ...]
    """The same as flavorsReservation: quota counts as used once it is reserved."""
    pending_workloads: int
    """Number of workloads that wait for quota."""
    reserving_workloads: int
    """Number of workloads that have quota reserved."""
    admitted_workloads: int
    """Number of workloads that are admitted: they have quota and may run."""
    impact: Impact | None = None
    """Only in responses to a dry run: the effect on workloads."""


class FairSharingStatus(Model):
    """Fair share of a ClusterQueue or Cohort compared with its siblings."""

    weighted_share: int
    """Borrowed quota as a share (in thousandths) of what its Cohort can lend, divided by its weight. The largest
    share loses quota first. 2^63-1: it borrows with a weight of 0."""


class ClusterQueueStatus(_QueueStatus):
    """Status of a ClusterQueue, computed at each read."""

    fair_sharing: FairSharingStatus
    """Fair share, also computed if fair sharing is off."""


class CohortStatus(Model):
    """Status of a Cohort, computed at each read."""

    fair_sharing: FairSharingStatus
    """Fair share, also computed if fair sharing is off."""
    impact: Impact | None = None
    """Only in responses to a dry run: the effect on workloads."""


class LocalQueueStatus(_QueueStatus):
    """Status of a LocalQueue, computed at each read."""


class AdmissionCheckStatus(Model):
    """Status of an AdmissionCheck, computed at each read."""

    conditions: tuple[Condition, ...]
    """Active: whether a controller answers the check."""
    impact: Impact | None = None
    """Only in responses to a dry run: the effect on workloads."""


class BudgetPeriodStatus(Model):
    """The present period of a Budget."""

    start: str
    """When it began (RFC 3339); of a rolling period, the day began."""
    end: str
    """When it ends, and the next one begins."""


class BudgetResourceStatus(Model):
    """Hours of a resource, or money."""

    name: str
    """The resource, or currency."""
    flavors: tuple[str, ...] | None = None
    """The ResourceFlavors whose usage counts; not given: all."""
    hours: str
    """Hours, or money, given in the period, with grants."""
    spent: str
    """Hours charged so far."""
    reserved: str
    """Hours that running workloads may still use, with `enforcement: Reserve`."""
    left: str
    """Hours that are neither spent nor reserved; negative if the Budget is overdrawn."""


class BudgetAlertStatus(Model):
    """A part of the hours that was spent or reserved in the present period."""

    resource: str
    """The resource."""
    level: int
    """The percentage that was reached: 50, 80 or 100."""
    at: float
    """When that was seen (seconds since the epoch)."""
    message: str
    """The numbers, as a sentence."""


class BudgetStatus(Model):
    """Status of a Budget, as the leader has written it a few seconds ago; without `period` it has not yet."""

    period: BudgetPeriodStatus | None = None
    """The present period."""
    resources: tuple[BudgetResourceStatus, ...] = ()
    """The hours, in the order of the spec."""
    used_up_since: str | None = None
    """With `action: PreemptAfter` or `LowerPriority`, since when hours are used up (RFC 3339); not given: they are
    not."""
    alerts: tuple[BudgetAlertStatus, ...] = ()
    """The highest alert of each resource in the present period."""
    impact: Impact | None = None
    """Only in responses to a dry run: the effect on workloads."""


class BudgetRequestStatus(Model):
    """Status of a BudgetRequest, computed at each read from the grants of its Budget."""

    phase: Literal["Open", "Granted", "Declined"]
    """Whether it was answered."""
    hours: str | None = None
    """Hours that were granted."""
    day: str | None = None
    """A day of the period that gets them."""
    reason: str | None = None
    """Why, as the one who has answered it says."""
    impact: Impact | None = None
    """Only in responses to a dry run: the effect on workloads, which is none."""


class ReservationStatus(Model):
    """Status of a Reservation, computed at each read."""

    phase: str
    """Pending, Active, Ended, or Released: it has ended early, as nobody used it."""
    start: Time
    """When it begins."""
    end: Time
    """When it ends, or would have ended."""
    impact: Impact | None = None
    """Only in responses to a dry run: the effect on workloads."""


class ClusterResource(Model):
    """What a cluster has of a resource."""

    name: str
    """The resource, such as cpu."""
    allocatable: Quantity
    """What all of its nodes can allocate together."""
    schedulable: Quantity
    """The part of it on nodes that get new pods."""
    used: Quantity
    """Quota that workloads in the cluster hold. What else runs there is not in it."""


class ClusterCapacity(Model):
    """What the nodes of a cluster have, as the leader has seen it last."""

    nodes: int | None = None
    """Number of its nodes; not set if they were never seen, as are the fields that follow."""
    ready_nodes: int | None = None
    """Number of nodes that are ready."""
    schedulable_nodes: int | None = None
    """Number of nodes that are ready and not cordoned, so that they get new pods."""
    resources: tuple[ClusterResource, ...] = ()
    """What they have, by resource."""
    seen_at: Time | None = None
    """When they were listed."""
    message: str | None = None
    """Why they could not be listed since, or what of them is not counted."""


class ClusterStatus(Model):
    """Status of a Cluster, as the leader has written it."""

    state: Literal["Active", "Connecting", "Lost", "Draining", "Disabled"] | None = None
    """Active: its Jobs are started. Otherwise nothing is started there, and what runs there holds its quota."""
    since: Time | None = None
    """Since when it is in this state."""
    message: str | None = None
    """Why it is in this state."""
    uid: str | None = None
    """Uid of its namespace kube-system, by which it is recognised."""
    capacity: ClusterCapacity | None = None
    """What its nodes have; not set before the first look, and for `local` if no other cluster has joined."""
    impact: Impact | None = None
    """Only in responses to a dry run: the effect on workloads."""


class QueueObjectStatus(Model):
    """Status of kinds that have one in responses to a dry run only."""

    impact: Impact | None = None
    """The effect of the write on workloads."""


class Named(Model):
    """A workload, named by its Kubernetes object."""

    namespace: str
    """Namespace of the workload."""
    name: str
    """Name of its Kubernetes object."""
    kind: str | None = None
    """Kind of its Kubernetes object."""
    reason: str | None = None
    """Reason, for programs."""
    message: str | None = None
    """Reason, for people."""


class Excess(Model):
    """Usage beyond quota, of a resource in a flavor."""

    cluster_queue: str | None = None
    """The ClusterQueue whose quota is exceeded; not set if it is a Cohort's."""
    cohort: str | None = None
    """The Cohort whose quota is exceeded; not set if it is a ClusterQueue's."""
    flavor: str
    """Name of the ResourceFlavor."""
    resource: str
    """Name of the resource."""
    by: Quantity
    """Amount in use beyond quota."""


class Counts(Model):
    """Numbers of affected workloads, since the lists may be truncated."""

    admitted: int
    """Number of workloads that would be admitted."""
    evicted: int
    """Number of workloads that would be evicted."""
    impossible: int
    """Number of workloads that could never be admitted any more."""


class Impact(Model):
    """Immediate effect of a write on workloads, computed in a dry run."""

    counts: Counts
    """Full lengths of the lists, which may be truncated."""
    admitted: tuple[Named, ...] = ()
    """Workloads that would be admitted."""
    evicted: tuple[Named, ...] = ()
    """Workloads that would be evicted."""
    impossible: tuple[Named, ...] = ()
    """Workloads that could never be admitted any more."""
    over_quota: tuple[Excess, ...] = ()
    """Usage that would exceed quota."""


# ---------------------------------------------------------------------- workloads


class WorkloadObject(Model):
    """The Kubernetes object that is queued."""

    api_version: str
    """API group and version of the object, such as batch/v1."""
    kind: str
    """Kind of the object."""
    name: str
    """Name of the object."""


class WorkloadPodSet(Model):
    """A set of pods with equal requests."""

    name: str
    """Name of the pod set, unique in the workload."""
    count: int
    """Number of pods."""
    requests: Mapping[str, Quantity]
    """Resource requests of each pod."""
    shared_requests: Mapping[str, Quantity] | None = None
    """Devices of ResourceClaims that all of its pods share; not set: there are none."""
    min_count: int | None = None
    """Least number of pods that may be admitted instead (partial admission); not set: all or none."""


class WorkloadOrder(Model):
    """Position in the order of its ClusterQueue. Writes set top or before; responses have the resulting priority and
    since."""

    top: bool | None = None
    """Move it before all pending workloads of the ClusterQueue."""
    before: str | None = None
    """Move it directly before this workload: its name or that of its object; in another namespace NAMESPACE/NAME."""
    priority: int | None = None
    """Priority by which it is ordered, instead of its own."""
    since: Time | None = None
    """Time by which it is ordered among workloads of that priority, instead of its own."""


class WorkloadSpec(Model):
    """Specification of a workload. queueName, priority, active, hold and order can be changed; the rest follows from
    its object."""

    object: WorkloadObject
    """Kubernetes object of the workload."""
    queue_name: Name
    """Name of the LocalQueue. Another name moves the workload there."""
    cluster: Name | None = None
    """Name of the Cluster that its object is in; not given: in the cluster `local`."""
    priority: int
    """Priority; workloads with higher ones come first. Removed in a patch: the priority of its class again."""
    priority_class_name: str | None = None
    """Name of its WorkloadPriorityClass or PriorityClass."""
    pod_sets: tuple[WorkloadPodSet, ...]
    """The pods of the workload, as sets with equal requests."""
    maximum_execution_time_seconds: int | None = None
    """Its time limit: that of its user, or else of its queue. It is stopped when it has run for so long."""
    user: str | None = None
    """User who submitted it."""
    active: bool
    """False: deactivated. It is not queued until set to true again, and evicted if it is admitted."""
    hold: bool
    """Whether it is on hold: it stays pending until that is set to false."""
    order: WorkloadOrder | None = None
    """Position set by an admin. Removed in a patch: its own position again."""


class PodSetAssignment(Model):
    """Flavors and quota assigned to a pod set."""

    name: str
    """Name of the pod set."""
    flavors: Mapping[str, str]
    """ResourceFlavor by resource."""
    resource_usage: Mapping[str, Quantity]
    """Quota reserved for all its pods together, by resource."""
    count: int
    """Number of admitted pods."""


class WorkloadAdmission(Model):
    """Admission of a workload: the quota reserved for it."""

    cluster_queue: str
    """ClusterQueue in which quota is reserved."""
    pod_set_assignments: tuple[PodSetAssignment, ...]
    """Assignments by pod set."""


class AdmissionCheckState(Model):
    """State of an admission check for a workload."""

    name: Name
    """Name of the AdmissionCheck."""
    state: CheckState
    """Pending: no answer yet. Ready: it may start. Retry: it is evicted, and tried again later. Rejected: it may
    never start."""
    message: str
    """Reason for the state, for people."""
    last_transition_time: Time
    """Time since which it has this state."""
    retry_count: int
    """Number of times that the state was set to Retry."""
    quota_reserved_at: Time | None = None
    """When the admission began that the check is about. An answer that repeats it is refused if the workload has been
    admitted again meanwhile."""
    requeue_after_seconds: int | None = None
    """With Retry: seconds after which the workload is considered again."""
    pod_set_updates: tuple[PodSetUpdate, ...] = ()
    """With Ready: changes to the pods, such as node selectors."""


class RequeueState(Model):
    """Requeueing of an evicted workload."""

    count: int
    """Number of evictions that the backoff is computed from."""
    requeue_at: Time | None = None
    """End of the backoff; the workload is not considered before."""


class WorkloadStatus(Model):
    """Status of a workload."""

    state: Literal["pending", "admitted", "evicting", "finished"]
    """State in its lifecycle."""
    cluster_queue: str
    """ClusterQueue in which it holds quota or, if it has finished, last held it; empty while it is pending."""
    queued_at: Time
    """Time since which it waits, or waited before it was last admitted."""
    conditions: tuple[Condition, ...]
    """Kueue's condition types: QuotaReserved, Admitted, PodsReady, Evicted, Preempted, Requeued, Finished."""
    admission: WorkloadAdmission | None = None
    """The quota that is reserved for it."""
    admission_checks: tuple[AdmissionCheckState, ...] = ()
    """States of its admission checks; their controllers write them through the subresource status."""
    requeue_state: RequeueState | None = None
    """Backoff after evictions."""
    accumulated_past_execution_time_seconds: int | None = None
    """Seconds that it ran in earlier admissions."""
    impact: Impact | None = None
    """Only in responses to a dry run: the effect on workloads."""
    estimated_start: EstimatedStart | None = None
    """Estimated start; in lists and single objects, not in watches, and not while too little data is known."""


class SubscriptionStatus(Model):
    """Delivery of the notifications of a Subscription."""

    conditions: tuple[Condition, ...]
    """Delivering: whether the last attempt to send a notification has succeeded, and if not, why; Unknown: none yet."""
    waiting_notifications: int
    """Notifications that are not delivered yet."""
    delivered_notifications: int
    """Notifications that were delivered."""
    left_out_notifications: int
    """Notifications above the hourly limit, in the last hour that had any; one more at its end says how many."""
    dropped_notifications: int
    """Notifications that could not be delivered for three days, and were dropped."""
    last_delivered_at: Time | None = None
    """Time of the last delivery."""
    impact: Impact | None = None
    """Only in responses to a dry run: the effect on workloads, which is none."""
