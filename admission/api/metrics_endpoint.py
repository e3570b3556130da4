"""`/metrics` in the text format of Prometheus, or in that of OpenMetrics for those who ask for it."""

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

disable_created_metrics()  # type: ignore[no-untyped-call]  # when a series began is of no use to us, and would be half as many series again

PATH: Final = "/metrics"


class _Gathered(Collector):
    """What was gathered, as an encoder reads it."""

    def __init__(self, collectors: Sequence[Collector]) -> None:
        self._collectors = collectors

    def collect(self) -> Iterable[Metric]:
        for collector in self._collectors:
            yield from collector.collect()


class Fixed(Collector):
    """Metrics with the values that they had when they were made."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """The metrics."""
        return self._metrics


class Metrics:
    """The endpoint; like every other but those of the probes it is for users who may `get` its path."""

    def __init__(self, gather: Callable[[], Awaitable[Sequence[Collector]]]) -> None:
        """`gather` reads what has to be read in the event loop; writing it out is done in a thread."""
        self._gather = gather

    async def get(self, request: web.Request) -> web.Response:
        """All numbers as they are now."""
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        body = await asyncio.to_thread(encode, _Gathered(await self._gather()))
        return web.Response(body=body, headers={"Content-Type": content_type, "Cache-Control": "no-store"})
