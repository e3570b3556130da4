"""Partial admission: the search for the largest pod counts with which a workload fits (Kueue's KEP 420)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from admission.model.workload import PodSet

T = TypeVar("T")


def largest_that_fits(pod_sets: Sequence[PodSet], attempt: Callable[[Sequence[int]], T | None]) -> T | None:
    """Return the result of `attempt` for the largest pod counts for which it is not None; None if there are none.

    All counts decrease together, each in proportion to its distance from `min_count`. The search is binary, as in
    Kueue's `PodSetReducer`.
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
