"""Pending workload in the engine (`Item`), and the equivalence classes (`Shape`, `Bucket`) of pending workloads.

A shape is everything that decides whether a workload fits: its pod sets, priority, terms and cluster, and the workload
that it replaces (Kueue's scheduling equivalence hash, KEP 9694). Results computed for one workload are used for all of
its shape. A bucket contains the pending workloads of a ClusterQueue that have one shape and are ordered by time alone.
"""

from __future__ import annotations

from dataclasses import replace
from heapq import heappop
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakValueDictionary

from admission.model.terms import NO_TERMS
from admission.model.workload import LOCAL, person_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from admission.engine.accounting import Accounting
    from admission.engine.clusterqueue import ClusterQueue, Facts
    from admission.engine.tree import FlavorResource
    from admission.model.terms import Terms
    from admission.model.workload import PodSet, Workload

LocalQueueKey = tuple[str, str]
"""(namespace, name)."""

SharerKey = tuple[str, str]
"""Whose usage orders workloads of a ClusterQueue: a `LocalQueueKey`, or a user, after an empty text."""

Rank = tuple[int, float, str]
"""(negated priority, waiting since, uid): the smallest comes first."""


def sharer_of(workload: Workload, *, by_user: bool) -> SharerKey:
    """Return whose usage orders a workload."""
    return ("", person_of(workload.user, workload.namespace)) if by_user else (workload.namespace, workload.queue)


class Progress(NamedTuple):
    """Where a search for flavors stopped, so that the next nomination continues there (Kueue's `LastAssignment`)."""

    tried: tuple[dict[str, int], ...]
    """For each pod set: resource to the index of the last flavor tried, -1 if that was the last of its group."""
    generation: int
    """`ClusterQueue.generation` at that search."""
    cycle: int
    """The number of the cycle of that search."""

    @property
    def unfinished(self) -> bool:
        """Whether flavors are left to try."""
        return any(index != -1 for indices in self.tried for index in indices.values())


_LOWERED: Final = -(1 << 40)
"""What is added to the priority of workloads that a policy lowers: they are below all that Kubernetes has, and keep
their order."""


def lowered_priority(priority: int) -> int:
    """Return the priority that counts while a policy lowers a workload."""
    return _LOWERED + priority


def lowered(workload: Workload) -> Workload:
    """Return a workload as it is decided about while a policy lowers it: behind all others, and preempting none."""
    terms = replace(workload.terms, preempts=False)
    return replace(workload, priority=lowered_priority(workload.priority), terms=terms)


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
        "lowered",
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
        "yields_to",
    )

    def __init__(self, workload: Workload, shape: Shape) -> None:
        self.workload = workload
        self.uid = workload.uid
        self.local_queue: LocalQueueKey = workload.namespace, workload.queue
        self.shape = shape
        self.since = workload.since
        # An admin's rank overrides the position in the queue only; preemption compares the workload's own priority.
        self.rank_priority = shape.priority if workload.rank_priority is None else workload.rank_priority
        self.rank_at = self.since if workload.rank_at is None else workload.rank_at
        self.rank: Rank = -self.rank_priority, self.rank_at, workload.uid
        """The sort key in its ClusterQueue: priority, highest first; waiting since; uid."""
        self.lowered = False
        """Whether a policy lowers it: `shape` is that of `lowered`."""
        self.accepted = True
        """Whether the ClusterQueue's namespaceSelector matches its namespace."""
        self.cluster_queue = ""
        """The name of the ClusterQueue in which it is pending; "" if in none."""
        self.fault: tuple[str, str] | None = None
        """Reason and message if it cannot be admitted as it is."""
        self.not_before = 0.0
        """Unix time (s) at which its requeue backoff ends; 0: no backoff."""
        self.bucket: Bucket | None = None
        """The bucket that contains it; None: it is inadmissible on its own, or being decided by a cycle."""
        self.token = 0
        """The token of its entry in the bucket's heap; entries with another token are outdated."""
        self.progress: Progress | None = None
        self.last_park: tuple[str, str] | None = None
        """Reason and message that were last reported as a Park decision."""
        self.last_reason: tuple[str, str] | None = None
        """Reason and message that `Engine.reasons` last returned."""
        self.victims: tuple[str, ...] = ()
        """Uids of preempted workloads whose quota it waits for: its own targets, or those of another preemptor."""
        self.yields_to = ""
        """Uid of the workload that would preempt it if it was admitted now; "" if none is known."""

    def age(self, interval: float) -> None:
        """Order it by a priority that grows by 1 in each `interval` (s) of waiting; 0: by its own. Not while pending.

        All grow alike, so that the order of two workloads never changes: of equal ones it is that of the times at which
        they would have had a priority of 0.
        """
        workload = self.workload
        self.rank_priority = self.shape.priority if workload.rank_priority is None else workload.rank_priority
        self.rank_at = self.since if workload.rank_at is None else workload.rank_at
        if interval:
            self.rank_priority, self.rank_at = 0, self.rank_at - self.rank_priority * interval
        self.rank = -self.rank_priority, self.rank_at, self.uid


