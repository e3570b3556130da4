"""Reasons why workloads wait or were evicted, and the messages of decisions, with the numbers.

The words are Kueue's (pending reasons: KEP 10852), unless marked as Sluice's own.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from admission.model.quantity import format_amount

WAITING_FOR_QUOTA: Final = "WaitingForQuota"
EXCEEDS_MAX_QUOTA: Final = "ExceedsMaxQuota"
NO_MATCHING_FLAVOR: Final = "NoMatchingFlavor"
TOPOLOGY_PLACEMENT_FAILED: Final = "TopologyPlacementFailed"
NO_TREE: Final = "no TAS flavor assigned"
WAITING_FOR_PREEMPTED: Final = "WaitingForPreemptedWorkloads"
MISCONFIGURED: Final = "Misconfigured"
SUSPENDED: Final = "Suspended"
ON_HOLD: Final = "OnHold"
PENDING_EVALUATION: Final = "PendingEvaluation"
BEING_DELETED: Final = "BeingDeleted"
"""Sluice's own: the object is being deleted and waits for a finalizer."""
ADMISSION_GATED: Final = "AdmissionGated"
CLUSTER_LOST: Final = "ClusterLost"
"""Sluice's own: the cluster that it was dispatched to has been lost for too long."""
CLUSTER_REFUSED: Final = "ClusterRefused"
"""Sluice's own: the cluster that it was dispatched to does not accept its copy."""
COPY_DELETED: Final = "CopyDeleted"
"""Sluice's own: others have deleted its copy in the cluster that it was dispatched to."""
CLUSTER_UNAVAILABLE: Final = "ClusterUnavailable"
"""Sluice's own: nothing is started in its cluster at present."""
USER_LIMIT_REACHED: Final = "UserLimitReached"
"""Sluice's own: its user has as much as a UserLimit permits."""
DEPENDENCY: Final = "Dependency"
"""Sluice's own, Slurm's word: it starts after other workloads."""
SET_LIMIT_REACHED: Final = "SetLimitReached"
"""Sluice's own: as many workloads of its set are admitted as may be."""
BUDGET_EXHAUSTED: Final = "BudgetExhausted"
"""Sluice's own: a Budget has too few hours left for it."""
RESERVED_FOR_OTHERS: Final = "ReservedForOthers"
"""Sluice's own: what it needs is kept by a Reservation that is not for it."""
REFUSED_IN_A_FLAVOR: Final = frozenset({RESERVED_FOR_OTHERS, BUDGET_EXHAUSTED})
"""Reasons of policies that may not hold in another flavor: the next one is tried, and all when quota becomes free."""

PODS_UNSCHEDULED: Final = "PodsUnscheduled"
"""Sluice's own: the workload is admitted, and some of its pods cannot be scheduled or started."""
HOPELESS: Final = frozenset({EXCEEDS_MAX_QUOTA, NO_MATCHING_FLAVOR, MISCONFIGURED})
"""Reasons that do not go away when quota becomes free, but only by a change of the workload, a queue object or the
namespace."""

PREEMPTED: Final = "Preempted"
OF_ANOTHER_NAMESPACE: Final = "a workload of another namespace"
OF_ANOTHER_CLUSTER: Final = "a workload of another cluster"
"""They replace the preemptor's name in messages for users who may not see such names."""
NODE_FAILURES: Final = "NodeFailures"
FLAVOR_MIGRATION: Final = "FlavorMigration"
SLICE_REPLACED: Final = "WorkloadSliceReplaced"
CLUSTER_QUEUE_STOPPED: Final = "ClusterQueueStopped"
LOCAL_QUEUE_STOPPED: Final = "LocalQueueStopped"
DRAINED: Final = "Drained"
"""Sluice's own: nothing starts any more on the nodes that it could get, or ran on."""
OVER_QUOTA: Final = "OverQuota"
"""Sluice's own: quota was lowered below the usage, and the ClusterQueue converges to it (`overQuota`)."""
RESERVATION_STARTED: Final = "ReservationStarted"
"""Sluice's own: a Reservation has begun that evicts what is in its way."""

