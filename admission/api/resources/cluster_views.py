"""Views of the cluster for the dashboard: pods and logs of a workload, and node capacity by ResourceFlavor.

Sluice reads the cluster with its own rights, after a SubjectAccessReview has confirmed that the user has it, too.
"""

from __future__ import annotations

import logging
import re
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from admission.api.auth.authorization import AUTHORIZATION
from admission.api.auth.delegation import Attributes
from admission.api.auth.ttl_cache import TtlCache
from admission.api.errors import BadRequest, Forbidden, ReviewUnavailable, UnknownObject
from admission.api.http.responses import reply
from admission.api.registry import API_VERSION, NODE_REPORT, WORKLOADS
from admission.cluster.errors import Forbidden as ClusterForbidden
from admission.engine.matching import elsewhere
from admission.kinds.base import POD, POD_OWNER
from admission.kinds.declared import WORKLOAD_UID
from admission.kinds.grouping import GROUP_NAME
from admission.model.errors import ClusterError
from admission.model.quantity import amount, format_amount
from admission.model.queues import Cluster as JoinedCluster
from admission.model.queues import ResourceFlavor
from admission.model.workload import LOCAL

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence

    from aiohttp import web

    from admission.api.http.responses import Document
    from admission.cluster.client import Object
    from admission.model.queues import QueueObject
    from admission.model.workload import Workload
    from admission.store.records import WorkloadRecord
    from admission.store.store import Store

log = logging.getLogger(__name__)

_LISTED_SECONDS: Final = 30.0
"""Time for which the lists of nodes and namespaces are cached for all users."""
_MOST_PODS: Final = 200
"""Most pods of a workload in a response."""
_MOST_LINES, _MOST_BYTES = 200, 256 * 1024
"""Limits of a log: its last lines, and bytes of these."""


class Cluster(Protocol):
    """Requests to the cluster's API server."""

    async def get(self, path: str, *, params: Mapping[str, str] | None = None) -> Object:
        """Return an object or a list. Raises ClusterError."""

    async def text(self, path: str, *, params: Mapping[str, str] | None = None) -> str:
        """Return a response that is text. Raises ClusterError."""

    def list_pages(
        self, path: str, *, params: Mapping[str, str] | None = None, limit: int = 500
    ) -> AsyncGenerator[Object]:
        """Yield the pages of a list. Raises ClusterError."""


class ClusterViews:
    """Handlers of the views; `cluster` is None for an API without a cluster."""

    def __init__(self, store: Store, cluster: Cluster | None) -> None:
        self._store = store
        self._cluster = cluster
        self._listed: TtlCache[tuple[Object, ...]] = TtlCache(size=2, clock=time.monotonic)
        """Nodes and namespaces, by their plural."""

    async def pods(self, request: web.Request) -> web.Response:
        """Return the pods of a workload, with the states of their containers.

        Raises Forbidden, UnknownObject and ReviewUnavailable.
        """
        cluster, record = await self._authorized(
            request, Attributes("list", "pods", namespace=_namespace(request), group="")
        )
        workload = record.workload
        found: Object = {}
        for selector in _selectors(workload):
            params = selector | {"limit": str(_MOST_PODS)}
            try:
                found = await cluster.get(f"/api/v1/namespaces/{workload.namespace}/pods", params=params)
            except ClusterError as error:
                raise _unreadable(error, "pods") from error
            if found.get("items"):
                break
        metadata: Document = found.get("metadata") or {}
        remaining = {"remainingItemCount": metadata["remainingItemCount"]} if "remainingItemCount" in metadata else {}
        return reply({"metadata": remaining, "items": [_pod(pod) for pod in found.get("items", ())]})

    async def pod_log(self, request: web.Request) -> web.Response:
        """Return the last lines of the log of `?container=` in `?pod=`, which must be a pod of the workload.

        Raises as `pods`, and BadRequest.
        """
        wanted = Attributes("get", "pods", "log", namespace=_namespace(request), group="")
        cluster, record = await self._authorized(request, wanted)
        workload, pod = record.workload, request.query.get("pod", "")
        if re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,252}", pod, re.ASCII) is None:
            raise BadRequest("pod: give the name of a pod of the workload")
        place = f"/api/v1/namespaces/{workload.namespace}/pods/{pod}"
        params = {"tailLines": str(_MOST_LINES), "limitBytes": str(_MOST_BYTES)}
        if container := request.query.get("container"):
            params["container"] = container
        try:
            labels = ((await cluster.get(place)).get("metadata") or {}).get("labels") or {}
            if not _is_pod_of(workload, pod, labels):
                raise UnknownObject(f'the workload "{workload.key}" has no pod "{pod}"')
            text = await cluster.text(f"{place}/log", params=params)
        except ClusterError as error:
            raise _unreadable(error, "pods/log") from error
        return reply({"pod": pod, "container": container or "", "text": text})

    async def nodes(self, request: web.Request) -> web.Response:
        """Return, for each ResourceFlavor, the number of nodes with its labels, and their total allocatable resources.

        Flavors that are not in `local` are left out: nodes of other clusters are not read. The list is empty without a
        cluster. Raises ReviewUnavailable.
        """
        del request
        if self._cluster is None:
            return reply({"kind": NODE_REPORT, "apiVersion": API_VERSION, "metadata": {}, "items": []})
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
        return reply({"kind": NODE_REPORT, "apiVersion": API_VERSION, "metadata": {}, "items": items})

    async def _authorized(self, request: web.Request, wanted: Attributes) -> tuple[Cluster, WorkloadRecord]:
        """Check the rights to the workload and the right `wanted`, and return the workload of the path."""
        namespace, name = _namespace(request), request.match_info["name"]
        authorization = request.app[AUTHORIZATION]
        await authorization.require(request, Attributes("get", WORKLOADS.plural, namespace=namespace, name=name))
        if not await authorization.allows(request, wanted):
            resource = "/".join(part for part in (wanted.resource, wanted.subresource) if part)
            raise Forbidden(f'you may not {wanted.verb} "{resource}" in the namespace "{namespace}"')
        record = await self._store.workloads.get(namespace, name)
        if record is None:
            raise UnknownObject(f'there is no workload "{namespace}/{name}"')
        if self._cluster is None:
            raise ReviewUnavailable("there is no cluster whose pods could be shown")
        dispatched_to = "" if record.admission is None else record.admission.cluster
        if (where := dispatched_to or record.workload.cluster) != LOCAL:  # its user's rights there are not known here
            raise ReviewUnavailable(f"the pods are in the cluster {where}: look at them there")
        return self._cluster, record

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


