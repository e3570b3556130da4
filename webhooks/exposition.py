"""The gate's numbers as metrics; not imported by the process that answers for `serve`."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from prometheus_client import generate_latest
from prometheus_client.metrics_core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from webhooks.times import BOUNDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prometheus_client import Metric


def review_family(document: Mapping[str, Any]) -> Metric:
    """The metric of what `ReviewTimes.document` has told."""
    family = HistogramMetricFamily(
        "sluice_webhook_request_duration_seconds", "Time that an admission review took.", labels=("outcome",)
    )
    for outcome, times in document.items():
        total = 0
        buckets: list[tuple[str, float] | tuple[str, float, Exemplar]] = []
        for number, (bound, count) in enumerate(zip((*BOUNDS, inf), times["counts"], strict=True)):
            total += count
            last = times["exemplars"].get(str(number))
            bucket = str(bound) if bound < inf else "+Inf", float(total)
            exemplar = () if last is None else (Exemplar(last["labels"], last["value"], last["at"]),)
            buckets.append((*bucket, *exemplar))
        family.add_metric((outcome,), buckets, times["sum"])
    return family


class _Reviews(Collector):
    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def collect(self) -> list[Metric]:
        return [review_family(self._document)]


def exposition(document: Mapping[str, Any]) -> bytes:
    """The metric in Prometheus' text format."""
    return generate_latest(_Reviews(document))