IN_CLUSTER_QUEUE: Final = "InClusterQueue"
TIME_SLICE: Final = "TimeSlice"
"""Sluice's own: its time slice is over, and another workload of the same priority has its turn."""
IN_COHORT_RECLAMATION: Final = "InCohortReclamation"
IN_COHORT_FAIR_SHARING: Final = "InCohortFairSharing"
IN_COHORT_RECLAIM_WHILE_BORROWING: Final = "InCohortReclaimWhileBorrowing"

PREEMPTION_TEXTS: Final = {
    IN_CLUSTER_QUEUE: "prioritization in the ClusterQueue",
    TIME_SLICE: "the end of its time slice",
    IN_COHORT_RECLAMATION: "reclamation within the cohort",
    IN_COHORT_FAIR_SHARING: "Fair Sharing within the cohort",
    IN_COHORT_RECLAIM_WHILE_BORROWING: "reclamation within the cohort while borrowing",
}

NO_LONGER_FITS: Final = "Workload no longer fits after processing another workload"
OVERLAPS: Final = "Workload has overlapping preemption targets with another workload"
DEFERRED: Final = f"{OVERLAPS}, but will fit after these preemptions complete"
FITS_WITHOUT_PREEMPTED: Final = "Workload fits when workloads that are being preempted have released their quota"
GATED: Final = "Workload requires preemption, but it's gated"
BETTER_ADMITTED: Final = "A more favorable variant is already admitted"
NOT_ACCEPTABLE: Final = "Target flavor is below LastAcceptableFlavorName"
NAMESPACE_MISMATCH: Final = "workload namespace doesn't match ClusterQueue selector"


def over_quota_text(queue: str, fr: tuple[str, str], used: int, excess: int, limit: str, seconds: int) -> str:
    """Return the eviction message for a workload of a ClusterQueue that converges to a lowered quota.

    `used` and `excess` are amounts of the flavor-resource `fr`, `limit` names the exceeded limit, `seconds` the delay.
    """
    flavor, resource = fr
    return (
        f"ClusterQueue {queue} has used more than it may for {seconds} s: {format_amount(resource, used)} of "
        f"{resource} in flavor {flavor}, {format_amount(resource, excess)} more than {limit} allows"
    )


_SEVERITY: Final = {"": 0, WAITING_FOR_QUOTA: 1, EXCEEDS_MAX_QUOTA: 2, NO_MATCHING_FLAVOR: 3}


def severity(reason: str) -> int:
    """Return the severity of a pending reason: the higher, the less it goes away by itself.

    Kueue's `reasonSeverity`.
    """
    return _SEVERITY[reason]


class Shortage(NamedTuple):
    """Too little of a resource is free in a flavor now; `missing` is the amount that has to become free."""

    resource: str
    flavor: str
    missing: int

    def __str__(self) -> str:
        missing = format_amount(self.resource, self.missing)
        return f"insufficient unused quota for {self.resource} in flavor {self.flavor}, {missing} more needed"


class ExceededQuota(NamedTuple):
    """A request exceeds the quota that the flavor could provide if nothing else were in use."""

    resource: str
    flavor: str
    before: int
    """Amount that earlier pod sets of the workload were assigned in the flavor."""
    requested: int
    """Amount that the pod set requests."""
    maximum: int
    """The quota if nothing else were in use (`Node.potential`)."""

    def __str__(self) -> str:
        before, requested, maximum = (
            format_amount(self.resource, amount) for amount in (self.before, self.requested, self.maximum)
        )
        return (
            f"insufficient quota for {self.resource} in flavor {self.flavor}, previously considered podsets requests "
            f"({before}) + current podset request ({requested}) > maximum capacity ({maximum})"
        )


class Undeclared(NamedTuple):
    """The ClusterQueue has no quota of a resource at all."""

    resource: str

    def __str__(self) -> str:
        return f"resource {self.resource} unavailable in ClusterQueue"


class Unplaced(NamedTuple):
    """The pods have no place in the nodes of the chosen flavor."""

    why: str

    def __str__(self) -> str:
        return self.why


def several_trees(flavors: list[str]) -> str:
    """Return the cause for a pod set with several flavors that have a topology."""
    return f"more than one TAS flavor assigned: {', '.join(flavors)}"


Cause = str | Shortage | ExceededQuota | Undeclared | Unplaced
"""One reason why a flavor does not fit; `str` of it is the message."""