class Shape:
    """Pod sets and priority that a class of equal workloads has in common. Equal shapes are one object."""

    __slots__ = (
        "__weakref__",
        "_in_clusters",
        "_limited",
        "_usage",
        "cluster",
        "clusters",
        "facts",
        "partial",
        "pod_sets",
        "priority",
        "replaces",
        "terms",
        "written",
    )

    def __init__(
        self,
        written: tuple[PodSet, ...],
        pod_sets: tuple[PodSet, ...],
        priority: int,
        replaces: str = "",
        terms: Terms = NO_TERMS,
        cluster: str = LOCAL,
        clusters: tuple[tuple[str, ...], ...] = (),
    ) -> None:
        self.written = written
        """The pod sets of the workload."""
        self.pod_sets = pod_sets
        """The pod sets with the requests that count against quota (see `Accounting`)."""
        self.priority = priority
        self.replaces = replaces
        """Uid of the workload whose quota it takes over: that quota is subtracted from its requests."""
        self.terms = terms
        """What its user permits; what it waits for is part of no shape."""
        self.cluster = cluster
        """Name of its cluster, whose flavors it may get."""
        self.clusters = clusters
        """The clusters of which it may get the flavors of one instead, as in `Workload`; empty: it runs in its own."""
        self.facts: dict[ClusterQueue, Facts] = {}
        """ClusterQueue to the results cached for the shape there."""
        self.partial = any(pod_set.min_count is not None for pod_set in pod_sets)
        """Whether it may be admitted with fewer pods."""
        self._usage: dict[FlavorResource, int] | None = None
        self._limited: dict[str, Shape] = {}
        self._in_clusters: tuple[Shape, ...] = ()

    def limited_to(self, flavor: str) -> Shape:
        """Return the shape of its variant in this flavor."""
        shape = self._limited.get(flavor)
        if shape is None:
            terms = replace(self.terms, flavors=(flavor,))
            shape = Shape(self.written, self.pod_sets, self.priority, self.replaces, terms, self.cluster, self.clusters)
            self._limited[flavor] = shape
        return shape

    @property
    def alternatives(self) -> tuple[Shape, ...]:
        """The shape in each cluster that it may be dispatched to, the preferred one first; else only itself."""
        if not self.clusters:
            return (self,)
        if not self._in_clusters:
            self._in_clusters = tuple(
                Shape(self.written, self.pod_sets, self.priority, self.replaces, self.terms, cluster)
                for place in self.clusters
                for cluster in place
            )
        return self._in_clusters

    def in_order(self, load: Callable[[Shape], float]) -> Sequence[Shape]:
        """Return the alternatives in the order in which they are tried now; `load`: how much of a cluster is used."""
        if all(len(place) == 1 for place in self.clusters):
            return self.alternatives
        rest = iter(self.alternatives)
        return [each for place in self.clusters for each in sorted(islice(rest, len(place)), key=load)]

    @property
    def usage(self) -> Mapping[FlavorResource, int]:
        """The quota that all of its pods need together, with empty flavors: none are assigned yet."""
        if self._usage is None:
            self._usage = {}
            for pod_set in self.pod_sets:
                for resource, amount in pod_set.total(pod_set.count).items():
                    self._usage["", resource] = self._usage.get(("", resource), 0) + amount
        return self._usage


