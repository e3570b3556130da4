"""Queue positions: how many pending workloads of a ClusterQueue are considered before a workload.

A workload that can never be admitted as it is has no position, and is not counted before others. Exception: a
StrictFIFO queue tries it all the same, and nothing behind it as long as it is there, so that it counts.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from admission.engine.forest import NOT_FOUND
from admission.engine.verdicts import never_fits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.engine.clusterqueue import ClusterQueue
    from admission.engine.pending_item import Item, LocalQueueKey, Rank, Shape
    from admission.engine.registry import Registry


class QueuePositions:
    """The positions in one ClusterQueue at its current state."""

    def __init__(self, registry: Registry, queue: ClusterQueue, *, ignore_undeclared: bool) -> None:
        self._registry = registry
        self._queue = queue
        self._ignore_undeclared = ignore_undeclared
        self._passed_over: list[Rank] = []
        """Sorted ranks of the workloads that are not counted before others."""
        self._passed_over_of: dict[LocalQueueKey, list[Rank]] = {}
        """The same for each LocalQueue."""
        passed_over = {item.uid: item for item in self._never_considered()}
        for item in passed_over.values():
            self._passed_over.append(item.rank)
            self._passed_over_of.setdefault(item.local_queue, []).append(item.rank)
        for ranks in (self._passed_over, *self._passed_over_of.values()):
            ranks.sort()

    def _never_considered(self) -> Iterator[Item]:
        """Yield the workloads that are not counted before others; some may occur twice."""
        strict = self._queue.spec.queueing_strategy == "StrictFIFO"
        pending = self._queue.pending
        for bucket in pending.buckets():
            if not bucket.key.accepted or (not strict and self._never_fits(bucket.shape)):
                yield from bucket.items()
        for item in pending.alone():
            if not item.accepted or (not strict and self._never_fits(item.shape)):
                yield item
        if not strict:
            yield from pending.faulty()

    def _never_fits(self, shape: Shape) -> bool:
        return never_fits(self._registry, self._queue, shape, ignore_undeclared=self._ignore_undeclared)

    def of(self, item: Item) -> tuple[int, int]:
        """Return the positions in the ClusterQueue and the LocalQueue, from 1; 0 if it cannot be admitted as it is."""
        missing = self._queue.inactive == NOT_FOUND
        if missing or item.fault is not None or not item.accepted or self._never_fits(item.shape):
            return 0, 0
        pending, local_queue, rank = self._queue.pending, item.local_queue, item.rank
        ahead = pending.ranking().count_before(rank) - bisect_left(self._passed_over, rank)
        passed_over = self._passed_over_of.get(local_queue, [])
        ahead_here = pending.ranking(local_queue).count_before(rank) - bisect_left(passed_over, rank)
        return ahead + 1, ahead_here + 1

    def waiting(self, local_queue: LocalQueueKey) -> tuple[int, int]:
        """Return the number of workloads with a position in the ClusterQueue, and of those in the LocalQueue."""
        pending = self._queue.pending
        passed_over = self._passed_over_of.get(local_queue, [])
        return len(pending) - len(self._passed_over), len(pending.ranking(local_queue)) - len(passed_over)

    def ahead(self, item: Item, limit: int) -> Iterator[Item]:
        """Yield the workloads with a position before `item`, in order, looking at `limit` workloads at most."""
        passed_over = set(self._passed_over)
        first = islice(self._queue.pending.ranking().items(), limit)
        before = takewhile(lambda other: other.uid != item.uid, first)
        return (other for other in before if other.rank not in passed_over)
