"""What the gate tells of itself: its numbers as metrics, and when its certificate ends.

Not imported by the process that answers for `serve`, which tells it for that process.
"""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from math import inf
from typing import TYPE_CHECKING, Any

from cryptography import x509
from prometheus_client import generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from webhooks.times import BOUNDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from prometheus_client import Metric

log = logging.getLogger(__name__)


class ShownCertificate:
    """Whether the certificate that the webhook shows is over. `now` gives seconds since 1970."""

    def __init__(self, *, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._pem = b""
        self._ends_at: float | None = None
        self._told = False

    def shows(self, pem: bytes) -> None:
        """To be told now and then what is shown; one that is over is logged, once."""
        if pem != self._pem:
            self._pem, self._ends_at, self._told = pem, _end_of(pem), False
        if not self._told and (fault := self.fault()) is not None:
            log.error("%s", fault)
            self._told = True

    def fault(self) -> str | None:
        """The sentence that says that it is over; None while it is not."""
        if self._ends_at is None or self._now() < self._ends_at:
            return None
        end = datetime.fromtimestamp(self._ends_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return (
            f"the certificate of the webhook has expired ({end}), so the API server refuses Jobs with a queue label: "
            "renew tls.crt and tls.key (by `sluice serve`, or cert-manager), or let Jobs pass by `sluice gate off`"
        )

    def metrics(self) -> list[Metric]:
        """When it ends, where that is known."""
        if self._ends_at is None:
            return []
        text = "When the certificate that the webhook shows ends, in seconds since 1970."
        return [GaugeMetricFamily("sluice_webhook_certificate_end_timestamp_seconds", text, value=self._ends_at)]


def _end_of(pem: bytes) -> float | None:
    """Of the first certificate, which is the server's own."""
    try:
        return x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()
    except ValueError:
        return None  # what cannot be read is told by who wanted to show it


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


class _Told(Collector):
    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        return self._metrics


class Report:
    """What a gate alone tells of itself, at /metrics and /readyz of its own address."""

    def __init__(self) -> None:
        self._certificate = ShownCertificate()

    def shows(self, pem: bytes) -> None:
        """To be told now and then which certificate is shown."""
        self._certificate.shows(pem)

    def fault(self) -> str | None:
        """Why no API server can use it; None: it can."""
        return self._certificate.fault()

    def metrics(self, document: Mapping[str, Any]) -> bytes:
        """All, in Prometheus' text format; `document` is what `ReviewTimes.document` gives."""
        return generate_latest(_Told([review_family(document), *self._certificate.metrics()]))
