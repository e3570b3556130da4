"""Reference of all reasons for the state of a workload, with meaning and help: the source of docs/reasons.md.

The reasons are Kueue's wherever Kueue has one. `python -m admission.model.reasons` prints the tables of that page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason. `means` and `helps` are texts of the reference; messages of single workloads are in `sentences`."""

    name: str
    means: str
    helps: str
    own: bool = False
    """Whether it is Sluice's own reason, and not one of Kueue's."""


WAITING: Final = (
    Reason("PendingEvaluation", "It has just been created, is in backoff after an eviction, runs without quota and is "
           "stopped first, or fits, but a workload in front of it comes first in a StrictFIFO queue", "Waiting"),
    Reason("WaitingForQuota", "Too little is free now, or what is free is kept for a workload for which others are "
           "being preempted", "Waiting; requesting less; more quota or borrowing"),
    Reason("WaitingForPreemptedWorkloads", "Workloads were preempted, and have not stopped yet", "Waiting"),
    Reason("WaitingForPodsReady", "`waitForPodsReady.blockAdmission`: the pods of an admitted workload are not ready",
           "Waiting; looking at the pods of the workload that was admitted last", own=True),
    Reason("Dependency", "It starts after other workloads, by its annotation `sluice.dev/after`; the message names "
           "them", "Waiting until these have ended; changing the annotation, if one has failed", own=True),
    Reason("SetLimitReached", "As many workloads of its set are admitted as its annotation `sluice.dev/at-most` "
           "permits", "Waiting until one of them ends", own=True),
    Reason("UserLimitReached", "Its user, or those who share a limit, have as much as a UserLimit permits; the message "
           "has the numbers", "Waiting until own workloads end; a higher limit for the user", own=True),
    Reason("BudgetExhausted", "A Budget has too few hours left for it in the period, or reserves hours until the time "
           "limit, and it has none; the message has the numbers", "Waiting for the next period; a shorter time limit; "
           "`sluice budget grant` by an admin", own=True),
    Reason("ReservedForOthers", "A Reservation keeps the quota, or nodes, for other workloads, now or from a time at "
           "which it may still run; the message names it",
           "Waiting; a time limit that ends before its start", own=True),
    Reason("ExceedsMaxQuota", "It requests more than its ClusterQueue can ever use",
           "Requesting less; raising the limit that the message names"),
    Reason("NoMatchingFlavor", "Its pods can run on the nodes of no flavor, or request a resource without quota; the "
           "message names the label, taint or resource", "Changing nodeSelector, affinity, tolerations or requests; "
           "another LocalQueue"),
    Reason("TopologyPlacementFailed", "The nodes of its flavor have no place for its pods in the topology, "
           "even if nothing else ran there", "Requesting another level, or less; more nodes"),
    Reason("Misconfigured", "The workload, its LocalQueue, or its namespace has a fault; the message says which, and "
           "where", "What the message says; it is evaluated again when it changes"),
    Reason("Suspended", "Its LocalQueue or ClusterQueue is stopped, or not complete",
           "An admin opens it with `sluice resume`, or completes it"),
    Reason("Drained", "The flavors or nodes with room for it are drained; the message says which, and why",
           "Waiting until an admin ends the drain; a time limit that ends before the maintenance", own=True),
    Reason("OnHold", "Its user or an admin put it on hold; the message says who and why",
           "`sluice release`, by its user if it is on hold by `sluice.dev/hold`, else by an admin"),
    Reason("Deactivated", "An admin took it out of the queue; the message says who and why", "`sluice release` by an "
           "admin; or deleting it and submitting it again"),
    Reason("ClusterUnavailable", "Nothing is started in its cluster, which is lost, not connected yet, draining or "
           "disabled, or no cluster is open that it could be dispatched to; the message says which",
           "Waiting until it is back; an admin sees more in `sluice get clusters`",
           own=True),
    Reason("BeingDeleted", "Its object is being deleted, and a finalizer keeps it",
           "The controller that set the finalizer removes it", own=True),
    Reason("AdmissionGated", "Controllers gate it by the annotation `kueue.x-k8s.io/admission-gated-by`, the message "
           "says which; or it needs preemption, and its preemption gate is closed", "The controllers open their gates; "
           "else waiting"),
)  # fmt: skip
"""Reasons of the condition QuotaReserved while it is False."""

