"""The fixed words, all of them Kueue's, for why a workload waits or was evicted, and the sentences with the numbers."""

from __future__ import annotations

from typing import Final, NamedTuple

from admission.model.quantity import format_amount

WAITING_FOR_QUOTA: Final = "WaitingForQuota"
EXCEEDS_MAX_QUOTA: Final = "ExceedsMaxQuota"
NO_MATCHING_FLAVOR: Final = "NoMatchingFlavor"
WAITING_FOR_PREEMPTED: Final = "WaitingForPreemptedWorkloads"
MISCONFIGURED: Final = "Misconfigured"
SUSPENDED: Final = "Suspended"
ON_HOLD: Final = "OnHold"
PENDING_EVALUATION: Final = "PendingEvaluation"
BEING_DELETED: Final = "BeingDeleted"
"""Ours, not Kueue's: its object is being deleted, and waits for a finalizer."""
ADMISSION_GATED: Final = "AdmissionGated"

PODS_UNSCHEDULED: Final = "PodsUnscheduled"
"""Ours: it is admitted, and pods of it cannot be scheduled or started."""
HOPELESS: Final = frozenset({EXCEEDS_MAX_QUOTA, NO_MATCHING_FLAVOR, MISCONFIGURED})
"""Reasons that stay until the workload, a queue object or the namespace is changed."""

PREEMPTED: Final = "Preempted"
FOREIGN: Final = "a workload of another namespace"
"""In place of a name, for people of one namespace."""
SLICE_REPLACED: Final = "WorkloadSliceReplaced"
CLUSTER_QUEUE_STOPPED: Final = "ClusterQueueStopped"
LOCAL_QUEUE_STOPPED: Final = "LocalQueueStopped"
OVER_QUOTA: Final = "OverQuota"
"""Ours, not Kueue's: quota was lowered below use, and the ClusterQueue asks that it be converged to."""

IN_CLUSTER_QUEUE: Final = "InClusterQueue"
IN_COHORT_RECLAMATION: Final = "InCohortReclamation"
IN_COHORT_FAIR_SHARING: Final = "InCohortFairSharing"
IN_COHORT_RECLAIM_WHILE_BORROWING: Final = "InCohortReclaimWhileBorrowing"

PREEMPTION_TEXTS: Final = {
    IN_CLUSTER_QUEUE: "prioritization in the ClusterQueue",
    IN_COHORT_RECLAMATION: "reclamation within the cohort",
    IN_COHORT_FAIR_SHARING: "Fair Sharing within the cohort",
    IN_COHORT_RECLAIM_WHILE_BORROWING: "reclamation within the cohort while borrowing",
}

NO_LONGER_FITS: Final = "Workload no longer fits after processing another workload"
OVERLAPS: Final = "Workload has overlapping preemption targets with another workload"
DEFERRED: Final = f"{OVERLAPS}, but will fit after these preemptions complete"
GATED: Final = "Workload requires preemption, but it's gated"
NAMESPACE_MISMATCH: Final = "workload namespace doesn't match ClusterQueue selector"


def over_quota_text(queue: str, fr: tuple[str, str], used: int, excess: int, limit: str, seconds: int) -> str:
    """Why a workload of a ClusterQueue that converges to its lowered quota has to go."""
    flavor, resource = fr
    return (
        f"ClusterQueue {queue} has used more than it may for {seconds} s: {format_amount(resource, used)} of "
        f"{resource} in flavor {flavor}, {format_amount(resource, excess)} more than {limit} allows"
    )


_SEVERITY: Final = {"": 0, WAITING_FOR_QUOTA: 1, EXCEEDS_MAX_QUOTA: 2, NO_MATCHING_FLAVOR: 3}


def severity(reason: str) -> int:
    """How far a reason is from going away by itself."""
    return _SEVERITY[reason]


class Shortage(NamedTuple):
    """Too little is free in a flavor now."""

    resource: str
    flavor: str
    missing: int

    def __str__(self) -> str:
        missing = format_amount(self.resource, self.missing)
        return f"insufficient unused quota for {self.resource} in flavor {self.flavor}, {missing} more needed"


class Excess(NamedTuple):
    """More is asked for than a flavor could ever give."""

    resource: str
    flavor: str
    before: int
    """What earlier pod sets of the workload took already."""
    asked: int
    most: int

    def __str__(self) -> str:
        before, asked, most = (format_amount(self.resource, amount) for amount in (self.before, self.asked, self.most))
        return (
            f"insufficient quota for {self.resource} in flavor {self.flavor}, previously considered podsets requests "
            f"({before}) + current podset request ({asked}) > maximum capacity ({most})"
        )


class Undeclared(NamedTuple):
    """The ClusterQueue has no quota of a resource at all."""

    resource: str

    def __str__(self) -> str:
        return f"resource {self.resource} unavailable in ClusterQueue"


Cause = str | Shortage | Excess | Undeclared
"""One obstacle; `str` of it is the sentence."""
