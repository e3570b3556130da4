"""The workloads that wait in one ClusterQueue, in the order in which they are tried.

They lie in buckets of equal shape, and the queue orders the heads of its buckets. So the whole of a shape can be set
aside as inadmissible, and be released again, without touching its workloads.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from admission.engine.shapes import Shape
    from admission.model.workload import Workload


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
        "said",
        "shape",
        "since",
        "token",
        "workload",
    )

    def __init__(self, workload: Workload, shape: Shape) -> None:
        self.workload = workload
        self.shape = shape
        self.since = workload.created if workload.queued_at is None else workload.queued_at
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


class Bucket:
    """Waiting workloads of one shape, whose namespaces the queue accepts, or does not; earliest first."""

    __slots__ = ("accepted", "aside", "front", "heap", "local_queue", "shape", "size")

    def __init__(self, shape: Shape, *, accepted: bool, local_queue: tuple[str, str] | None) -> None:
        self.shape = shape
        self.accepted = accepted
        self.local_queue = local_queue
        self.heap: list[tuple[float, str, int, Item]] = []
        self.size = 0
        self.aside = False
        """Set aside as inadmissible, whoever is in it or comes into it."""
        self.front: Item | None = None
        """The item that stands for the bucket in the queue's order."""

    def first(self) -> Item | None:
        """The earliest workload; entries that are no longer meant are dropped on the way."""
        heap = self.heap
        while heap and heap[0][3].token != heap[0][2]:
            heappop(heap)
        return heap[0][3] if heap else None

    def before(self, rank: tuple[int, float, str], limit: int) -> list[Item]:
        """Some that rank before, at most `limit`: as a heap, nothing below one that does not has to be looked at."""
        priority, *entry = rank
        bound = (inf, "") if -self.shape.priority < priority else tuple(entry)
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
        """All workloads in it, in no order."""
        return (item for _, _, token, item in self.heap if item.token == token)


LocalQueueKey = tuple[str, str]
"""(namespace, name)."""


