"""Pending workloads of one ClusterQueue: active ones in the order in which they become heads, and inadmissible ones.

They are kept in buckets of equal shape (see `pending_item`), and only the fronts of buckets are ordered. So a whole
shape is made inadmissible, and active again, without visiting each of its workloads.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any

from admission.engine.pending_item import Bucket, BucketKey, sharer_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from admission.engine.pending_item import Item, LocalQueueKey, Rank, Shape
    from admission.engine.policies.contract import SharerOrder

Entry = tuple[int, float, str, "Item"]
"""A rank, followed by the workload that has it."""

_TOKENS = count(1)
"""Source of heap tokens, shared by all queues: an item that moves to another queue must not match an old entry."""


class Ranking:
    """Sorted list of entries, in chunks of at most `full`, so that an insertion or removal moves few of them."""

    __slots__ = ("_chunks", "_full", "_lasts")

    def __init__(self, full: int = 1024) -> None:
        self._full = full
        self._chunks: list[list[Entry]] = []
        self._lasts: list[Entry] = []
        """The last entry of each chunk."""

    def __len__(self) -> int:
        return sum(map(len, self._chunks))

    def add(self, entry: Entry) -> None:
        """Insert an entry."""
        chunks, lasts = self._chunks, self._lasts
        at = len(lasts) if lasts and lasts[-1] < entry else bisect_left(lasts, entry)  # most are appended
        if at < len(lasts):
            insort(chunks[at], entry)
        elif chunks:
            at -= 1
            chunks[at].append(entry)
            lasts[at] = entry
        else:
            chunks.append([entry])
            lasts.append(entry)
        chunk = chunks[at]
        if len(chunk) > self._full:
            half = self._full // 2
            chunks.insert(at + 1, chunk[half:])
            lasts.insert(at, chunk[half - 1])
            del chunk[half:]

    def remove(self, rank: Rank) -> None:
        """Remove the entry of a rank, which must exist."""
        at = bisect_left(self._lasts, rank)  # see `_find`
        chunk = self._chunks[at]
        index = bisect_left(chunk, rank)
        del chunk[index]
        if not chunk:
            del self._chunks[at], self._lasts[at]
        elif index == len(chunk):
            self._lasts[at] = chunk[-1]

    def count_before(self, rank: Rank) -> int:
        """Return the number of entries before a rank."""
        at, index = self._find(rank)
        return sum(map(len, self._chunks[:at])) + index

    def _find(self, rank: Rank | tuple[Any, ...]) -> tuple[int, int]:
        # (*rank,) < (*rank, item): a rank finds the first entry that has it.
        at = bisect_left(self._lasts, rank)
        return at, bisect_left(self._chunks[at], rank) if at < len(self._chunks) else 0

    def items(self, offset: int = 0) -> Iterator[Item]:
        """Yield the workloads in order, without the first `offset`."""
        for chunk in self._chunks:
            if offset < len(chunk):
                for entry in chunk[offset:] if offset else chunk:
                    yield entry[3]
            offset = max(0, offset - len(chunk))


class PendingQueue:
    """The pending workloads of one ClusterQueue.

    Ordered by: the sticky preemptor first; LocalQueue or user with the least usage, if a policy orders; priority,
    highest first; waiting since; uid. Each is active or inadmissible, with its shape or on its own
    (`make_one_inadmissible`).
    """

    def __init__(self) -> None:
        self.order: SharerOrder | None = None
        """A policy's order of LocalQueues or users; None: they do not affect the order."""
        self.sticky = ""
        """Uid of the sticky preemptor, which stays first until it is admitted; "" if none (BestEffortFIFO only)."""
        self.overdue: Item | None = None
        """The last head that did not fit and is not overtaken any more; None: none, or it is not pending any more."""
        self._buckets: dict[Shape, dict[BucketKey, Bucket]] = {}
        self._inadmissible_shapes: dict[Shape, None] = {}
        self._inadmissible_alone: dict[str, tuple[Item, bool]] = {}
        """Uid to a workload in no bucket, and whether only `wake` makes it active again (`until_woken`)."""
        self._order: list[tuple[int, float, str, int, Item, int]] = []
        """Heap of (rank, token of this entry, front of a bucket, its token); outdated entries are dropped lazily."""
        self._tokens = _TOKENS
        self.by_uid: dict[str, Item] = {}
        """All pending workloads, by uid."""
        self._faulty: dict[str, Item] = {}
        """Workloads with a fault, by uid."""
        self._ranking = Ranking()
        """All pending workloads, active or not."""
        self._rankings: dict[LocalQueueKey, Ranking] = {}
        """The same for each LocalQueue."""

    def order_by(self, order: SharerOrder | None) -> None:
        """Set or remove the policy's order; rebuilds the buckets if that changes them."""
        before, self.order = self.order, order
        if (before and before.by_user) is (order and order.by_user):
            return
        self.order = before
        items = [item for item in self.by_uid.values() if item.bucket is not None]
        for item in items:
            self._take(item)
        self.order = order
        for item in items:
            self.add(item)

    def __len__(self) -> int:
        return len(self.by_uid)

    def items(self) -> Iterator[Item]:
        """Return all pending workloads, in no order."""
        return iter(self.by_uid.values())

    def count_inadmissible(self) -> int:
        """Return the number of inadmissible workloads."""
        buckets = (bucket for shape in self._inadmissible_shapes for bucket in self._buckets.get(shape, {}).values())
        return len(self._inadmissible_alone) + sum(bucket.size for bucket in buckets)

    def count_active(self) -> Counter[LocalQueueKey]:
        """Return the number of active workloads by LocalQueue. Visits the active or the inadmissible ones, if fewer."""
        if 2 * self.count_inadmissible() > len(self):
            found = (item for bucket in self._all() if not bucket.inadmissible for item in bucket.items())
            return Counter(item.local_queue for item in found)
        inactive = (item for bucket in self._all() if bucket.inadmissible for item in bucket.items())
        active = Counter({key: len(ranking) for key, ranking in self._rankings.items()})
        active.subtract(item.local_queue for item in (*inactive, *self.alone()))
        return active

    def count_by_shape(self) -> Iterator[tuple[Shape, int]]:
        """Yield shapes with numbers of workloads that have them; a shape may occur more than once."""
        for shape, buckets in self._buckets.items():
            yield shape, sum(bucket.size for bucket in buckets.values())
        for item, _ in self._inadmissible_alone.values():
            yield item.shape, 1

    def add(self, item: Item) -> None:
        """Make a workload active, or inadmissible if its shape is."""
        self._enter(item)
        bucket = self._bucket(item)
        item.bucket = bucket
        item.token = next(self._tokens)
        heappush(bucket.heap, (item.rank_at, item.uid, item.token, item))
        bucket.size += 1
        front = bucket.front
        if not bucket.inadmissible and (front is None or (item.rank_at, item.uid) < (front.rank_at, front.uid)):
            self._set_front(bucket, item)

    def _enter(self, item: Item) -> None:
        """Add a workload to the indices of all pending workloads, if it is not there."""
        uid = item.uid
        if uid in self.by_uid:
            return
        self.by_uid[uid] = item
        if item.fault is not None:
            self._faulty[uid] = item
        entry = -item.rank_priority, item.rank_at, uid, item
        self._ranking.add(entry)
        local_queue = item.local_queue
        ranking = self._rankings.get(local_queue)
        if ranking is None:
            ranking = self._rankings[local_queue] = Ranking()
        ranking.add(entry)

    def _bucket(self, item: Item) -> Bucket:
        sharer = None if self.order is None else sharer_of(item.workload, by_user=self.order.by_user)
        key = BucketKey(item.accepted, item.rank_priority, sharer)
        buckets = self._buckets.setdefault(item.shape, {})
        bucket = buckets.get(key)
        if bucket is None:
            bucket = buckets[key] = Bucket(item.shape, key)
            bucket.inadmissible = item.shape in self._inadmissible_shapes
        return bucket

    def _set_front(self, bucket: Bucket, item: Item | None) -> None:
        bucket.front = item
        if item is not None and self.order is None:
            heappush(self._order, (*item.rank, next(self._tokens), item, item.token))

    def remove(self, uid: str) -> None:
        """Remove a workload that was admitted or deleted. Raises KeyError if it is not pending."""
        if self.sticky == uid:
            self.sticky = ""
        item = self.by_uid.pop(uid)
        if self.overdue is item:
            self.overdue = None
        self._faulty.pop(uid, None)
        self._take(item)
        rank, ranking = item.rank, self._rankings[item.local_queue]
        self._ranking.remove(rank)
        ranking.remove(rank)
        if not len(ranking):
            del self._rankings[item.local_queue]

    def _take(self, item: Item) -> None:
        """Take a workload out of its bucket, or out of those that are inadmissible on their own."""
        self._inadmissible_alone.pop(item.uid, None)
        bucket = item.bucket
        item.bucket = None
        item.token = 0
        if bucket is None:
            return
        bucket.size -= 1
        if bucket.front is item:
            self._set_front(bucket, bucket.first())
        if not bucket.size:
            self._drop(bucket)

    def _drop(self, bucket: Bucket) -> None:
        buckets = self._buckets[bucket.shape]
        del buckets[bucket.key]
        if not buckets:
            del self._buckets[bucket.shape]

    def pop(self) -> Item | None:
        """Take the head out of the order and return it; None if no workload is active.

        It stays pending until `remove`; the caller requeues it by `add`, `make_inadmissible` or
        `make_one_inadmissible`.
        """
        item = self.head
        if item is not None:
            self._take(item)
        return item

    @property
    def head(self) -> Item | None:
        """The workload that the next cycle tries; None if no workload is active."""
        sticky = self.by_uid.get(self.sticky) if self.sticky else None
        if sticky is not None and sticky.bucket is not None and not sticky.bucket.inadmissible:
            return sticky
        if self.order is not None:
            return self._least_used(self.order)
        order = self._order
        while order:
            *_, item, token = order[0]
            bucket = item.bucket
            if item.token == token and bucket is not None and bucket.front is item:
                return item
            heappop(order)
        return None

    def _least_used(self, order: SharerOrder) -> Item | None:
        fronts = [bucket.front for bucket in self._all() if bucket.front is not None]

        def rank(item: Item) -> tuple[float, Rank]:
            return order.usage(sharer_of(item.workload, by_user=order.by_user)), item.rank

        return min(fronts, key=rank, default=None)

    def skip(self, blocked: Callable[[Shape], bool]) -> None:
        """Make heads inadmissible while the shape of the head is `blocked`, as successive cycles would do."""
        while (item := self.head) is not None:
            if item.progress is not None or item.fault is not None or not item.accepted or not blocked(item.shape):
                return
            self.make_shape_inadmissible(item.shape)

    def make_inadmissible(self, item: Item) -> None:
        """Make a head and all other workloads of its shape inadmissible until `requeue_inadmissible`."""
        self.add(item)
        self.make_shape_inadmissible(item.shape)

    def make_shape_inadmissible(self, shape: Shape) -> None:
        """Make all workloads of a shape inadmissible until `requeue_inadmissible`.

        Kueue's `handleInadmissibleHash`.
        """
        self._inadmissible_shapes[shape] = None
        for bucket in self._buckets[shape].values():
            bucket.inadmissible = True
            bucket.front = None

    def firsts(self) -> list[Item] | None:
        """Return the first workload of each shape, in queue order, whether active or inadmissible.

        None if workloads are inadmissible on their own, or would not become active by `requeue_inadmissible`.
        """
        if any(not until_woken for _, until_woken in self._inadmissible_alone.values()):
            return None
        firsts = []
        for buckets in self._buckets.values():
            if not all(key.accepted for key in buckets):
                return None
            fronts = [item for bucket in buckets.values() if (item := bucket.first()) is not None]
            if fronts:
                firsts.append(min(fronts, key=_rank_of))
        return sorted(firsts, key=_rank_of)

    def make_one_inadmissible(self, item: Item, *, until_woken: bool = False) -> None:
        """Make a workload inadmissible, but not its shape; `until_woken`: only `wake` makes it active again."""
        self._enter(item)
        self._inadmissible_alone[item.uid] = item, until_woken

    def set_aside_all(self, shape: Shape, which: Callable[[Item], bool], *, until_woken: bool) -> None:
        """Make the active workloads of a shape that are such inadmissible, but not their shape."""
        for bucket in list(self._buckets.get(shape, {}).values()):
            for item in [item for item in bucket.items() if which(item)]:
                self._take(item)
                self.make_one_inadmissible(item, until_woken=until_woken)

    def set_aside(self, item: Item) -> None:
        """Make an active workload inadmissible, but not its shape, until `requeue_inadmissible`."""
        self._take(item)
        self.make_one_inadmissible(item)

    @property
    def has_inadmissible(self) -> bool:
        """Whether any workload is inadmissible."""
        return bool(self._inadmissible_shapes or self._inadmissible_alone)

    def requeue_inadmissible(self, keep: Callable[[Shape], bool] | None = None) -> None:
        """Make inadmissible workloads active, except those inadmissible `until_woken`, and the shapes to `keep`."""
        kept = dict.fromkeys(shape for shape in self._inadmissible_shapes if keep is not None and keep(shape))
        for shape in self._inadmissible_shapes.keys() - kept.keys():
            for bucket in list(self._buckets.get(shape, {}).values()):
                bucket.inadmissible = False
                if bucket.key.accepted:
                    self._set_front(bucket, bucket.first())
                    continue
                for item in list(bucket.items()):
                    self._take(item)
                    self.make_one_inadmissible(item, until_woken=True)
        self._inadmissible_shapes = kept
        back = [item for item, until_woken in self._inadmissible_alone.values() if not until_woken]
        for item in back:
            del self._inadmissible_alone[item.uid]
            self.add(item)

    def reconsider(self, now: float) -> None:
        """Make all workloads active whose backoff has ended by `now`, in buckets by their current `accepted`."""
        self._inadmissible_shapes.clear()
        items = [item for item in self.by_uid.values() if item.not_before <= now]
        # All are taken out before any is added, so that no inadmissible bucket remains.
        for item in items:
            self._take(item)
        for item in items:
            self.add(item)

    def wake(self, item: Item) -> None:
        """Make a workload active that is inadmissible on its own: its backoff has ended, or a policy permits it."""
        self._take(item)
        self.add(item)

    def _all(self) -> Iterator[Bucket]:
        return (bucket for buckets in self._buckets.values() for bucket in buckets.values())

    def buckets(self) -> list[Bucket]:
        """Return all buckets, including inadmissible ones."""
        return list(self._all())

    def active(self) -> list[Item]:
        """Return the active workloads in queue order, without regard to the usage by which they are ordered."""
        items = [item for bucket in self._all() if not bucket.inadmissible for item in bucket.items()]
        return sorted(items, key=lambda item: (item.uid != self.sticky, *item.rank))

    def inadmissible(self) -> list[Item]:
        """Return the inadmissible workloads, in queue order."""
        items = [item for bucket in self._all() if bucket.inadmissible for item in bucket.items()]
        return sorted(items + [item for item, _ in self._inadmissible_alone.values()], key=_rank_of)

    def ahead_of(self, item: Item, limit: int) -> list[Item]:
        """Return up to `limit` active workloads before it in queue order, without regard to usage of LocalQueues."""
        rank = item.rank
        found: list[Item] = []
        for bucket in self._all():
            if not bucket.inadmissible and -bucket.key.priority <= rank[0]:
                found += bucket.before(rank, limit - len(found))
        return sorted(found, key=_rank_of)

    def alone(self) -> Iterator[Item]:
        """Return the workloads that are inadmissible on their own, and so in no bucket."""
        return (item for item, _ in self._inadmissible_alone.values())

    def faulty(self) -> Iterator[Item]:
        """Return the workloads with a fault."""
        return iter(self._faulty.values())

    def ranking(self, local_queue: LocalQueueKey | None = None) -> Ranking:
        """Return all workloads, or those of one LocalQueue, in queue order without regard to usage, active or not."""
        return self._ranking if local_queue is None else self._rankings.get(local_queue, Ranking())


def _rank_of(item: Item) -> Rank:
    return item.rank
