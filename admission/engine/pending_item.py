"""A pending workload in the engine: its shape, its place in the order, the flavors it tried, and those that are alike.

Shapes are equivalence classes of workloads, so that what was computed for one of them is used for all. A shape is what
decides whether a workload fits: its pod sets and its priority (Kueue's scheduling hash), and whose quota it takes over.
A bucket has those of a ClusterQueue that have one shape and differ only in time.
"""

from __future__ import annotations

from heapq import heappop
from math import inf
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from admission.engine.accounting import Accounting
    from admission.engine.clusterqueue import ClusterQueue, Facts
    from admission.model.workload import PodSet, Workload

LocalQueueKey = tuple[str, str]
"""(namespace, name)."""

Rank = tuple[int, float, str]
"""(negated priority, waiting since, uid): what comes first is the smallest."""


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


class Likeness(NamedTuple):
    """What the workloads of a bucket have in common beside their shape, so that time alone orders them."""

    accepted: bool
    """Whether the ClusterQueue's namespaceSelector matches their namespaces."""
    priority: int
    """The priority by which they are ordered (`Item.rank_priority`)."""
    local_queue: LocalQueueKey | None
    """None unless LocalQueues are ordered by usage (admission fair sharing)."""


class Bucket:
    """Pending workloads of one shape and likeness, as a heap by time."""

    __slots__ = ("front", "heap", "inadmissible", "last_reason", "likeness", "shape", "size")

    def __init__(self, shape: Shape, likeness: Likeness) -> None:
        self.shape = shape
        self.likeness = likeness
        self.heap: list[tuple[float, str, int, Item]] = []
        self.size = 0
        self.inadmissible = False
        """Whether its shape is inadmissible: all workloads in it, and those that are added."""
        self.front: Item | None = None
        """Its first item, which is ordered among the fronts of other buckets; None while the bucket is inadmissible."""
        self.last_reason: tuple[str, str] | None = None
        """Reason and sentence last reported of all in it, or about to be (see `Review`); None: not all the same."""

    def first(self) -> Item | None:
        """The earliest workload. Drops heap entries of workloads that have left (their token differs)."""
        heap = self.heap
        while heap and heap[0][3].token != heap[0][2]:
            heappop(heap)
        return heap[0][3] if heap else None

    def before(self, rank: Rank, limit: int) -> list[Item]:
        """Up to `limit` workloads that rank before, in no order. Descends the heap only below those that do."""
        priority, *entry = rank
        bound = (inf, "") if -self.likeness.priority < priority else tuple(entry)
        found: list[Item] = []
        indices = [0]
        for index in indices:
            if index >= len(self.heap) or len(found) >= limit or self.heap[index][:2] >= bound:
                continue
            *_, token, item = self.heap[index]
            if item.token == token:
                found.append(item)
            indices += (2 * index + 1, 2 * index + 2)
        return found

    def items(self) -> Iterator[Item]:
        """All workloads of the bucket, in no order."""
        return (item for _, _, token, item in self.heap if item.token == token)


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
