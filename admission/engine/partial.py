"""Partial admission: how many pods of a workload are admitted when not all of them can be."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from admission.model.workload import PodSet

T = TypeVar("T")


def largest_that_fits(pod_sets: Sequence[PodSet], attempt: Callable[[Sequence[int]], T | None]) -> T | None:
    """What `attempt` finds for the largest counts with which it finds anything.

    All counts go down together, in proportion to how far each may; the search is binary, as Kueue's is.
    """
    counts = [pod_set.count for pod_set in pod_sets]
    deltas = [
        pod_set.count - (pod_set.count if pod_set.min_count is None else pod_set.min_count) for pod_set in pod_sets
    ]
    total = sum(deltas)
    if total == 0:
        return None
    best: T | None = None
    low, high = 0, total + 1
    while low < high:
        middle = (low + high) // 2
        found = attempt([count - delta * middle // total for count, delta in zip(counts, deltas, strict=True)])
        if found is None:
            low = middle + 1
        else:
            best, high = found, middle
    return best