class BucketKey(NamedTuple):
    """Key of a bucket among those of one shape: with it equal, workloads are ordered by time alone."""

    accepted: bool
    """Whether the ClusterQueue's namespaceSelector matches their namespaces."""
    priority: int
    """The priority by which they are ordered (`Item.rank_priority`)."""
    sharer: SharerKey | None
    """None unless LocalQueues or users are ordered by usage (admission fair sharing)."""


class Bucket:
    """Pending workloads of one shape and key, as a heap ordered by time."""

    __slots__ = ("front", "heap", "inadmissible", "key", "last_reason", "shape", "size")

    def __init__(self, shape: Shape, key: BucketKey) -> None:
        self.shape = shape
        self.key = key
        self.heap: list[tuple[float, str, int, Item]] = []
        """(waiting since, uid, token, workload); entries with an outdated token are dropped lazily."""
        self.size = 0
        """The number of workloads, without outdated entries."""
        self.inadmissible = False
        """Whether its shape is inadmissible: that of all workloads in it, also of those that are added."""
        self.front: Item | None = None
        """Its first item, which is ordered among the fronts of other buckets; None while the bucket is inadmissible."""
        self.last_reason: tuple[str, str] | None = None
        """Reason and message reported or due for all its workloads (see `ReasonRefresh`); None: they differ."""

    def first(self) -> Item | None:
        """Return the earliest workload, and drop outdated heap entries before it."""
        heap = self.heap
        while heap and heap[0][3].token != heap[0][2]:
            heappop(heap)
        return heap[0][3] if heap else None

    def before(self, rank: Rank, limit: int) -> list[Item]:
        """Return up to `limit` workloads that rank before, in no order. Visits only children of such heap entries."""
        priority, *entry = rank
        bound = (inf, "") if -self.key.priority < priority else tuple(entry)
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
        """Return all workloads of the bucket, in no order."""
        return (item for _, _, token, item in self.heap if item.token == token)


class Shapes:
    """The shapes in use. References are weak: a shape goes with its last workload."""

    def __init__(self, accounting: Accounting) -> None:
        self._accounting = accounting
        self._by_value: WeakValueDictionary[Hashable, Shape] = WeakValueDictionary()
        self._by_identity: WeakValueDictionary[tuple[int, int], Shape] = WeakValueDictionary()

    def of(self, workload: Workload) -> Shape:
        """Return the shape of a workload, reusing an equal one."""
        identity = id(workload.pod_sets), workload.priority
        known = self._by_identity.get(identity)
        replaces, terms, cluster, clusters = workload.replaces, workload.terms, workload.cluster, workload.clusters
        if terms.after or terms.at_most is not None or terms.variant_of:
            terms = replace(terms, after=(), at_most=None, variant_of="")
        is_same = known is not None and known.written is workload.pod_sets and known.replaces == replaces
        is_same = is_same and known is not None and known.cluster == cluster and known.clusters == clusters
        if known is not None and is_same and (known.terms is terms or known.terms == terms):
            return known
        value = workload.priority, replaces, terms, cluster, clusters, *map(_value, workload.pod_sets)
        shape = self._by_value.get(value)
        if shape is None:
            counted = self._accounting.pod_sets(workload.pod_sets)
            shape = Shape(workload.pod_sets, counted, workload.priority, replaces, terms, cluster, clusters)
            self._by_value[value] = shape
            # The shape keeps the tuple alive, so that its id is not reused while the entry exists.
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
        pod_set.preferences,
        pod_set.group,
        pod_set.topology,
        pod_set.optional,
        tuple(sorted(pod_set.devices.items())),
        tuple(sorted(pod_set.shared.items())),
    )
