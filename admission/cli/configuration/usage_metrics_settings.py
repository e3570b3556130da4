"""The setting `usageMetrics`: from where it is read what pods use, and when a workload counts as idle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, model_validator

from admission.cli.configuration.notification_settings import http_url
from admission.cli.configuration.policy_settings import Duration
from admission.cluster.usage_sources import OF_METRICS_API
from admission.controller.state.policy import UsageRules
from admission.model.base import FieldFaultsError, Model

_QUERIES: Final = {
    "cpu": 'sum by (namespace, pod) (rate(container_cpu_usage_seconds_total{container!=""}[5m]))',
    "memory": 'sum by (namespace, pod) (container_memory_working_set_bytes{container!=""})',
    "nvidia.com/gpu": "sum by (namespace, pod, exported_namespace, exported_pod) (DCGM_FI_DEV_GPU_UTIL) / 100",
}


class PrometheusSettings(Model):
    """The Prometheus that has metrics of the pods."""

    url: Annotated[str, AfterValidator(http_url)]
    """URL of Prometheus, or of what has its API."""
    token_file: Path | None = None
    """File that contains only the bearer token to send. Default: none."""
    ca_file: Path | None = None
    """PEM file with the CA of its certificate. Default: those of the system."""
    queries: Mapping[str, str] = {}
    """PromQL by resource, in place of those for cpu, memory and nvidia.com/gpu: what each pod uses, in cores, bytes or
    units, with the labels `namespace` and `pod`. Empty: the resource is not measured."""


class UsageMetricsSettings(Model):
    """Measurement of what workloads use of what they hold. Enabled if the object is present."""

    prometheus: PrometheusSettings | None = None
    """Read CPU, memory and GPUs from Prometheus."""
    metrics_api: bool = False
    """Read CPU and memory from the metrics API of the cluster (metrics.k8s.io), instead. Default: false."""
    interval: Annotated[Duration, Field(ge=1, le=3600)] = UsageRules().interval
    """Time between two readings; each stands for the time since the one before. Default: 1m."""
    idle_after: Annotated[Duration, Field(gt=0)] | None = None
    """Time without use after which a workload's history says that it is idle, as do notifications. Default: never."""
    idle_below_percent: Annotated[float, Field(gt=0, le=100)] = 100 * UsageRules().idle_below
    """Percentage of what it holds below which it does not use it. Default: 5."""
    idle_resources: tuple[str, ...] = UsageRules().idle_resources
    """Resources of which idleness is told. Default: nvidia.com/gpu."""

    @model_validator(mode="after")
    def _measures_what_it_tells(self) -> Self:
        if (self.prometheus is None) is not self.metrics_api:
            raise FieldFaultsError([("prometheus", "give either this, or metricsApi: true")])
        read = OF_METRICS_API if self.metrics_api else self.rules().queries
        for position, name in enumerate(self.idle_resources if self.idle_after is not None else ()):
            if name not in read:
                message = f"{name} is not measured; name one of {', '.join(read)}, or measure it by prometheus.queries"
                raise FieldFaultsError([(f"idleResources[{position}]", message)])
        return self

    def rules(self) -> UsageRules:
        """Return the controller's rules."""
        source = self.prometheus
        queries = {} if source is None else {**_QUERIES, **source.queries}
        return UsageRules(
            url=None if source is None else source.url,
            queries={name: query for name, query in queries.items() if query},
            token_file=None if source is None else source.token_file,
            ca_file=None if source is None else source.ca_file,
            interval=self.interval,
            idle_after=self.idle_after,
            idle_below=self.idle_below_percent / 100,
            idle_resources=self.idle_resources,
        )
