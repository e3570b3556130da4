"""The report `reports/topology`: the domains of a flavor's topology, what is free in them, and what runs where.

Only the leader knows nodes and pods, so that only it answers.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from admission.api.documents.workload_names import workload_name
from admission.api.errors import BadRequest, UnknownObject
from admission.api.http.response_cache import ResponseCache
from admission.api.http.responses import encode, reply_encoded
from admission.api.registry import API_VERSION, TOPOLOGY_REPORT
from admission.api.resources.leader_view import not_leading
from admission.model.quantity import format_amount

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from admission.api.auth.session_rights import SessionRights
    from admission.api.http.responses import Document
    from admission.api.resources.explaining_engine import LocalController
    from admission.engine.clusterqueue import Held
    from admission.engine.topology.occupancy import Occupancy, Space
    from admission.store.store import Store

_SECONDS: Final = 2.0
"""Shortest time for which a response is cached: open pages request it periodically."""


class TopologyReports:
    """Handler of the report."""

    def __init__(self, store: Store, controller: LocalController, rights: SessionRights) -> None:
        self._store = store
        self._controller = controller
        self._rights = rights
        self._cache: ResponseCache[bytes] = ResponseCache(_SECONDS)

    async def get(self, request: web.Request) -> web.Response:
        """Return the state of the topology of `?flavor=`, down to `?level=`; names only of readable namespaces.

        Raises BadRequest, UnknownObject, NotLeading, ReviewUnavailable and StoreError.
        """
        flavor, level = request.query.get("flavor", ""), request.query.get("level", "")
        if not flavor:
            raise BadRequest("flavor: give the name of a ResourceFlavor with a topologyName")
        names, everywhere = await self._rights.readable(request)
        readable = None if everywhere else frozenset(names)

        async def make() -> bytes:
            engine = self._controller.engine()
            if engine is None:
                raise not_leading("show a topology", await self._store.holder())
            compute = engine.occupancy(flavor)
            if compute is None:
                raise UnknownObject(f'there is no ResourceFlavor "{flavor}" with a Topology that exists')
            found = await asyncio.to_thread(compute)
            depth = _depth(found, level)
            return await asyncio.to_thread(lambda: encode(_document(flavor, found, depth, readable)))

        return reply_encoded(await self._cache.get((flavor, level, readable), make))


def _depth(found: Occupancy, level: str) -> int:
    """Return the number of levels to show. Raises BadRequest."""
    if not level:
        return len(found.levels)
    matching = [index for index, label in enumerate(found.levels) if level in (label, label.rpartition("/")[2])]
    if not matching:
        raise BadRequest(f'level: "{level}" is not a level of the Topology; give one of {", ".join(found.levels)}')
    return matching[0] + 1


def _document(flavor: str, found: Occupancy, depth: int, readable: frozenset[str] | None) -> Document:
    domains = [_domain(space, found.resources) for spaces in found.by_level[:depth] for space in spaces]
    pods = [0] * len(found.workloads)
    for space in found.by_level[-1]:
        for number, count in space.runs:
            pods[number] += count
    return {
        "kind": TOPOLOGY_REPORT,
        "apiVersion": API_VERSION,
        "metadata": {},
        "flavor": flavor,
        "topology": found.topology,
        "resources": [*found.resources],
        "total": _domain(found.total, found.resources),
        "levels": [_level(found, index) for index in range(len(found.levels))],
        "domains": domains,
        "out": [{"name": node.name, "reason": node.why, "values": [*node.values]} for node in found.out],
        "workloads": [_workload(held, count, readable) for held, count in zip(found.workloads, pods, strict=True)],
    }


def _workload(held: Held, pods: int, readable: frozenset[str] | None) -> Document:
    workload = held.workload
    if readable is not None and workload.namespace not in readable:
        return {"pods": pods}
    return {"namespace": workload.namespace, "name": workload.name, "workload": workload_name(workload), "pods": pods}


def _level(found: Occupancy, index: int) -> Document:
    fits: list[Document] = []
    for resource in found.resources:
        best = found.most_free(index, resource)
        free = 0 if best is None else best.free[resource]
        values = [] if best is None else [*best.values]
        fits.append({"resource": resource, "free": format_amount(resource, free), "values": values})
    whole = found.most_whole(index)
    return {
        "nodeLabel": found.levels[index],
        "domains": len(found.by_level[index]),
        "mostFree": fits,
        "mostWhole": 0 if whole is None else whole.whole,
        "mostWholeIn": [] if whole is None else [*whole.values],
    }


def _domain(space: Space, resources: tuple[str, ...]) -> Document:
    def amounts(of: Mapping[str, int]) -> Document:
        return {resource: format_amount(resource, of.get(resource, 0)) for resource in resources}

    return {
        "values": [*space.values],
        "nodes": space.nodes,
        "out": space.out,
        "whole": space.whole,
        "capacity": amounts(space.capacity),
        "used": amounts(space.used),
        "usedByOthers": amounts(space.others),
        "free": amounts(space.free),
        **({"runs": [{"workload": number, "pods": count} for number, count in space.runs]} if space.runs else {}),
    }
