"""Keeps the reasons of waiting workloads true: finds those whose reason has changed since it was last reported.

Quota that is taken or freed may change the reason of every workload of its tree. To look at each of 100,000 for every
decision would cost more than the decisions, so it is looked at one workload of each shape in each queue, and at the
others of its bucket only if the answer has changed. What is new or has changed by itself is looked at first.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from admission.engine.events import Park
from admission.engine.verdicts import verdict_of
from admission.engine.vocabulary import WAITING_FOR_PREEMPTED

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from admission.engine.clusterqueue import ClusterQueue
    from admission.engine.pending_item import Bucket, Item
    from admission.engine.registry import Registry


def unguarded(uid: str) -> AbstractContextManager[None]:
    """Lets exceptions through."""
    del uid
    return nullcontext()


class Review:
    """For the workloads of one registry."""

    def __init__(self, registry: Registry, *, ignore_undeclared: bool) -> None:
        self._registry = registry
        self._ignore_undeclared = ignore_undeclared
        self._queues: dict[ClusterQueue, None] = {}
        """Of the trees in which something has changed, those that are still to be looked at."""
        self._buckets: list[Bucket] = []
        """Of the queue that is looked at now, those that are left."""
        self._preempting: dict[str, None] = {}
        """Uids of those that were told that they wait for preempted workloads to stop."""

    @property
    def is_due(self) -> bool:
        """Whether any reason may not be true any more."""
        if self._registry.unreviewed or self._buckets or self._queues:
            return True
        return any(bool(queue.pending.by_uid) for queues in self._registry.changed_trees.values() for queue in queues)

    def take(self, limit: int, isolated: Callable[[str], AbstractContextManager[None]] = unguarded) -> list[Park]:
        """Those with another reason or sentence than last time; it looks at `limit` workloads, at most.

        `isolated` catches what is raised for the workload with the uid that it is given.
        """
        found: list[Park] = []
        for _ in range(limit):
            while not self._registry.unreviewed and self._look_at_next_bucket(isolated):
                pass
            if not self._registry.unreviewed:
                break
            uid = next(iter(self._registry.unreviewed))
            del self._registry.unreviewed[uid]
            with isolated(uid):
                self._look_at(self._registry.items[uid], found)
        return found

    def _look_at(self, item: Item, found: list[Park]) -> None:
        verdict = self._verdict(item)
        if verdict[0] == WAITING_FOR_PREEMPTED:
            self._preempting[item.uid] = None
        elif item.bucket is not None and item.bucket.last_reason != verdict:
            item.bucket.last_reason = None
        if item.last_reason != verdict:
            item.last_reason = verdict
            found.append(Park(item.workload, *verdict))

    def _look_at_next_bucket(self, isolated: Callable[[str], AbstractContextManager[None]]) -> bool:
        """Compare a bucket's first workload with what its workloads were told; False: no bucket is left."""
        if not self._buckets:
            for queues in self._registry.changed_trees.values():
                self._queues.update(dict.fromkeys(queue for queue in queues if queue.pending.by_uid))
            self._registry.changed_trees.clear()
            if not self._queues:
                return False
            queue = next(iter(self._queues))
            del self._queues[queue]
            if self._registry.policies.filtering:
                # What a policy says goes by the workload, and not by its shape.
                self._registry.unreviewed.update((item.uid, None) for item in queue.pending.items())
            else:
                self._buckets = queue.pending.buckets()
            self._review_preempting()
            return True
        bucket = self._buckets.pop()
        item = next((item for item in bucket.items() if not item.victims), None)
        if item is None:
            return True
        with isolated(item.uid):
            verdict = self._verdict(item)
            if bucket.last_reason != verdict:
                bucket.last_reason = verdict
                others = (each.uid for each in bucket.items() if each.last_reason != verdict)
                self._registry.unreviewed.update(dict.fromkeys(others))
        return True

    def _review_preempting(self) -> None:
        """Those whose victims may be gone: their reason is their own."""
        items = self._registry.items
        self._registry.unreviewed.update((uid, None) for uid in self._preempting if uid in items)
        self._preempting.clear()

    def _verdict(self, item: Item) -> tuple[str, str]:
        return verdict_of(self._registry, item, ignore_undeclared=self._ignore_undeclared)
