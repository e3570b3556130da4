"""Sums over the nodes of a cluster. What a cluster says is not trusted to be well formed, small or true."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from admission.model.capacity import Capacity
from admission.model.errors import InvalidQuantity
from admission.model.names import is_qualified_name
from admission.model.quantity import add, amount

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Iterable, Mapping

    from admission.engine.topology.nodes import NodeState

MAX_NODES: Final = 20_000
"""Nodes of one cluster that are counted: four times as many as Kubernetes is made for."""
MAX_PAGES: Final = 1_000
"""Pages of a list that are read: a server may return fewer nodes in each than asked for, but not none for ever."""
MAX_RESOURCES: Final = 32
"""Resources of one cluster that are counted; each is a series in the metrics."""
_AT_ONCE: Final = 200
"""Nodes that are added up without a pause: some milliseconds."""


def allocatable(node: Mapping[str, Any]) -> tuple[dict[str, int], int]:
    """Return what a node can allocate, by resource, and how many quantities are not understood: these are left out."""
    found: dict[str, int] = {}
    unread = 0
    for resource, text in _mapping(_mapping(node, "status"), "allocatable").items():
        try:
            found[resource] = amount(resource, text)
        except InvalidQuantity:
            unread += 1
    return found, unread


async def listed_capacity(pages: AsyncIterable[Mapping[str, Any]]) -> Capacity:
    """Return the sums over pages of a list of nodes, of which no more are read than are counted."""
    sums = _Sums()
    read = 0
    async for page in pages:
        if read == MAX_PAGES:
            sums.has_more_nodes = True
            break
        read += 1
        items = page.get("items")
        for number, node in enumerate(items if isinstance(items, list) else (), start=1):
            if not sums.add_object(node if isinstance(node, dict) else {}):
                return sums.capacity()
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
    return sums.capacity()


async def watched_capacity(nodes: Iterable[NodeState]) -> Capacity:
    """Return the sums over nodes that are watched anyway."""
    sums = _Sums()
    for number, node in enumerate(tuple(nodes), start=1):
        if not sums.add(node.allocatable, is_ready=node.ready, is_cordoned=node.unschedulable):
            break
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return sums.capacity()


class _Sums:
    """Sums over the nodes that were added. Methods that add one return False if it is one too many."""

    def __init__(self) -> None:
        self._nodes = self._ready = self._schedulable = self._unread = 0
        self._allocatable: dict[str, int] = {}
        self._usable: dict[str, int] = {}
        self._has_more_resources = False
        self.has_more_nodes = False
        """Whether there are nodes that were not added."""

    def add_object(self, manifest: Mapping[str, Any]) -> bool:
        """Add a node as the API server has it; quantities that are not understood are counted, and left out."""
        status = _mapping(manifest, "status")
        conditions = status.get("conditions")
        is_ready = any(
            isinstance(each, dict) and each.get("type") == "Ready" and each.get("status") == "True"
            for each in (conditions if isinstance(conditions, list) else ())
        )
        amounts, unread = allocatable(manifest)
        self._unread += unread
        is_cordoned = bool(_mapping(manifest, "spec").get("unschedulable"))
        return self.add(amounts, is_ready=is_ready, is_cordoned=is_cordoned)

    def add(self, amounts: Mapping[str, int], *, is_ready: bool, is_cordoned: bool) -> bool:
        """Add a node."""
        if self._nodes == MAX_NODES:
            self.has_more_nodes = True
            return False
        self._nodes += 1
        self._ready += is_ready
        is_schedulable = is_ready and not is_cordoned
        self._schedulable += is_schedulable
        counted = {resource: value for resource, value in amounts.items() if value and self._knows(resource)}
        add(self._allocatable, counted)
        if is_schedulable:
            add(self._usable, counted)
        return True

    def _knows(self, resource: str) -> bool:
        if resource not in self._allocatable:
            if len(self._allocatable) == MAX_RESOURCES or not is_qualified_name(resource):
                self._has_more_resources = True
                return False
            self._allocatable[resource] = 0
        return True

    def capacity(self) -> Capacity:
        """Return the sums."""
        left_out = [
            f"only the first {self._nodes} nodes are counted" if self.has_more_nodes else "",
            f"only {MAX_RESOURCES} resources are counted" if self._has_more_resources else "",
            f"{self._unread} quantities of nodes are not valid, and are not counted" if self._unread else "",
        ]
        return Capacity(
            self._nodes,
            self._ready,
            self._schedulable,
            self._allocatable,
            self._usable,
            "; ".join(filter(None, left_out)),
        )


def _mapping(manifest: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    found = manifest.get(field)
    return found if isinstance(found, dict) else {}
