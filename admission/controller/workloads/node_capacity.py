"""What the nodes of a cluster have together, for people: the leader looks at each join, and every few minutes.

Nodes are listed page by page, and only sums are kept. A watch would hold all of them in memory, and bring each of them
as often: a kubelet writes the status of its node every five minutes.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from admission.cluster.errors import Forbidden
from admission.controller.state.repeating import repeat
from admission.kinds.capacity import listed_capacity, watched_capacity
from admission.model.capacity import Capacity, SeenCapacity
from admission.model.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.cluster.client import Client
    from admission.controller.state.faults import Faults
    from admission.controller.workloads.nodes_and_pods import NodesAndPods
    from admission.store.store import Store

INTERVAL: Final = 300.0
"""Seconds between two looks."""
_RETRY: Final = 1.0
"""Seconds until the next one while it is not the time for a look."""
_LONGEST: Final = 60.0
"""Seconds that a list may take."""
_PAGE: Final = 200
"""Nodes of a page: with 40 images each some 2 MB."""
_LONGEST_MESSAGE: Final = 500
"""Characters of a failure that are stored: the cluster has written them."""


class NodeCapacity:
    """Stores the capacity of one cluster while this replica leads. Whatever is wrong with it only leaves it unknown.

    `watched`: the watch of nodes, for the case that it runs. `is_due`: whether a look is of use, and can succeed.
    """

    def __init__(
        self,
        name: str,
        client: Client,
        store: Store,
        watched: Callable[[], NodesAndPods],
        is_due: Callable[[], bool],
        *,
        epoch: int,
        faults: Faults,
    ) -> None:
        self._name = name
        self._client = client
        self._store = store
        self._watched = watched
        self._is_due = is_due
        self._epoch = epoch
        self._faults = faults

    async def run(self) -> None:
        """Look until cancelled."""
        await repeat(self.look, self._faults, every=INTERVAL, name=f"the capacity of the cluster {self._name}")

    async def look(self) -> float | None:
        """Store what the nodes have now; return the seconds until the next look, if not the usual ones.

        Raises StoreError.
        """
        if not self._is_due():
            return _RETRY
        try:
            async with asyncio.timeout(_LONGEST):
                found = SeenCapacity(self._store.now(), await self._read())
        except Forbidden:
            found = _failed("the right to list nodes is missing (deploy/rbac/topology.yaml grants it)")
        except ClusterError as error:
            found = _failed(f"its nodes cannot be listed: {error}"[:_LONGEST_MESSAGE])
        except TimeoutError:
            found = _failed(f"its nodes were not listed within {_LONGEST:g} s")
        await self._store.joined_clusters.note_capacity(self._name, found, epoch=self._epoch)
        return None

    async def _read(self) -> Capacity:
        """Raises ClusterError."""
        if (nodes := self._watched().all_nodes) is not None:
            return await watched_capacity(nodes.values())
        async with aclosing(self._client.list_pages("/api/v1/nodes", limit=_PAGE)) as pages:
            return await listed_capacity(pages)


def _failed(message: str) -> SeenCapacity:
    return SeenCapacity(None, Capacity(), message)
