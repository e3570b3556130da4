"""The workloads that wait in one ClusterQueue, in the order in which they are tried.

They lie in buckets of equal shape, and the queue orders the heads of its buckets. So the whole of a shape can be set
aside as inadmissible, and be released again, without touching its workloads.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from admission.engine.sorted_ranking import Ranking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from admission.engine.equivalence import Shape
    from admission.engine.pending_item import Item, LocalQueueKey
    from admission.engine.sorted_ranking import Rank


class Likeness(NamedTuple):
    """What workloads of one shape must have in common besides, to be ordered among each other by time alone."""

    accepted: bool
    """Whether the queue takes workloads of their namespaces."""
    priority: int
    """By which they are ordered."""
    local_queue: LocalQueueKey | None
    """Only told apart where usage decides."""


class Bucket:
    """Waiting workloads of one shape that are alike, earliest first."""

    __slots__ = ("aside", "front", "heap", "likeness", "shape", "size")

    def __init__(self, shape: Shape, likeness: Likeness) -> None:
        self.shape = shape
        self.likeness = likeness
        self.heap: list[tuple[float, str, int, Item]] = []
        self.size = 0
        self.aside = False
        """Set aside as inadmissible, whoever is in it or comes into it."""
        self.front: Item | None = None
        """The item that stands for the bucket in the queue's order; none while it is set aside."""

    def first(self) -> Item | None:
        """The earliest workload; entries that are no longer meant are dropped on the way."""
        heap = self.heap
        while heap and heap[0][3].token != heap[0][2]:
            heappop(heap)
        return heap[0][3] if heap else None

    def before(self, rank: Rank, limit: int) -> list[Item]:
        """Some that rank before, at most `limit`: as a heap, nothing below one that does not has to be looked at."""
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
        """All workloads in it, in no order."""
        return (item for _, _, token, item in self.heap if item.token == token)


