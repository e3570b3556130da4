"""Refresh of pending reasons: finds the pending workloads whose reason or message differs from the one last reported.

Every admission or release of quota may change the reason of each pending workload of the tree. Checking 100,000 of them
after every decision would cost more than the decisions. So one workload of each bucket is checked, and the others of
the bucket only if its reason has changed. Workloads that are new or have changed themselves are checked first.
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
    """Return a context manager that does not handle exceptions."""
    del uid
    return nullcontext()


class ReasonRefresh:
    """The refresh of the pending reasons of one registry, in portions of limited size."""

    def __init__(self, registry: Registry, *, ignore_undeclared: bool) -> None:
        self._registry = registry
        self._ignore_undeclared = ignore_undeclared
        self._queues: dict[ClusterQueue, None] = {}
        """ClusterQueues of changed trees that are still to be checked; the values mean nothing."""
        self._buckets: list[Bucket] = []
        """Buckets of the current ClusterQueue that are still to be checked."""
        self._preempting: dict[str, None] = {}
        """Uids of workloads last reported as WaitingForPreemptedWorkloads."""

    @property
    def is_due(self) -> bool:
        """Whether any reason may be outdated."""
        if self._registry.stale_reasons or self._buckets or self._queues:
            return True
        return any(bool(queue.pending.by_uid) for queues in self._registry.changed_trees.values() for queue in queues)

    def refresh(self, limit: int, isolated: Callable[[str], AbstractContextManager[None]] = unguarded) -> list[Park]:
        """Check up to `limit` workloads; return those whose reason or message has changed since it was last reported.

        `isolated` returns a context manager that handles exceptions raised for the workload with the given uid.
        """
        found: list[Park] = []
        for _ in range(limit):
            while not self._registry.stale_reasons and self._check_next_bucket(isolated):
                pass
            if not self._registry.stale_reasons:
                break
            uid = next(iter(self._registry.stale_reasons))
            del self._registry.stale_reasons[uid]
            with isolated(uid):
                self._check(self._registry.items[uid], found)
        return found

    def _check(self, item: Item, found: list[Park]) -> None:
        verdict = self._verdict(item)
        if verdict[0] == WAITING_FOR_PREEMPTED:
            self._preempting[item.uid] = None
        elif item.bucket is not None and item.bucket.last_reason != verdict:
            item.bucket.last_reason = None
        if item.last_reason != verdict:
            item.last_reason = verdict
            found.append(Park(item.workload, *verdict))

    def _check_next_bucket(self, isolated: Callable[[str], AbstractContextManager[None]]) -> bool:
        """Compare the reason of a bucket's first workload with the one last reported; False: no bucket is left.

        If they differ, the workloads of the bucket are added to `Registry.stale_reasons`.
        """
        if not self._buckets:
            for queues in self._registry.changed_trees.values():
                self._queues.update(dict.fromkeys(queue for queue in queues if queue.pending.by_uid))
            self._registry.changed_trees.clear()
            if not self._queues:
                return False
            queue = next(iter(self._queues))
            del self._queues[queue]
            if self._registry.policies.filtering:
                # Refusals by policies depend on the workload, and not on its shape alone.
                self._registry.stale_reasons.update((item.uid, None) for item in queue.pending.items())
            else:
                self._buckets = queue.pending.buckets()
            self._recheck_preempting()
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
                self._registry.stale_reasons.update(dict.fromkeys(others))
        return True

    def _recheck_preempting(self) -> None:
        """Check workloads that wait for preempted ones again: their reason is their own, not that of their bucket."""
        items = self._registry.items
        self._registry.stale_reasons.update((uid, None) for uid in self._preempting if uid in items)
        self._preempting.clear()

    def _verdict(self, item: Item) -> tuple[str, str]:
        verdict = verdict_of(self._registry, item, ignore_undeclared=self._ignore_undeclared)
        return verdict.reason, verdict.message
