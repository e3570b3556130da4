"""A pending workload in the engine: its shape, its place in the order of its ClusterQueue, and the flavors it tried.

Shapes are equivalence classes of workloads, so that what was computed for one of them is used for all. A shape is what
decides whether a workload fits: its pod sets and its priority (Kueue's scheduling hash), and whose quota it takes over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from collections.abc import Hashable

    from admission.engine.accounting import Accounting
    from admission.engine.clusterqueue import ClusterQueue, Facts
    from admission.engine.pending import Bucket
    from admission.engine.sorted_ranking import Rank
    from admission.model.workload import PodSet, Workload

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


class Shape:
    """Pod sets and priority that equal workloads have in common. Equal shapes are one object."""

    __slots__ = ("__weakref__", "facts", "partial", "pod_sets", "priority", "replaces", "written")

    def __init__(
        self, written: tuple[PodSet, ...], pod_sets: tuple[PodSet, ...], priority: int, replaces: str = ""
    ) -> None:
        self.written = written
        self.pod_sets = pod_sets
        """The pod sets as they count against quota (see `Accounting`); `written` are those of the workload."""
        self.priority = priority
        self.replaces = replaces
        """The uid of the workload whose quota it takes over: what it needs of each flavor is less by that."""
        self.facts: dict[ClusterQueue, Facts] = {}
        """By ClusterQueue."""
        self.partial = any(pod_set.min_count is not None for pod_set in pod_sets)


class Shapes:
    """The shapes in use. Held weakly: a shape is forgotten with its last workload."""

    def __init__(self, accounting: Accounting) -> None:
        self._accounting = accounting
        self._by_value: WeakValueDictionary[Hashable, Shape] = WeakValueDictionary()
        self._by_identity: WeakValueDictionary[tuple[int, int], Shape] = WeakValueDictionary()

    def of(self, workload: Workload) -> Shape:
        """The shape of a workload."""
        identity = id(workload.pod_sets), workload.priority
        known = self._by_identity.get(identity)
        if known is not None and known.written is workload.pod_sets and known.replaces == workload.replaces:
            return known
        value = workload.priority, workload.replaces, *map(_value, workload.pod_sets)
        shape = self._by_value.get(value)
        if shape is None:
            counted = self._accounting.pod_sets(workload.pod_sets)
            shape = Shape(workload.pod_sets, counted, workload.priority, workload.replaces)
            self._by_value[value] = shape
            # The shape keeps the tuple alive, so that its id means the same as long as the entry exists.
            self._by_identity[identity] = shape
        return shape


def _value(pod_set: PodSet) -> Hashable:
    return (
        pod_set.name,
        pod_set.count,
        pod_set.min_count,
        tuple(sorted(pod_set.requests.items())),
        tuple(sorted(pod_set.node_selector.items())),
        pod_set.tolerations,
        pod_set.affinity,
        pod_set.group,
    )
