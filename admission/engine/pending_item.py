"""A pending workload in the engine: its place in the order of its ClusterQueue, and its progress through flavors."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from admission.engine.equivalence import Shape
    from admission.engine.pending import Bucket
    from admission.engine.sorted_ranking import Rank
    from admission.model.workload import Workload

LocalQueueKey = tuple[str, str]
"""(namespace, name)."""


class Progress(NamedTuple):
    """Flavors that were tried already, so that the next attempt goes on behind them (Kueue's `LastAssignment`)."""

    tried: tuple[dict[str, int], ...]
    """For each pod set: resource to the index of the last flavor tried, -1 if that was the last of its group."""
    generation: int
    """`ClusterQueue.generation` at that attempt."""
    cycle: int
    """The number of the cycle of that attempt."""

    @property
    def unfinished(self) -> bool:
        """Whether flavors are left to try."""
        return any(index != -1 for indices in self.tried for index in indices.values())


class Item:
    """A pending workload."""

    __slots__ = (
        "accepted",
        "bucket",
        "cluster_queue",
        "fault",
        "last_park",
        "last_reason",
        "local_queue",
        "not_before",
        "progress",
        "rank",
        "rank_at",
        "rank_priority",
        "shape",
        "since",
        "token",
        "uid",
        "victims",
        "workload",
    )

    def __init__(self, workload: Workload, shape: Shape) -> None:
        self.workload = workload
        self.uid = workload.uid
        self.local_queue: LocalQueueKey = workload.namespace, workload.queue
        """(namespace, name)."""
        self.shape = shape
        self.since = workload.since
        # An admin's rank overrides the position in the queue only; preemption compares the workload's own priority.
        self.rank_priority = workload.priority if workload.rank_priority is None else workload.rank_priority
        self.rank_at = self.since if workload.rank_at is None else workload.rank_at
        self.rank: Rank = -self.rank_priority, self.rank_at, workload.uid
        """The sort key in its ClusterQueue: priority, highest first; waiting since; uid."""
        self.accepted = True
        """Whether the ClusterQueue's namespaceSelector matches its namespace."""
        self.cluster_queue = ""
        """The name of the ClusterQueue in which it waits; "" if in none."""
        self.fault: tuple[str, str] | None = None
        """Reason and message if it can never be admitted as it is."""
        self.not_before = 0.0
        """Unix time (s) of its requeue backoff's end; 0: no backoff."""
        self.bucket: Bucket | None = None
        self.token = 0
        self.progress: Progress | None = None
        self.last_park: tuple[str, str] | None = None
        """Reason and message that were last reported as a Park decision."""
        self.last_reason: tuple[str, str] | None = None
        """Reason and sentence as `Engine.reasons` last returned them."""
        self.victims: tuple[str, ...] = ()
        """Uids of the workloads for whose end it waits, as they were preempted for it or for another one."""
