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
from admission.kinds.placement import node_state
from admission.model.errors import ClusterError
from admission.model.quantity import add, format_amount
from admission.model.queues import Cluster as JoinedCluster
from admission.model.queues import ResourceFlavor
from admission.model.workload import LOCAL

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Collection,
        Iterable,
        Mapping,
        Sequence,
    )
    from contextlib import AbstractAsyncContextManager

    from aiohttp import web

    from admission.api.http.responses import Document
    from admission.cluster.client import Object
    from admission.engine.topology.nodes import NodeState
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
        self._nodes: TtlCache[tuple[NodeState, ...]] = TtlCache(size=1, clock=time.monotonic)
        self._namespaces: TtlCache[dict[str, dict[str, str]]] = TtlCache(size=1, clock=time.monotonic)
        """Labels by name."""

    async def nodes(self, request: web.Request) -> web.Response:
        """Return, for each ResourceFlavor, the number of nodes with its labels, and their total allocatable resources.

        Flavors that are not in `local` are left out: nodes of other clusters are not read. The list is empty without a
        cluster. Raises ReviewUnavailable.
        """
        del request
        if self._cluster is None:
            return reply(NODE_REPORT.document(items=[]))
        try:
            nodes = await self._nodes.get("", self._list_nodes)
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
            nodes = await self._nodes.get("", self._list_nodes)
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
            return await self._namespaces.get("", self._list_namespaces)
        except ClusterError as error:
            raise _unreadable(error, "namespaces") from error

    async def _list_nodes(self) -> tuple[tuple[NodeState, ...], float]:
        return tuple([node_state(one) async for one in self._list("nodes")]), _LISTED_SECONDS

    async def _list_namespaces(self) -> tuple[dict[str, dict[str, str]], float]:
        found = self._list("namespaces")
        return {one["metadata"]["name"]: one["metadata"].get("labels") or {} async for one in found}, _LISTED_SECONDS

    async def _list(self, plural: str) -> AsyncIterator[Object]:
        assert self._cluster is not None
        async for page in self._cluster.list_pages(f"/api/v1/{plural}"):
            for one in page.get("items", ()):
                yield one


def _unreadable(error: ClusterError, resource: str) -> ReviewUnavailable:
    if isinstance(error, ClusterForbidden):
        return ReviewUnavailable(
            f"Sluice itself lacks the right to read {resource}; deploy/rbac/dashboard.yaml is a role that grants it"
        )
    log.info("the cluster was not read for the dashboard: %s", error)
    return ReviewUnavailable(f"the cluster did not answer the request for {resource}; try again later")


def _nodes_of(flavors: Iterable[QueueObject], nodes: Iterable[NodeState]) -> list[NodeState]:
    """Return the nodes with the labels of one of the flavors that are not cordoned."""
    selectors = [flavor.spec.node_labels.items() for flavor in flavors if isinstance(flavor, ResourceFlavor)]
    return [
        node
        for node in nodes
        if not node.unschedulable and any(selector <= node.labels.items() for selector in selectors)
    ]


def _sums(nodes: Iterable[NodeState]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for node in nodes:
        add(sums, node.allocatable)
    return sums


def _capacity(flavor: str, nodes: Sequence[NodeState]) -> Document:
    return {
        "flavor": flavor,
        "nodes": len(nodes),
        "allocatable": {resource: format_amount(resource, total) for resource, total in sorted(_sums(nodes).items())},
    }
