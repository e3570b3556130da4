"""The endpoint `/metrics`, in Prometheus' text format or, by content negotiation, in OpenMetrics."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from aiohttp import web
from prometheus_client import disable_created_metrics
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from prometheus_client import Metric

disable_created_metrics()  # type: ignore[no-untyped-call]  # `_created` series are not used here, and would be half as many series again

PATH: Final = "/metrics"


class _Gathered(Collector):
    """Several collectors as one, the form that the encoders accept."""

    def __init__(self, collectors: Sequence[Collector]) -> None:
        self._collectors = collectors

    def collect(self) -> Iterable[Metric]:
        for collector in self._collectors:
            yield from collector.collect()


class Fixed(Collector):
    """Collector of metrics whose values are fixed at construction."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        return self._metrics


class Metrics:
    """Handler of the endpoint. Users need the right to `get` the non-resource path `/metrics`."""

    def __init__(self, gather: Callable[[], Awaitable[Sequence[Collector]]]) -> None:
        """`gather` collects the values within the event loop; they are encoded in a thread."""
        self._gather = gather

    async def get(self, request: web.Request) -> web.Response:
        """Return the current values of all metrics."""
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        body = await asyncio.to_thread(encode, _Gathered(await self._gather()))
        return web.Response(body=body, headers={"Content-Type": content_type, "Cache-Control": "no-store"})
