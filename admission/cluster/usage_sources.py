"""Where the present resource use of pods is read: Prometheus, or the metrics API (metrics.k8s.io) of a cluster.

One request gives the use of a resource by all pods, so that what is asked does not grow with the number of workloads.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final, TypeAlias

import aiohttp
import orjson

from admission.cluster.errors import BadAnswer, response_error, transport_error
from admission.model.errors import ClusterError, InvalidQuantity
from admission.model.quantity import amount
from admission.serving.outgoing import client_connector, client_context

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from admission.cluster.client import Client

PodUse: TypeAlias = "dict[str, float]"
"""`namespace/name` of a pod to what it uses: milli-CPU, else base units."""

_TIMEOUT: Final = aiohttp.ClientTimeout(total=30)
_METRICS: Final = "/apis/metrics.k8s.io/v1beta1/pods"
OF_METRICS_API: Final = ("cpu", "memory")
"""The resources of which the metrics API of a cluster tells the use."""
_LARGEST: Final = 64 * 1024 * 1024
"""Bytes of an answer at most: the samples of some 600,000 pods."""
_OF_POD: Final = (("exported_namespace", "namespace"), ("exported_pod", "pod"))
"""Labels of a sample that name its pod. Prometheus adds `exported_` to those of an exporter that its own target has,
too: then the others are those of the exporter's own pod."""


class Prometheus:
    """The queries of a Prometheus server, or of what has its API. `queries`: PromQL by resource."""

    def __init__(
        self, url: str, queries: Mapping[str, str], *, token_file: Path | None = None, ca_file: Path | None = None
    ) -> None:
        self._url = f"{url.rstrip('/')}/api/v1/query"
        self._queries = queries
        self._token_file = token_file
        self._ca_file = ca_file

    async def read(self) -> dict[str, PodUse | ClusterError]:
        """Return by resource what each pod uses, or why that is not known."""
        found: dict[str, PodUse | ClusterError] = {}
        try:
            context = client_context(ca_file=self._ca_file) if self._url.startswith("https:") else None
            token = "" if self._token_file is None else self._token_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            return dict.fromkeys(self._queries, ClusterError(f"cannot ask Prometheus: {error}"))
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with aiohttp.ClientSession(
            connector=client_connector(context), headers=headers, timeout=_TIMEOUT, trust_env=True
        ) as session:
            for resource, query in self._queries.items():
                try:
                    found[resource] = await self._ask(session, query, 1000.0 if resource == "cpu" else 1.0)
                except ClusterError as error:
                    found[resource] = error
        return found

    async def _ask(self, session: aiohttp.ClientSession, query: str, unit: float) -> PodUse:
        request = f"POST {self._url}"
        try:
            async with session.post(self._url, data={"query": query}, allow_redirects=False) as response:
                body = bytearray()
                async for chunk in response.content.iter_any():
                    body += chunk
                    if len(body) > _LARGEST:
                        raise BadAnswer(f"{request}: an answer of more than {_LARGEST} bytes; let the query sum by pod")
                if response.status != 200:
                    raise response_error(request, response.status, response.headers, bytes(body))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise transport_error(request, error) from error
        try:
            return await asyncio.to_thread(_by_pod, body, unit)  # decisions do not wait for 100,000 pods
        except (LookupError, TypeError, AttributeError, ValueError) as error:  # orjson.JSONDecodeError is a ValueError
            raise BadAnswer(f"{request}: not the samples of a query, an instant vector of numbers") from error


def _by_pod(body: bytearray, unit: float) -> PodUse:
    """Return what each pod uses. `body`: the answer to a query."""
    data = orjson.loads(body)["data"]
    if data["resultType"] != "vector":
        raise ValueError(data["resultType"])
    sums: PodUse = {}
    for sample in data["result"]:
        labels = sample["metric"]
        namespace, pod = (next((labels[each] for each in names if labels.get(each)), "") for names in _OF_POD)
        value = float(sample["value"][1])
        if namespace and pod and math.isfinite(value):
            key = f"{namespace}/{pod}"
            sums[key] = sums.get(key, 0.0) + max(value, 0.0) * unit
    return sums


class MetricsApi:
    """The metrics API of a cluster, which has the CPU and memory that pods use."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def read(self) -> dict[str, PodUse | ClusterError]:
        """Return by resource what each pod uses, or why that is not known."""
        found: dict[str, PodUse] = {name: {} for name in OF_METRICS_API}
        try:
            async for page in self._client.list_pages(_METRICS, limit=0):
                for pod in page["items"]:
                    key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
                    for resource, pods in found.items():
                        used = [each.get("usage") or {} for each in pod.get("containers") or ()]
                        if any(resource in each for each in used):
                            pods[key] = max(float(sum(amount(resource, each.get(resource, "0")) for each in used)), 0.0)
        except ClusterError as error:
            return dict.fromkeys(found, error)
        except (KeyError, TypeError, AttributeError, InvalidQuantity) as error:
            return dict.fromkeys(found, BadAnswer(f"GET {_METRICS}: not metrics of pods: {error!r}"))
        return {**found}