class Pending:
    """Order: the sticky preemptor; least LocalQueue usage, if asked for; priority; waiting since; uid.

    `usage` gives the usage of a LocalQueue in admission fair sharing, if the queue has it.
    """

    def __init__(self, usage: Callable[[LocalQueueKey], float] | None = None) -> None:
        self.usage = usage
        self.sticky = ""
        """The uid of the workload that preempted for itself and stays first until it is admitted."""
        self._buckets: dict[Shape, dict[tuple[bool, LocalQueueKey | None], Bucket]] = {}
        self._aside: dict[Shape, None] = {}
        self._alone: dict[str, tuple[Item, bool]] = {}
        self._order: list[tuple[int, float, str, int, Item, int]] = []
        self._tokens = count(1)
        self._by_uid: dict[str, Item] = {}

    def order_by(self, usage: Callable[[LocalQueueKey], float] | None) -> None:
        """Start or cease to put LocalQueues that used less first."""
        if usage is self.usage or (usage is not None and self.usage is not None):
            return
        items = [item for item in self._by_uid.values() if item.bucket is not None]
        for item in items:
            self._take(item)
        self.usage = usage
        for item in items:
            self.add(item)

    def __len__(self) -> int:
        return len(self._by_uid)

    def __contains__(self, uid: str) -> bool:
        return uid in self._by_uid

    def items(self) -> Iterator[Item]:
        """All that wait, in no order."""
        return iter(self._by_uid.values())

    def add(self, item: Item) -> None:
        """Let it take part; if its shape is set aside, it is too."""
        self._by_uid[item.uid] = item
        bucket = self._bucket(item)
        item.bucket = bucket
        item.token = next(self._tokens)
        heappush(bucket.heap, (item.since, item.uid, item.token, item))
        bucket.size += 1
        front = bucket.front
        if not bucket.aside and (front is None or (item.since, item.uid) < (front.since, front.uid)):
            self._stand(bucket, item)

    def _bucket(self, item: Item) -> Bucket:
        workload = item.workload
        accepted = item.accepted
        local_queue = None if self.usage is None else (workload.namespace, workload.queue)
        buckets = self._buckets.setdefault(item.shape, {})
        bucket = buckets.get((accepted, local_queue))
        if bucket is None:
            bucket = buckets[accepted, local_queue] = Bucket(item.shape, accepted=accepted, local_queue=local_queue)
            bucket.aside = item.shape in self._aside
        return bucket

    def _stand(self, bucket: Bucket, item: Item | None) -> None:
        bucket.front = item
        if item is not None and self.usage is None:
            entry = (-item.shape.priority, item.since, item.uid, next(self._tokens), item, item.token)
            heappush(self._order, entry)

    def remove(self, uid: str) -> None:
        """It is admitted or gone: neither waiting nor sticky any more."""
        if self.sticky == uid:
            self.sticky = ""
        item = self._by_uid.pop(uid, None)
        if item is not None:
            self._take(item)

    def _take(self, item: Item) -> None:
        self._alone.pop(item.uid, None)
        bucket = item.bucket
        item.bucket = None
        item.token = 0
        if bucket is None:
            return
        bucket.size -= 1
        if bucket.front is item:
            self._stand(bucket, None if bucket.aside else bucket.first())
        if not bucket.size:
            self._drop(bucket)

    def _drop(self, bucket: Bucket) -> None:
        buckets = self._buckets[bucket.shape]
        del buckets[bucket.accepted, bucket.local_queue]
        if not buckets:
            del self._buckets[bucket.shape]

    def pop(self) -> Item | None:
        """Take the first out of the order; it is still waiting until `remove`, and comes back by one of the others."""
        item = self._first()
        if item is not None:
            self._take(item)
        return item

    def _first(self) -> Item | None:
        sticky = self._by_uid.get(self.sticky) if self.sticky else None
        if sticky is not None and sticky.bucket is not None and not sticky.bucket.aside:
            return sticky
        if self.usage is not None:
            return self._least_used(self.usage)
        order = self._order
        while order:
            *_, item, token = order[0]
            bucket = item.bucket
            if item.token == token and bucket is not None and bucket.front is item and not bucket.aside:
                return item
            heappop(order)
        return None

    def _least_used(self, usage: Callable[[tuple[str, str]], float]) -> Item | None:
        fronts = [bucket.front for bucket in self._all() if bucket.front is not None]

        def rank(item: Item) -> tuple[float, int, float, str]:
            return usage((item.workload.namespace, item.workload.queue)), -item.shape.priority, item.since, item.uid

        return min(fronts, key=rank, default=None)

    def skip(self, blocked: Callable[[Shape], bool]) -> None:
        """Set aside from the front on what is `blocked`, as if each had been tried."""
        while (item := self._first()) is not None:
            if item.progress is not None or item.fault is not None or not item.accepted or not blocked(item.shape):
                return
            self._set_aside(item.shape)

    def put_aside(self, item: Item) -> None:
        """It cannot be admitted, nor can any other of its shape, until `release`."""
        self.add(item)
        self._set_aside(item.shape)

    def _set_aside(self, shape: Shape) -> None:
        self._aside[shape] = None
        for bucket in self._buckets[shape].values():
            bucket.aside = True
            bucket.front = None

    def put_alone(self, item: Item, *, until_asked: bool = False) -> None:
        """It is set aside for a reason of its own; `until_asked`: `release` does not bring it back."""
        self._by_uid[item.uid] = item
        self._alone[item.uid] = item, until_asked

    @property
    def set_aside(self) -> bool:
        """Whether any are set aside."""
        return bool(self._aside or self._alone)

    def release(self, keep: Callable[[Shape], bool] | None = None) -> None:
        """Let all that were set aside take part again, but those `until_asked` and the shapes to `keep` aside."""
        kept = dict.fromkeys(shape for shape in self._aside if keep is not None and keep(shape))
        for shape in self._aside.keys() - kept.keys():
            for bucket in list(self._buckets.get(shape, {}).values()):
                bucket.aside = False
                if bucket.accepted:
                    self._stand(bucket, bucket.first())
                    continue
                for item in list(bucket.items()):
                    self._take(item)
                    self.put_alone(item, until_asked=True)
        self._aside = kept
        back = [item for item, until_asked in self._alone.values() if not until_asked]
        for item in back:
            del self._alone[item.uid]
            self.add(item)

    def reconsider(self, now: float) -> None:
        """The queue has changed: let all take part again, under their present `accepted`, whose time has come."""
        self._aside.clear()
        for item in list(self._by_uid.values()):
            if item.not_before <= now:
                self._take(item)
                self.add(item)

    def wake(self, item: Item) -> None:
        """Its time has come."""
        self._take(item)
        self.add(item)

    def _all(self) -> Iterator[Bucket]:
        return (bucket for buckets in self._buckets.values() for bucket in buckets.values())

    def active(self) -> list[Item]:
        """Those that take part, in order (without regard to usage)."""
        items = [item for bucket in self._all() if not bucket.aside for item in bucket.items()]
        return sorted(items, key=lambda item: (item.uid != self.sticky, *_rank(item)))

    def inadmissible(self) -> list[Item]:
        """Those that are set aside, in order."""
        items = [item for bucket in self._all() if bucket.aside for item in bucket.items()]
        return sorted(items + [item for item, _ in self._alone.values()], key=_rank)

    def ahead_of(self, item: Item, limit: int) -> list[Item]:
        """Those that take part and are tried before it, in order (without regard to usage); about `limit` at most."""
        rank = _rank(item)
        found: list[Item] = []
        for bucket in self._all():
            if not bucket.aside and -bucket.shape.priority <= rank[0]:
                found += bucket.before(rank, limit - len(found))
        return sorted(found, key=_rank)


def _rank(item: Item) -> tuple[int, float, str]:
    return -item.shape.priority, item.since, item.uid
