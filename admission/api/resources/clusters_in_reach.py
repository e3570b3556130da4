"""The clusters that requests of users read: the one in which Sluice runs, and those that have joined."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from admission.api.auth.delegation import Reviewer
from admission.api.errors import BadRequest, Unanswered
from admission.api.resources.cluster_views import ReadableCluster
from admission.model.queues import Cluster
from admission.model.workload import LOCAL
from admission.store.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from admission.kinds.registry import Kinds
    from admission.store.store import Store


class ReachedCluster(ReadableCluster, Reviewer, Protocol):
    """Requests to the API server of another cluster."""


class Reached(NamedTuple):
    """A cluster beside `local` to which there is a connection."""

    client: ReachedCluster
    kinds: Kinds


class Reach(Protocol):
    """Returns a context with the connection to a cluster. Entering it raises ClusterError."""

    def __call__(self, cluster: Cluster, /) -> AbstractAsyncContextManager[Reached]:
        """Return the context."""


class NotJoined(BadRequest):
    """No cluster of that name has joined."""


class ClustersInReach:
    """Finds the connection to a cluster by its name."""

    def __init__(self, store: Store, local: ReadableCluster | None, reach: Reach | None) -> None:
        """`local` is None for an API without a cluster, `reach` for one that knows no others."""
        self._store = store
        self._local = local
        self._reach = reach

    @property
    def local(self) -> ReadableCluster:
        """The cluster in which Sluice runs. Raises Unanswered if there is none."""
        if self._local is None:
            raise Unanswered("there is no cluster whose pods could be shown")
        return self._local

    @asynccontextmanager
    async def connected(self, name: str) -> AsyncIterator[Reached]:
        """Context manager: the connection to a cluster that has joined.

        Raises NotJoined if none of that name has, Unanswered if it is not contacted, and ClusterError.
        """
        try:
            cluster = await self._store.queues.get(Cluster.kind, name)
        except NotFound:
            raise NotJoined(f'cluster: no cluster "{name}" has joined') from None
        assert isinstance(cluster, Cluster), cluster
        if self._reach is None or cluster.spec.state == "Disabled":
            raise Unanswered(f"the cluster {name} is not contacted now, as it is disabled")
        async with self._reach(cluster) as reached:
            yield reached

    @asynccontextmanager
    async def client(self, name: str) -> AsyncIterator[ReadableCluster]:
        """Context manager: the client of a cluster, also of `local`. Raises as `connected`."""
        if name == LOCAL:
            yield self.local
            return
        async with self.connected(name) as reached:
            yield reached.client
