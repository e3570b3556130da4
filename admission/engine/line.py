"""Places in the line of a ClusterQueue: how many of those that wait there are considered before a workload.

Who can never be admitted as it is has no place, and none behind it waits for it; but a StrictFIFO queue tries it first
all the same, and nothing behind it before it is gone.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from admission.engine.forest import NOT_FOUND
from admission.engine.verdicts import never_fits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.engine.clusterqueue import ClusterQueue
    from admission.engine.pending_item import Item, LocalQueueKey, Rank, Shape
    from admission.engine.registry import Registry


class Line:
    """The line of one ClusterQueue as it is at this moment."""

    def __init__(self, registry: Registry, queue: ClusterQueue, *, ignore_undeclared: bool) -> None:
        self._registry = registry
        self._queue = queue
        self._ignore_undeclared = ignore_undeclared
        self._passed_over: list[Rank] = []
        """The ranks of those for whom nobody waits, in order."""
        self._passed_over_of: dict[LocalQueueKey, list[Rank]] = {}
        passed_over = {item.uid: item for item in self._never_considered()}
        for item in passed_over.values():
            self._passed_over.append(item.rank)
            self._passed_over_of.setdefault(item.local_queue, []).append(item.rank)
        for ranks in (self._passed_over, *self._passed_over_of.values()):
            ranks.sort()

    def _never_considered(self) -> Iterator[Item]:
        """Some may come twice."""
        strict = self._queue.spec.queueing_strategy == "StrictFIFO"
        pending = self._queue.pending
        for bucket in pending.buckets():
            if not bucket.likeness.accepted or (not strict and self._never_fits(bucket.shape)):
                yield from bucket.items()
        for item in pending.alone():
            if not item.accepted or (not strict and self._never_fits(item.shape)):
                yield item
        if not strict:
            yield from pending.faulty()

    def _never_fits(self, shape: Shape) -> bool:
        return never_fits(self._registry, self._queue, shape, ignore_undeclared=self._ignore_undeclared)

    def places(self, item: Item) -> tuple[int, int]:
        """In the ClusterQueue and in its LocalQueue, from 1; 0 for one that can never be admitted as it is."""
        missing = self._queue.inactive == NOT_FOUND
        if missing or item.fault is not None or not item.accepted or self._never_fits(item.shape):
            return 0, 0
        pending, local_queue, rank = self._queue.pending, item.local_queue, item.rank
        ahead = pending.ranking().count_before(rank) - bisect_left(self._passed_over, rank)
        passed_over = self._passed_over_of.get(local_queue, [])
        ahead_here = pending.ranking(local_queue).count_before(rank) - bisect_left(passed_over, rank)
        return ahead + 1, ahead_here + 1