EVICTED: Final = (
    Reason("Preempted", "Another workload needed its quota; the message says which, and by which rule",
           "It queues again by itself; a higher priority, or a queue with quota of its own"),
    Reason("PodsReadyTimeout", "Not all of its pods were ready in time (`waitForPodsReady`)",
           "It queues again after a pause; `kubectl describe pod` shows what its pods waited for"),
    Reason("AdmissionCheck", "An admission check asked to try again later", "It queues again by itself"),
    Reason("ClusterQueueStopped", "Its ClusterQueue was stopped with `HoldAndDrain`",
           "An admin opens it with `sluice resume`"),
    Reason("LocalQueueStopped", "Its LocalQueue was stopped with `HoldAndDrain`",
           "An admin opens it with `sluice resume`"),
    Reason("OverQuota", "Quota was lowered below use, and its ClusterQueue converges to it (`overQuota`)",
           "It queues again by itself", own=True),
    Reason("Drained", "The deadline of a Drain of its nodes or its flavor has passed", "It queues again by itself",
           own=True),
    Reason("FlavorMigration", "A flavor is free that its ClusterQueue prefers to its own (`concurrentAdmissionPolicy`)",
           "It queues again by itself"),
    Reason("BudgetExhausted", "The hours of a Budget have been used up for as long as workloads may run on "
           "(`action: PreemptAfter`)", "It queues again by itself, and waits for the next period or a grant", own=True),
    Reason("ReservationStarted", "A Reservation has begun that evicts what is in its way (`atStart: Preempt`)",
           "It queues again by itself", own=True),
    Reason("NodeFailures", "Nodes on which it was placed by topology have failed, and no others could take their place",
           "It queues again by itself"),
    Reason("ClusterLost", "The cluster that it was dispatched to has been lost for too long",
           "It queues again by itself, to run elsewhere", own=True),
    Reason("ClusterRefused", "The cluster that it was dispatched to does not accept its copy; the message says why",
           "Other clusters are tried; creating there what is missing", own=True),
    Reason("CopyDeleted", "Others have deleted its copy in the cluster that it was dispatched to",
           "It queues again by itself", own=True),
    Reason("OutOfSync", "It was edited after it had been admitted", "It queues again as it is now", own=True),
    Reason("Moved", "It was moved to another LocalQueue", "It queues there", own=True),
    Reason("OnHold", "Its user or an admin put it on hold", "`sluice release`, by its user if it is on hold by "
           "`sluice.dev/hold`, else by an admin", own=True),
    Reason("Deleted", "It was deleted; its pods hold the quota until they have terminated", "Nothing has to be done",
           own=True),
    Reason("Misconfigured", "The API server refuses to start it as it is", "What the message says", own=True),
    Reason("Deactivated", "An admin took it out of the queue", "`sluice release` by an admin; or deleting it and "
           "submitting it again"),
    Reason("DeactivatedDueToAdmissionCheck", "An admission check rejected it", "What the check says; then "
           "`sluice release` by an admin, or submitting it again"),
    Reason("DeactivatedDueToRequeuingLimitExceeded",
           "Its pods were not ready in time more often than `backoffLimitCount` allows",
           "Repairing its pods; then `sluice release` by an admin, or submitting it again"),
    Reason("DeactivatedDueToMaximumExecutionTimeExceeded", "It ran as long as `maximumExecutionTimeSeconds` allows",
           "A longer time; then `sluice release` by an admin, or submitting it again"),
    Reason("DeactivatedDueToStartImpossible", "Its start was begun, and its pods could not be placed, as with Kubeflow "
           "Trainer 2.0", "What the message says; then `sluice release` by an admin, "
           "or submitting it again", own=True),
    Reason("DeactivatedDueToMorePodsThanDeclared", "More pods ran than its AppWrapper declares",
           "Declaring all pods, scaling no wrapped object; then `sluice release` by an admin, or submitting it again",
           own=True),
    Reason("WorkloadSliceReplaced", "A larger or smaller version of it took over its quota", "Nothing has to be done"),
)  # fmt: skip
"""Reasons of the condition Evicted."""

PREEMPTED: Final = (
    Reason("InClusterQueue", "For a workload of its own ClusterQueue (`withinClusterQueue`)", ""),
    Reason("TimeSlice", "For a workload of the same priority, as its time slice was over (`timeSlice`)", "", own=True),
    Reason("InCohortReclamation", "For a ClusterQueue that took back what it had lent (`reclaimWithinCohort`)", ""),
    Reason("InCohortFairSharing", "For a ClusterQueue with a smaller share, by fair sharing", ""),
    Reason("InCohortReclaimWhileBorrowing", "For a ClusterQueue that borrows itself (`borrowWithinCohort`)", ""),
)
"""Reasons of the condition Preempted."""

RUNNING: Final = (
    Reason("Admitted", "It holds quota and may run; the message says with how many pods, if with fewer than it "
           "requests", ""),
    Reason("QuotaReserved", "It holds quota, and some admission checks are not ready", "`sluice why` lists them"),
    Reason("PodsUnscheduled", "It is admitted, and its start is refused, or some of its pods find no node or do not "
           "start; the message quotes the API server, the scheduler or the kubelet", "What the message says", own=True),
)  # fmt: skip
"""Reasons of workloads that hold quota."""

FINISHED: Final = (
    Reason("Succeeded", "It finished successfully", ""),
    Reason("Failed", "It failed", "`kubectl logs`"),
    Reason("Deleted", "Its object was deleted", "", own=True),
    Reason(
        "Evicted",
        "It is a pod, and was stopped by deleting it, as pods cannot be suspended",
        "Creating it again",
        own=True,
    ),
    Reason("Dequeued", "Its queue label was removed: it is not managed any more", "", own=True),
)
"""Reasons of the condition Finished."""

_TABLES: Final = (
    ("It waits: condition `QuotaReserved` is False", WAITING),
    ("It was evicted: condition `Evicted` is True", EVICTED),
    ("It was preempted: condition `Preempted` is True", PREEMPTED),
    ("It holds quota", RUNNING),
    ("It has finished: condition `Finished` is True", FINISHED),
)


def names() -> frozenset[str]:
    """Return the names of all reasons."""
    return frozenset(reason.name for _, table in _TABLES for reason in table)


def reference() -> str:
    """Return the tables of docs/reasons.md, in Markdown."""
    parts = []
    for title, table in _TABLES:
        rows = [
            f"| `{reason.name}`{' (Sluice)' if reason.own else ''} | {reason.means} | {reason.helps} |"
            for reason in table
        ]
        parts.append("\n".join([f"## {title}", "", "| reason | means | what helps |", "| --- | --- | --- |", *rows]))
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    print(reference(), end="")  # noqa: T201
