"""The report `reports/topology`: the domains of a flavor's topology, what is free in them, and what runs where.

Only the leader knows nodes and pods, so that only it answers.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from aiohttp import web

from admission.api.documents.workload_names import workload_name
from admission.api.errors import BadRequest, UnknownObject
from admission.api.http.response_cache import ResponseCache
from admission.api.http.responses import encode, reply_encoded
from admission.api.registry import TOPOLOGY_REPORT
from admission.api.resources.leader_view import not_leading
from admission.model.quantity import format_amount

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.api.auth.session_rights import Readable, SessionRights
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
        """Return the state of the topology of `?flavor=`; names only of readable workloads.

        Down to `?level=`, or to the deepest level with at most `?most=` domains; of the domain `?within=` (its values,
        joined by slashes) with those above and below it. Raises BadRequest, UnknownObject, NotLeading,
        ReviewUnavailable and StoreError.
        """
        query = request.query
        flavor, level, within = query.get("flavor", ""), query.get("level", ""), query.get("within", "")
        if not flavor:
            raise BadRequest("flavor: give the name of a ResourceFlavor with a topologyName")
        most = query.get("most", "")
        if most and not re.fullmatch(r"[1-9]\d{0,5}", most, re.ASCII):
            raise BadRequest(f'most: "{most}" is not a number from 1 to 999999; give one such as 2000')
        if most and level:
            raise BadRequest("most: cannot be combined with level; give one of the two")
        readable = await self._rights.readable(request)

        async def make() -> bytes:
            engine = self._controller.engine()
            if engine is None:
                raise not_leading("show a topology", await self._store.holder())
            compute = engine.occupancy(flavor)
            if compute is None:
                raise UnknownObject(f'there is no ResourceFlavor "{flavor}" with a Topology that exists')
            found = await asyncio.to_thread(compute)
            inside = tuple(within.split("/")) if within else ()
            levels = _inside(found, inside)
            depth = _depth(found, level) if level else _within_number(levels, int(most or 0), len(inside))
            return await asyncio.to_thread(lambda: encode(_document(flavor, found, levels[:depth], inside, readable)))

        body = await self._cache.get((flavor, level, most, within, readable), make)
        etag = hashlib.blake2b(body, digest_size=16).hexdigest()
        if any(known.value == etag for known in request.if_none_match or ()):
            return web.Response(status=HTTPStatus.NOT_MODIFIED, headers={"Etag": f'W/"{etag}"'})
        response = reply_encoded(body)
        response.headers["Etag"] = f'W/"{etag}"'
        response.enable_compression()  # to a twentieth
        return response


def _depth(found: Occupancy, level: str) -> int:
    """Return the number of levels to show. Raises BadRequest."""
    matching = [index for index, label in enumerate(found.levels) if level in (label, label.rpartition("/")[2])]
    if not matching:
        raise BadRequest(f'level: "{level}" is not a level of the Topology; give one of {", ".join(found.levels)}')
    return matching[0] + 1


def _inside(found: Occupancy, inside: tuple[str, ...]) -> list[list[Space]]:
    """Return the domains of each level above, at and below the domain with these values. Raises UnknownObject."""
    if not inside:
        return found.by_level
    levels = []
    for spaces in found.by_level:
        length = min(len(inside), len(spaces[0].values)) if spaces else 0
        levels.append([space for space in spaces if space.values[:length] == inside[:length]])
    if len(inside) > len(levels) or not levels[len(inside) - 1]:
        raise UnknownObject(f'within: there is no domain "{"/".join(inside)}" now')
    return levels


def _within_number(levels: list[list[Space]], most: int, least: int) -> int:
    """Return how many levels have at most so many domains each; one more than `least` at least; 0: no such limit."""
    depth = min(least + 1, len(levels))
    while depth < len(levels) and (not most or len(levels[depth]) <= most):
        depth += 1
    return depth


def _document(
    flavor: str,
    found: Occupancy,
    levels: list[list[Space]],
    inside: tuple[str, ...],
    readable: Readable,
) -> Document:
    pods = [0] * len(found.workloads)
    for space in found.by_level[-1]:
        for number, count in space.runs:
            pods[number] += count
    shown = dict.fromkeys(number for spaces in levels for space in spaces for number, _ in space.runs)
    index = {number: at for at, number in enumerate(shown)}
    return TOPOLOGY_REPORT.document(
        flavor=flavor,
        topology=found.topology,
        resources=[*found.resources],
        total=_domain(found.total, found.resources, index),
        levels=[_level(found, number) for number in range(len(found.levels))],
        domains=[_domain(space, found.resources, index) for spaces in levels for space in spaces],
        out=[
            {"name": node.name, "reason": node.why, "values": [*node.values]}
            for node in found.out
            if node.values[: len(inside)] == inside
        ],
        workloads=[_workload(found.workloads[number], pods[number], readable) for number in shown],
    )


def _workload(held: Held, pods: int, readable: Readable) -> Document:
    workload = held.workload
    if not readable.includes(workload):
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


def _domain(space: Space, resources: tuple[str, ...], index: Mapping[int, int]) -> Document:
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
        **(
            {"runs": [{"workload": index[number], "pods": count} for number, count in space.runs]} if space.runs else {}
        ),
    }