def _labels(workload: Workload) -> list[tuple[str, str]]:
    """Return labels (name and value) of which each pod of the workload has one."""
    if _is_kind(workload, "batch", "Job"):
        return [(POD_OWNER, workload.uid)]
    groups = [(name, workload.name) for name in GROUP_NAME]
    return groups if _is_kind(workload, *POD) else [(WORKLOAD_UID, workload.uid), *groups]


def _selectors(workload: Workload) -> list[dict[str, str]]:
    """Return selectors of the workload's pods, to try in order: which label pods have is known for some kinds only."""
    own = [{"fieldSelector": f"metadata.name={workload.name}"}] if _is_kind(workload, *POD) else []
    return [*own, *({"labelSelector": f"{name}={value}"} for name, value in _labels(workload))]


def _is_pod_of(workload: Workload, pod: str, labels: Mapping[str, str]) -> bool:
    is_itself = _is_kind(workload, *POD) and pod == workload.name
    return is_itself or any(labels.get(name) == value for name, value in _labels(workload))


def _is_kind(workload: Workload, group: str, kind: str) -> bool:
    return (workload.api_version.rpartition("/")[0], workload.kind) == (group, kind)


def _namespace(request: web.Request) -> str:
    return request.match_info["namespace"]


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


def _pod(pod: Object) -> Document:
    status: dict[str, Any] = pod.get("status") or {}
    containers = [_container(each) for each in status.get("containerStatuses") or ()]
    return {
        "name": pod["metadata"]["name"],
        "phase": status.get("phase", "Unknown"),
        "node": (pod.get("spec") or {}).get("nodeName", ""),
        "reason": status.get("reason", ""),
        "message": status.get("message", ""),
        "startTime": status.get("startTime"),
        "isEnding": "deletionTimestamp" in pod["metadata"],
        "containers": containers or [{"name": each["name"], "state": "waiting", "reason": "", "message": "",
                                      "restarts": 0} for each in (pod.get("spec") or {}).get("containers", ())],
    }  # fmt: skip


def _container(status: dict[str, Any]) -> Document:
    states: dict[str, dict[str, Any]] = status.get("state") or {"waiting": {}}
    state, details = next(iter(states.items()))
    return {
        "name": status["name"],
        "state": state,
        "reason": details.get("reason", ""),
        "message": details.get("message", ""),
        "restarts": status.get("restartCount", 0),
        **({"exitCode": details["exitCode"]} if "exitCode" in details else {}),
    }
