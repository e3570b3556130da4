"""The report `reports/clusters`: the state of each cluster, what it runs, and what it holds of which flavors."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, TypeVar

from admission.api.http.response_cache import ResponseCache
from admission.api.http.responses import encode, reply_encoded
from admission.api.kinds.clusters import cluster_status, known_clusters
from admission.api.registry import CLUSTER_REPORT
from admission.engine.matching import elsewhere
from admission.model.base import ObjectMeta
from admission.model.quantity import format_amount
from admission.model.queues import Cluster, ResourceFlavor
from admission.model.workload import LOCAL
from admission.store.records import ClusterNumbers

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from aiohttp import web

    from admission.api.http.responses import Document
    from admission.model.queues import QueueObject
    from admission.store.store import Store

Q = TypeVar("Q", bound="QueueObject")

_SECONDS: Final = 1.0
"""Shortest time for which the report is cached: open pages request it periodically."""


class ClusterReports:
    """Handler of the report."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._body: ResponseCache[bytes] = ResponseCache(_SECONDS)

    async def get(self, request: web.Request) -> web.Response:
        """Return one item for each cluster, `local` first. Raises StoreError."""
        del request
        return reply_encoded(await self._body.get("", self._make))

    async def _make(self) -> bytes:
        objects = {each.name: each for each in await self._listed(Cluster)}
        numbers = await self._store.workloads.by_cluster()
        known = await known_clusters(self._store, numbers)
        flavors = await self._listed(ResourceFlavor)
        labels = {name: each.metadata.labels for name, each in objects.items()}
        here = objects.pop(LOCAL, Cluster(metadata=ObjectMeta(name=LOCAL)))
        items = [
            {"name": each.name, "labels": dict(each.metadata.labels), **cluster_status(each, known(each.name))}
            | _numbers(numbers.get(each.name, ClusterNumbers()))
            | {"flavors": _flavors(flavors, each.name, labels)}
            for each in (here, *(objects[name] for name in sorted(objects)))
        ]
        return encode(CLUSTER_REPORT.document(items=items))

    async def _listed(self, model: type[Q]) -> list[Q]:
        return [each for each in await self._store.queues.list(model.kind) if isinstance(each, model)]


def _numbers(numbers: ClusterNumbers) -> Document:
    by_queue: defaultdict[str, dict[tuple[str, str], int]] = defaultdict(dict)
    for (queue, flavor, resource), amount in numbers.usage.items():
        by_queue[queue][flavor, resource] = amount
    queues = [
        {"name": name, "pendingWorkloads": numbers.waiting.get(name, 0), "usage": _usage(by_queue.get(name, {}))}
        for name in sorted({*by_queue, *numbers.waiting})
    ]
    totals = {"pendingWorkloads": numbers.pending, "reservingWorkloads": numbers.reserving}
    return {**totals, "usage": _usage(numbers.used()), "clusterQueues": queues}


def _usage(amounts: Mapping[tuple[str, str], int]) -> list[Document]:
    return [
        {"flavor": flavor, "resource": resource, "used": format_amount(resource, amount)}
        for (flavor, resource), amount in sorted(amounts.items())
    ]


def _flavors(flavors: Collection[ResourceFlavor], name: str, labels: Mapping[str, Mapping[str, str]]) -> list[str]:
    return sorted(flavor.name for flavor in flavors if not elsewhere(flavor, name, labels))
