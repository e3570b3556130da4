"""Metrics and readiness of the gate: durations of reviews, and the expiry of its certificate.

Imported by `serve`, which exposes them for its child process, and by `sluice webhook`; never by that child process,
which starts faster without these libraries.
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


class ServedCertificate:
    """Expiry of the certificate that the webhook serves. `now` returns Unix time (s)."""

    def __init__(self, *, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._pem = b""
        self._ends_at: float | None = None
        self._logged = False

    def update(self, pem: bytes) -> None:
        """Set the certificate that is served now; to be called periodically. Its expiry is logged once."""
        if pem != self._pem:
            self._pem, self._ends_at, self._logged = pem, expiry(pem), False
        if not self._logged and (fault := self.fault()) is not None:
            log.error("%s", fault)
            self._logged = True

    def fault(self) -> str | None:
        """Return an error message if the certificate has expired, else None."""
        if self._ends_at is None or self._now() < self._ends_at:
            return None
        end = datetime.fromtimestamp(self._ends_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return (
            f"the certificate of the webhook has expired ({end}), so the API server refuses Jobs with a queue label: "
            "renew tls.crt and tls.key (`sluice serve` or cert-manager does), or turn the gate off by `sluice gate off`"
        )

    def metrics(self) -> list[Metric]:
        """Return the expiry as a metric; empty if it is unknown."""
        if self._ends_at is None:
            return []
        text = "Expiry time of the certificate that the webhook serves, in seconds since 1970."
        return [GaugeMetricFamily("sluice_webhook_certificate_end_timestamp_seconds", text, value=self._ends_at)]


def expiry(pem: bytes) -> float | None:
    """Return the expiry (Unix time, s) of the first certificate, the server's own; None if it is unreadable."""
    try:
        return x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()
    except ValueError:
        return None  # the server that loads the certificate reports the error


def review_family(document: Mapping[str, Any]) -> Metric:
    """Return the Prometheus histogram of review durations; `document` is the result of `ReviewTimes.document`."""
    family = HistogramMetricFamily(
        "sluice_webhook_request_duration_seconds", "Duration of admission reviews in seconds.", labels=("outcome",)
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


class _FixedCollector(Collector):
    """Collector of metrics that are known already."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        return self._metrics


class Report:
    """Source of /metrics and /readyz for a gate that runs separately (`sluice webhook`)."""

    def __init__(self) -> None:
        self._certificate = ServedCertificate()

    def update_certificate(self, pem: bytes) -> None:
        """Set the certificate that is served now; to be called periodically."""
        self._certificate.update(pem)

    def fault(self) -> str | None:
        """Return why no API server can call this gate, or None if it can."""
        return self._certificate.fault()

    def metrics(self, document: Mapping[str, Any]) -> bytes:
        """Return all metrics in Prometheus' text format; `document` is the result of `ReviewTimes.document`."""
        return generate_latest(_FixedCollector([review_family(document), *self._certificate.metrics()]))
