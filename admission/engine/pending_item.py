"""One waiting workload: where it stands in its queue, and how far its search for a flavor came."""

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
    """How far the search for a flavor came, to be continued in the next attempt."""

    tried: tuple[dict[str, int], ...]
    """For each pod set: resource to the index of the last flavor tried, -1 if that was the last of its group."""
    generation: int
    """The ClusterQueue's generation then."""
    cycle: int

    @property
    def unfinished(self) -> bool:
        """Whether flavors are left to try."""
        return any(index != -1 for indices in self.tried for index in indices.values())


class Item:
    """One waiting workload."""

    __slots__ = (
        "accepted",
        "bucket",
        "cluster_queue",
        "fault",
        "not_before",
        "progress",
        "rank_at",
        "rank_priority",
        "said",
        "shape",
        "since",
        "token",
        "workload",
    )

    def __init__(self, workload: Workload, shape: Shape) -> None:
        self.workload = workload
        self.shape = shape
        self.since = workload.since
        # Only the order of the queue goes by what an admin said; all else by what is so.
        self.rank_priority = workload.priority if workload.rank_priority is None else workload.rank_priority
        self.rank_at = self.since if workload.rank_at is None else workload.rank_at
        self.accepted = True
        """Whether the queue takes workloads of its namespace."""
        self.cluster_queue = ""
        """The name of the ClusterQueue in which it waits; "" if in none."""
        self.fault: tuple[str, str] | None = None
        """Why it may never be admitted as it is: reason and message."""
        self.not_before = 0.0
        """Until when it takes no part."""
        self.bucket: Bucket | None = None
        self.token = 0
        self.progress: Progress | None = None
        self.said: tuple[str, str] | None = None
        """Reason and message as they were last reported."""

    @property
    def uid(self) -> str:
        """The workload's uid."""
        return self.workload.uid

    @property
    def rank(self) -> Rank:
        """Its place in the order of the queue."""
        return -self.rank_priority, self.rank_at, self.workload.uid

    @property
    def local_queue(self) -> LocalQueueKey:
        """(namespace, name)."""
        return self.workload.namespace, self.workload.queue
