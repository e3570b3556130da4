"""What metrics of the whole process share: buckets, and children by label values with a limit to their number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

from prometheus_client import Counter, Gauge, Histogram

if TYPE_CHECKING:
    from collections.abc import Callable

M = TypeVar("M", Counter, Gauge, Histogram)

WAIT_BUCKETS: Final = (1.0, *(2.5 * 2**n for n in range(13)))
"""Upper bounds (s) of times of workloads, up to 10,240 s: those of Kueue."""

LATENCY_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds (s) of times of the process's own work."""

MOST_CHILDREN: Final = 2000
"""Combinations of label values of one metric; what comes beyond is counted under OTHER, so that series stay bounded."""

OTHER: Final = "other"
"""The value of all labels of what is counted beyond MOST_CHILDREN."""


class Children(dict[tuple[str, ...], M], Generic[M]):
    """The children of a metric by the values of its labels, in their order.

    A lookup here takes a quarter of the time of `labels()`, which checks the names and takes a lock.
    """

    def __init__(self, metric: M, labels: tuple[str, ...], *, most: int = MOST_CHILDREN) -> None:
        """`labels` are the names of the metric's labels."""
        super().__init__()
        self.metric: M = metric
        self.labels = labels
        self._most = most

    def __missing__(self, values: tuple[str, ...]) -> M:
        other = (OTHER,) * len(values)
        if len(self) - (other in self) < self._most:
            return self._add(values)
        return self[other] if other in self else self._add(other)

    def _add(self, values: tuple[str, ...]) -> M:
        child: M = self.metric.labels(*values)
        self[values] = child
        return child

    def keep(self, wanted: Callable[[tuple[str, ...]], bool]) -> None:
        """Drop the series of all label values that are not `wanted`, but for those of OTHER."""
        for values in [values for values in self if not wanted(values) and set(values) != {OTHER}]:
            del self[values]
            self.metric.remove(*values)
