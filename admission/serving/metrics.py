"""Shared parts of Prometheus metrics: histogram buckets, and children by label values with limited cardinality."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

from prometheus_client import Counter, Gauge, Histogram

if TYPE_CHECKING:
    from collections.abc import Callable

M = TypeVar("M", Counter, Gauge, Histogram)

WAIT_BUCKETS: Final = (1.0, *(2.5 * 2**n for n in range(13)))
"""Bucket bounds in seconds for durations of workloads, up to 10,240 s: those of Kueue's metrics."""

LATENCY_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bucket bounds in seconds for latencies of the process itself."""

MAX_CHILDREN: Final = 2000
"""Series of one metric; further combinations of label values are counted under OTHER, to limit the cardinality."""

OTHER: Final = "other"
"""Value of all labels of the series for combinations beyond MAX_CHILDREN."""


class MetricChildren(dict[tuple[str, ...], M], Generic[M]):
    """Children of a metric by their label values, in the order of the label names; created on first use.

    A lookup takes a quarter of the time of prometheus_client's `labels()`, which checks the names and takes a lock.
    """

    def __init__(self, metric: M, labels: tuple[str, ...], *, limit: int = MAX_CHILDREN) -> None:
        """`labels`: names of the metric's labels. `limit`: number of children besides that for OTHER."""
        super().__init__()
        self.metric: M = metric
        self.labels = labels
        self._limit = limit

    def __missing__(self, values: tuple[str, ...]) -> M:
        other = (OTHER,) * len(values)
        if len(self) - (other in self) < self._limit:
            return self._add(values)
        return self[other] if other in self else self._add(other)

    def _add(self, values: tuple[str, ...]) -> M:
        child: M = self.metric.labels(*values)
        self[values] = child
        return child

    def keep(self, predicate: Callable[[tuple[str, ...]], bool]) -> None:
        """Remove the series of label values for which `predicate` is false, except that of OTHER."""
        for values in [values for values in self if not predicate(values) and set(values) != {OTHER}]:
            del self[values]
            self.metric.remove(*values)