class Pending:
    """Order: the sticky preemptor; least LocalQueue usage, if asked for; priority; waiting since; uid."""

    def __init__(self) -> None:
        self.usage: Callable[[LocalQueueKey], float] | None = None
        """Gives the usage of a LocalQueue in admission fair sharing, if the queue has it."""
        self.sticky = ""
        """The uid of the workload that preempted for itself and stays first until it is admitted."""
        self._buckets: dict[Shape, dict[Likeness, Bucket]] = {}
        self._aside: dict[Shape, None] = {}
        self._alone: dict[str, tuple[Item, bool]] = {}
        self._order: list[tuple[int, float, str, int, Item, int]] = []
        self._tokens = count(1)
        self._by_uid: dict[str, Item] = {}
        self._ranking = Ranking()
        self._rankings: dict[LocalQueueKey, Ranking] = {}

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

    def items(self) -> Iterator[Item]:
        """All that wait, in no order."""
        return iter(self._by_uid.values())

    def count_set_aside(self) -> int:
        """How many are set aside; those of one shape are counted together."""
        buckets = (bucket for shape in self._aside for bucket in self._buckets.get(shape, {}).values())
        return len(self._alone) + sum(bucket.size for bucket in buckets)

    def count_by_shape(self) -> Iterator[tuple[Shape, int]]:
        """Shapes of those that wait, with how many have them; a shape may come more than once."""
        for shape, buckets in self._buckets.items():
            yield shape, sum(bucket.size for bucket in buckets.values())
        for item, _ in self._alone.values():
            yield item.shape, 1

    def add(self, item: Item) -> None:
        """Let it take part; if its shape is set aside, it is too."""
        self._enter(item)
        bucket = self._bucket(item)
        item.bucket = bucket
        item.token = next(self._tokens)
        heappush(bucket.heap, (item.rank_at, item.uid, item.token, item))
        bucket.size += 1
        front = bucket.front
        if not bucket.aside and (front is None or (item.rank_at, item.uid) < (front.rank_at, front.uid)):
            self._stand(bucket, item)

    def _enter(self, item: Item) -> None:
        uid = item.uid
        if uid in self._by_uid:
            return
        self._by_uid[uid] = item
        entry = -item.rank_priority, item.rank_at, uid, item
        self._ranking.add(entry)
        local_queue = item.local_queue
        ranking = self._rankings.get(local_queue)
        if ranking is None:
            ranking = self._rankings[local_queue] = Ranking()
        ranking.add(entry)

    def _bucket(self, item: Item) -> Bucket:
        local_queue = None if self.usage is None else item.local_queue
        likeness = Likeness(item.accepted, item.rank_priority, local_queue)
        buckets = self._buckets.setdefault(item.shape, {})
        bucket = buckets.get(likeness)
        if bucket is None:
            bucket = buckets[likeness] = Bucket(item.shape, likeness)
            bucket.aside = item.shape in self._aside
        return bucket

    def _stand(self, bucket: Bucket, item: Item | None) -> None:
        bucket.front = item
        if item is not None and self.usage is None:
            heappush(self._order, (*item.rank, next(self._tokens), item, item.token))

    def remove(self, uid: str) -> None:
        """It waited, and is admitted or gone: neither waiting nor sticky any more."""
        if self.sticky == uid:
            self.sticky = ""
        item = self._by_uid.pop(uid)
        self._take(item)
        rank, ranking = item.rank, self._rankings[item.local_queue]
        self._ranking.remove(rank)
        ranking.remove(rank)
        if not len(ranking):
            del self._rankings[item.local_queue]

    def _take(self, item: Item) -> None:
        self._alone.pop(item.uid, None)
        bucket = item.bucket
        item.bucket = None
        item.token = 0
        if bucket is None:
            return
        bucket.size -= 1
        if bucket.front is item:
            self._stand(bucket, bucket.first())
        if not bucket.size:
            self._drop(bucket)

    def _drop(self, bucket: Bucket) -> None:
        buckets = self._buckets[bucket.shape]
        del buckets[bucket.likeness]
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
            if item.token == token and bucket is not None and bucket.front is item:
                return item
            heappop(order)
        return None

    def _least_used(self, usage: Callable[[tuple[str, str]], float]) -> Item | None:
        fronts = [bucket.front for bucket in self._all() if bucket.front is not None]

        def rank(item: Item) -> tuple[float, Rank]:
            return usage(item.local_queue), item.rank

        return min(fronts, key=rank, default=None)

    def skip(self, blocked: Callable[[Shape], bool]) -> None:
        """Set aside from the front on what is `blocked`, as if each had been tried."""
        while (item := self._first()) is not None:
            if item.progress is not None or item.fault is not None or not item.accepted or not blocked(item.shape):
                return
            self.set_aside_shape(item.shape)

    def put_aside(self, item: Item) -> None:
        """It cannot be admitted, nor can any other of its shape, until `release`."""
        self.add(item)
        self.set_aside_shape(item.shape)

    def set_aside_shape(self, shape: Shape) -> None:
        """Set aside all workloads of a shape, until `release`."""
        self._aside[shape] = None
        for bucket in self._buckets[shape].values():
            bucket.aside = True
            bucket.front = None

    def firsts(self) -> list[Item] | None:
        """The first workload of each shape, in order, set aside or not.

        None if not all would take part after `release`, or some were set aside for a reason of their own.
        """
        if any(not until_asked for _, until_asked in self._alone.values()):
            return None
        firsts = []
        for buckets in self._buckets.values():
            if not all(likeness.accepted for likeness in buckets):
                return None
            fronts = [item for bucket in buckets.values() if (item := bucket.first()) is not None]
            if fronts:
                firsts.append(min(fronts, key=_rank_of))
        return sorted(firsts, key=_rank_of)

    def put_alone(self, item: Item, *, until_asked: bool = False) -> None:
        """It is set aside for a reason of its own; `until_asked`: `release` does not bring it back."""
        self._enter(item)
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
                if bucket.likeness.accepted:
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
        items = [item for item in self._by_uid.values() if item.not_before <= now]
        for item in items:  # all of them first, so that no bucket outlives this that was set aside
            self._take(item)
        for item in items:
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
        return sorted(items, key=lambda item: (item.uid != self.sticky, *item.rank))

    def inadmissible(self) -> list[Item]:
        """Those that are set aside, in order."""
        items = [item for bucket in self._all() if bucket.aside for item in bucket.items()]
        return sorted(items + [item for item, _ in self._alone.values()], key=_rank_of)

    def ahead_of(self, item: Item, limit: int) -> list[Item]:
        """Those that take part and are tried before it, in order (without regard to usage); `limit` at most."""
        rank = item.rank
        found: list[Item] = []
        for bucket in self._all():
            if not bucket.aside and -bucket.likeness.priority <= rank[0]:
                found += bucket.before(rank, limit - len(found))
        return sorted(found, key=_rank_of)

    def position(self, item: Item) -> tuple[int, int]:
        """How many wait before it, set aside or not: of the queue, and of its LocalQueue."""
        return self._ranking.count_before(item.rank), self._rankings[item.local_queue].count_before(item.rank)

    def ranking(self, local_queue: LocalQueueKey | None = None) -> Ranking:
        """All that wait, or those of one LocalQueue, in order (without regard to usage), set aside or not."""
        return self._ranking if local_queue is None else self._rankings.get(local_queue, Ranking())


def _rank_of(item: Item) -> Rank:
    return item.rank
