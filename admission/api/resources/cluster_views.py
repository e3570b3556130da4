"""Views of the cluster for the dashboard and reports: node capacity by ResourceFlavor, and labels of namespaces."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final, Protocol

from admission.api.auth.ttl_cache import TtlCache
from admission.api.errors import ReviewUnavailable
from admission.api.http.responses import reply
from admission.api.registry import NODE_REPORT
from admission.cluster.errors import Forbidden as ClusterForbidden
from admission.engine.matching import elsewhere
from admission.model.errors import ClusterError
from admission.model.quantity import amount, format_amount
from admission.model.queues import Cluster as JoinedCluster
from admission.model.queues import ResourceFlavor
from admission.model.workload import LOCAL

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Awaitable,
        Callable,
        Collection,
        Iterable,
        Mapping,
        Sequence,
    )
    from contextlib import AbstractAsyncContextManager

    from aiohttp import web

    from admission.api.http.responses import Document
    from admission.cluster.client import Object
    from admission.model.queues import QueueObject
    from admission.store.store import Store

log = logging.getLogger(__name__)

_LISTED_SECONDS: Final = 30.0
"""Time for which the lists of nodes and namespaces are cached for all users."""


class ReadableCluster(Protocol):
    """Requests to the cluster's API server."""

    async def get(self, path: str, *, params: Mapping[str, str] | None = None) -> Object:
        """Return an object or a list. Raises ClusterError."""

    def stream(
        self, path: str, *, params: Mapping[str, str], idle_timeout: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a response that is read piece by piece. Raises ClusterError."""

    def list_pages(
        self, path: str, *, params: Mapping[str, str] | None = None, limit: int = 500
    ) -> AsyncGenerator[Object]:
        """Yield the pages of a list. Raises ClusterError."""


class ClusterViews:
    """Handlers of the views; `cluster` is None for an API without a cluster."""

    def __init__(self, store: Store, cluster: ReadableCluster | None) -> None:
        self._store = store
        self._cluster = cluster
        self._listed: TtlCache[tuple[Object, ...]] = TtlCache(size=2, clock=time.monotonic)
        """Nodes and namespaces, by their plural."""

    async def nodes(self, request: web.Request) -> web.Response:
        """Return, for each ResourceFlavor, the number of nodes with its labels, and their total allocatable resources.

        Flavors that are not in `local` are left out: nodes of other clusters are not read. The list is empty without a
        cluster. Raises ReviewUnavailable.
        """
        del request
        if self._cluster is None:
            return reply(NODE_REPORT.document(items=[]))
        try:
            nodes = await self._listed.get("nodes", self._list("nodes"))
        except ClusterError as error:
            raise _unreadable(error, "nodes") from error
        flavors = await self._store.queues.list(ResourceFlavor.kind)
        labels = {each.name: each.metadata.labels for each in await self._store.queues.list(JoinedCluster.kind)}
        items = [
            _capacity(flavor.name, _nodes_of([flavor], nodes))
            for flavor in flavors
            if isinstance(flavor, ResourceFlavor) and not elsewhere(flavor, LOCAL, labels)
        ]
        return reply(NODE_REPORT.document(items=items))

    async def allocatable(self, flavors: Collection[str] | None) -> dict[str, int]:
        """Return what the nodes of these flavors (None: of any) can allocate now, by resource (milli-CPU, base units).

        Empty if the nodes cannot be read.
        """
        if self._cluster is None:
            return {}
        try:
            nodes = await self._listed.get("nodes", self._list("nodes"))
        except ClusterError as error:
            log.info("nodes were not read for a report: %s", error)
            return {}
        found = await self._store.queues.list(ResourceFlavor.kind)
        return _sums(_nodes_of([one for one in found if flavors is None or one.name in flavors], nodes))

    async def namespace_labels(self) -> dict[str, dict[str, str]]:
        """Return the labels of all namespaces; none without a cluster. Raises ReviewUnavailable."""
        if self._cluster is None:
            return {}
        try:
            found = await self._listed.get("namespaces", self._list("namespaces"))
        except ClusterError as error:
            raise _unreadable(error, "namespaces") from error
        return {one["metadata"]["name"]: one["metadata"].get("labels") or {} for one in found}

    def _list(self, plural: str) -> Callable[[], Awaitable[tuple[tuple[Object, ...], float]]]:
        async def listed() -> tuple[tuple[Object, ...], float]:
            assert self._cluster is not None
            pages = self._cluster.list_pages(f"/api/v1/{plural}")
            return tuple([one async for page in pages for one in page.get("items", ())]), _LISTED_SECONDS

        return listed


def _unreadable(error: ClusterError, resource: str) -> ReviewUnavailable:
    if isinstance(error, ClusterForbidden):
        return ReviewUnavailable(
            f"Sluice itself lacks the right to read {resource}; deploy/rbac/dashboard.yaml is a role that grants it"
        )
    log.info("the cluster was not read for the dashboard: %s", error)
    return ReviewUnavailable(f"the cluster did not answer the request for {resource}; try again later")


def _nodes_of(flavors: Iterable[QueueObject], nodes: Iterable[Object]) -> list[Object]:
    """Return the nodes with the labels of one of the flavors that are not cordoned."""
    selectors = [flavor.spec.node_labels.items() for flavor in flavors if isinstance(flavor, ResourceFlavor)]
    return [
        node
        for node in nodes
        if not (node.get("spec") or {}).get("unschedulable")
        and any(selector <= ((node.get("metadata") or {}).get("labels") or {}).items() for selector in selectors)
    ]


def _sums(nodes: Iterable[Object]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for node in nodes:
        for resource, quantity in ((node.get("status") or {}).get("allocatable") or {}).items():
            sums[resource] = sums.get(resource, 0) + amount(resource, quantity)
    return sums


def _capacity(flavor: str, nodes: Sequence[Object]) -> Document:
    return {
        "flavor": flavor,
        "nodes": len(nodes),
        "allocatable": {resource: format_amount(resource, total) for resource, total in sorted(_sums(nodes).items())},
    }
