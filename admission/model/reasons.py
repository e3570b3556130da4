"""All reasons for the state of a workload: what each means, and what helps. docs/reasons.md shows them.

The words are Kueue's wherever Kueue has one. `python -m admission.model.reasons` prints the tables of that page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason. `means` and `helps` are for the reference; what is said of one workload is in `sentences`."""

    name: str
    means: str
    helps: str
    own: bool = False
    """Whether it is Sluice's own, and not Kueue's."""


WAITING: Final = (
    Reason("PendingEvaluation", "It has only just come, pauses after an eviction, runs without quota and is stopped "
           "first, or fits, and a StrictFIFO queue starts those in front of it first", "Waiting"),
    Reason("WaitingForQuota", "Too little is free now", "Waiting; asking for less; more quota or borrowing"),
    Reason("WaitingForPreemptedWorkloads", "Workloads were preempted, and have not stopped yet", "Waiting"),
    Reason("WaitingForPodsReady", "`waitForPodsReady.blockAdmission`: the pods of an admitted workload are not ready",
           "Waiting; looking at the pods of what was admitted last", own=True),
    Reason("ExceedsMaxQuota", "It asks for more than its ClusterQueue can ever use",
           "Asking for less; raising the limit that the message names"),
    Reason("NoMatchingFlavor", "Its pods can run on the nodes of no flavor, or ask for what has no quota; the message "
           "names the label, taint or resource", "Changing nodeSelector, affinity, tolerations or requests; another "
           "LocalQueue"),
    Reason("Misconfigured", "It, its LocalQueue, or its namespace is not as it has to be; the message says what, and "
           "where", "What the message says; it is looked at again when it changes"),
    Reason("Suspended", "Its LocalQueue or ClusterQueue is stopped, or not complete",
           "An admin opens it with `sluice resume`, or completes it"),
    Reason("OnHold", "Its user or an admin holds it; the message says who and why",
           "`sluice release`, by its user where `sluice.dev/hold` holds it, else by an admin"),
    Reason("Deactivated", "An admin took it out of the queue; the message says who and why", "`sluice activate` by an "
           "admin; or deleting it and submitting it again"),
    Reason("BeingDeleted", "Its object is being deleted, and a finalizer keeps it",
           "Whoever has set the finalizer removes it", own=True),
    Reason("AdmissionGated", "Controllers hold it by the annotation `kueue.x-k8s.io/admission-gated-by`, the message "
           "says which; or it would have to preempt others, and may not yet", "What these are for; else waiting"),
)  # fmt: skip
"""Of the condition QuotaReserved, while that is False."""

EVICTED: Final = (
    Reason("Preempted", "Another workload needed its quota; the message says which, and by which rule",
           "It queues again by itself; a higher priority, or a queue with quota of its own"),
    Reason("PodsReadyTimeout", "Not all of its pods were ready in time (`waitForPodsReady`)",
           "It queues again after a pause; `kubectl describe pod` says what its pods waited for"),
    Reason("AdmissionCheck", "An admission check asked to try again later", "It queues again by itself"),
    Reason("ClusterQueueStopped", "Its ClusterQueue was stopped with `HoldAndDrain`",
           "An admin opens it with `sluice resume`"),
    Reason("LocalQueueStopped", "Its LocalQueue was stopped with `HoldAndDrain`",
           "An admin opens it with `sluice resume`"),
    Reason("OverQuota", "Quota was lowered below use, and its ClusterQueue converges to it (`overQuota`)",
           "It queues again by itself", own=True),
    Reason("OutOfSync", "It was edited after it had been admitted", "It queues again as it asks now", own=True),
    Reason("Moved", "It was moved to another LocalQueue", "It queues there", own=True),
    Reason("OnHold", "Its user or an admin holds it", "`sluice release`, by its user where `sluice.dev/hold` holds it, "
           "else by an admin", own=True),
    Reason("Deleted", "It was deleted; its pods hold the quota until they have ended", "Nothing has to be done",
           own=True),
    Reason("Misconfigured", "The API server refuses to start it as it is", "What the message says", own=True),
    Reason("Deactivated", "An admin took it out of the queue", "`sluice activate` by an admin; or deleting it and "
           "submitting it again"),
    Reason("DeactivatedDueToAdmissionCheck", "An admission check rejected it", "What the check says; then "
           "`sluice activate` by an admin, or submitting it again"),
    Reason("DeactivatedDueToRequeuingLimitExceeded",
           "Its pods did not get ready as often as `backoffLimitCount` allows",
           "Repairing its pods; then `sluice activate` by an admin, or submitting it again"),
    Reason("DeactivatedDueToMaximumExecutionTimeExceeded", "It ran as long as `maximumExecutionTimeSeconds` allows",
           "A longer time; then `sluice activate` by an admin, or submitting it again"),
    Reason("WorkloadSliceReplaced", "A larger or smaller version of it took over its quota", "Nothing has to be done"),
)  # fmt: skip
"""Of the condition Evicted."""

PREEMPTED: Final = (
    Reason("InClusterQueue", "For a workload of its own ClusterQueue (`withinClusterQueue`)", ""),
    Reason("InCohortReclamation", "For a ClusterQueue that took back what it had lent (`reclaimWithinCohort`)", ""),
    Reason("InCohortFairSharing", "For a ClusterQueue with a smaller share, by fair sharing", ""),
    Reason("InCohortReclaimWhileBorrowing", "For one that borrows itself (`borrowWithinCohort`)", ""),
)
"""Of the condition Preempted."""

RUNNING: Final = (
    Reason("Admitted", "It holds quota and may run; the message says with how many pods, if with fewer than it asked "
           "for", ""),
    Reason("QuotaReserved", "It holds quota, and admission checks have not all answered", "`sluice why` lists them"),
    Reason("PodsUnscheduled", "It is admitted, and its start is refused, or pods of it find no node or do not start; "
           "the message has the words of the API server, the scheduler or the kubelet", "What they say", own=True),
)  # fmt: skip
"""Of one that holds quota."""

FINISHED: Final = (
    Reason("Succeeded", "It ended well", ""),
    Reason("Failed", "It failed", "`kubectl logs`"),
    Reason("Deleted", "Its object was deleted", "", own=True),
    Reason(
        "Evicted",
        "It was a pod, and was stopped: by deleting it, as pods cannot be suspended",
        "Creating it again",
        own=True,
    ),
    Reason("Dequeued", "Its queue label was removed: it is not managed any more", "", own=True),
)
"""Of the condition Finished."""

_TABLES: Final = (
    ("It waits: condition `QuotaReserved` is False", WAITING),
    ("It was evicted: condition `Evicted` is True", EVICTED),
    ("It was preempted: condition `Preempted` is True", PREEMPTED),
    ("It holds quota", RUNNING),
    ("It has ended: condition `Finished` is True", FINISHED),
)


def names() -> frozenset[str]:
    """All reasons."""
    return frozenset(reason.name for _, table in _TABLES for reason in table)


def reference() -> str:
    """The tables of docs/reasons.md."""
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
