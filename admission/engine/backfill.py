"""Backfill of StrictFIFO ClusterQueues: later workloads start if the first one's estimated start does not move.

An extension, off unless a ClusterQueue has `backfill`: in Kueue nothing passes the first workload of a StrictFIFO
queue. The start of the first one is estimated by the time limits of the workloads that hold quota of its tree: when
enough of them have ended. A later one may start if its own time limit ends before, or if it fits beside the first one
then (EASY backfill, Lifka 1995). Without time limits the first one has no estimate, and nothing passes it.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from admission.engine.assignment import Mode, Possibility
from admission.engine.flavors import Assigner
from admission.engine.tree import available

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.engine.clusterqueue import ClusterQueue, Held
    from admission.engine.forest import Domain
    from admission.engine.pending_item import Item
    from admission.model.workload import Workload

WOULD_DELAY: Final = "Workload fits, but could delay the first one of its StrictFIFO ClusterQueue"


class Head:
    """The first workload of a ClusterQueue, which does not fit now, and what may start before it."""

    def __init__(self, item: Item, starts_at: float, spare: dict[int, int]) -> None:
        self.item = item
        self.starts_at = starts_at
        """When it is estimated to start (Unix time, s); infinite: that is not known."""
        self._spare = spare
        """What is free beside it then, by flavor-resource."""

    def lets_pass(self, item: Item, usage: Mapping[int, int], now: float) -> bool:
        """Whether a workload with this usage may start now."""
        if item is self.item or item.rank < self.item.rank:
            return True
        if self.starts_at == inf:
            return False
        in_time = _end(item.workload, now) <= self.starts_at
        return in_time or all(amount <= self._spare.get(fr, 0) for fr, amount in usage.items())

    def note(self, item: Item, usage: Mapping[int, int], now: float) -> None:
        """Note that a workload starts now."""
        if _end(item.workload, now) > self.starts_at:
            for fr, amount in usage.items():
                self._spare[fr] = self._spare.get(fr, 0) - amount


def head_of(domain: Domain, queue: ClusterQueue, item: Item, now: float, *, ignore_undeclared: bool) -> Head:
    """Return a workload that does not fit now as the head of its ClusterQueue."""
    node = queue.node
    assert node is not None
    held = sorted((held for each in domain.queues for held in each.held.values()), key=lambda one: _end_of(one, now))
    assigners = [
        Assigner(
            queue,
            shape,
            simulate=lambda fr, amount: (Possibility.NO_CANDIDATES, 0),
            ignore_undeclared=ignore_undeclared,
        )
        for shape in item.shape.alternatives
    ]
    counts = [pod_set.count for pod_set in item.shape.pod_sets]  # given explicitly, so that no result is cached
    gone: list[Held] = []
    try:
        for number, one in enumerate(held):
            ends = _end_of(one, now)
            if ends == inf:
                break
            one.queue.uncount(one)
            gone.append(one)
            if number + 1 < len(held) and _end_of(held[number + 1], now) == ends:
                continue  # they end together
            assignment = max((each.assign(counts) for each in assigners), key=lambda found: found.mode)
            if assignment.mode is Mode.FIT:
                usage = assignment.usage
                return Head(item, ends, {fr: max(available(node, fr), 0) - usage.get(fr, 0) for fr in node.frs})
        return Head(item, inf, {})
    finally:
        for one in gone:
            one.queue.recount(one)


def _end(workload: Workload, now: float) -> float:
    return inf if workload.max_seconds is None else now + workload.max_seconds


def _end_of(held: Held, now: float) -> float:
    """Return when a workload that holds quota ends by its time limit; one that is evicted ends now."""
    if held.evicting:
        return now
    return held.ends_by if held.ends_by > now else inf
