"""Rights of API users in the clusters that have joined: each shows its workloads to those whom its own RBAC allows it.

A request is authorized by the RBAC of `local`, whose users are those of the API. Of what it is about, workloads that
were created in another cluster are shown only if that cluster's RBAC allows the same to the user of that name, too.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol

from aiohttp import web

from admission.api.auth.authorization import AUTHORIZATION, attributes, is_superuser, reading
from admission.api.auth.delegation import Delegation
from admission.api.auth.identity import IDENTITY
from admission.api.auth.ttl_cache import TtlCache
from admission.api.errors import Expired, ReviewUnavailable
from admission.api.http.responses import add_warning
from admission.model.queues import Cluster
from admission.model.workload import LOCAL

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from typing import TypeAlias

    from admission.api.auth.delegation import Attributes, Reviewer
    from admission.api.auth.identity import Identity
    from admission.cluster.client import Object
    from admission.model.workload import Workload
    from admission.store.store import Store

    _Reach: TypeAlias = Callable[[Cluster], AbstractAsyncContextManager["_Connection"]]
    _Way: TypeAlias = tuple[str, str | None, str, str]

_PATIENCE: Final = 2.0
"""Seconds that a request waits for the answer of another cluster, so that none makes users of the others wait."""
_SILENT_SECONDS: Final = 10.0
"""Seconds for which a cluster that has not answered is not asked again."""
_LAST_SECONDS: Final = 3600.0
"""Seconds for which the last answer of a cluster counts while it does not answer: its workloads are looked at then."""
_ANSWERS: Final = 16_384
"""Last answers that are kept."""
_KNOWN_SECONDS: Final = 1.0
"""Seconds for which the list of clusters is cached."""

_HIDDEN: Final = web.RequestKey("hidden", frozenset)
"""Request key of a watch: the clusters whose workloads it leaves out."""
_SILENT: Final = web.RequestKey("silent", set)
"""Request key: the clusters of which it is not known what they allow."""


class _Connection(Protocol):
    @property
    def client(self) -> Reviewer:
        """Client with Sluice's own rights there."""


class ClusterRights:
    """Asks each cluster that has joined what it allows the users of the API.

    `reach`: returns a context with the connection to a cluster; None: there are no others.
    """

    def __init__(
        self,
        store: Store,
        reach: _Reach | None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._reach = reach
        self._clock = clock
        self._joined: TtlCache[tuple[Cluster, ...]] = TtlCache(size=1, clock=clock)
        self._delegations: dict[str, tuple[_Way, Delegation]] = {}
        """By name of the cluster."""
        self._asked_again_at: dict[str, float] = {}
        """Times of `clock` before which clusters that have not answered are not asked again."""
        self._last: OrderedDict[object, tuple[bool, float]] = OrderedDict()
        """The last answers with their times, the oldest first."""

    async def hidden(self, request: web.Request, wanted: Attributes) -> frozenset[str]:
        """Return the clusters that do not allow `wanted` to the request's user, or do not say so.

        None for superusers, and none that have left: their records are those of `local`. Raises TooManyRequests and
        StoreError.
        """
        if is_superuser(request[IDENTITY]):
            return frozenset()
        clusters = await self._joined.get(None, self._load)
        answers = await asyncio.gather(*(self._allows(cluster, request[IDENTITY], wanted) for cluster in clusters))
        found = dict(zip((cluster.name for cluster in clusters), answers, strict=True))
        if silent := {name for name, allowed in found.items() if allowed is None}:
            request.setdefault(_SILENT, set()).update(silent)
        return frozenset(name for name, allowed in found.items() if not allowed)

    async def _load(self) -> tuple[tuple[Cluster, ...], float]:
        found = await self._store.queues.list(Cluster.kind)
        return tuple(each for each in found if isinstance(each, Cluster) and each.name != LOCAL), _KNOWN_SECONDS

    async def _allows(self, cluster: Cluster, who: Identity, wanted: Attributes) -> bool | None:
        """Return what a cluster allows, or did when it last answered; None: that is not known."""
        name = cluster.name
        key = (name, _way(cluster), who.name, who.uid, who.groups, who.extra, wanted)
        now = self._clock()
        is_asked = self._reach is not None and cluster.spec.state != "Disabled"
        if is_asked and now >= self._asked_again_at.get(name, now):
            try:
                async with asyncio.timeout(_PATIENCE):
                    allowed = await self._delegation(cluster).allows(who, wanted)
            except (ReviewUnavailable, TimeoutError):
                self._asked_again_at[name] = self._clock() + _SILENT_SECONDS
            else:
                self._last.pop(key, None)
                self._last[key] = allowed, now
                if len(self._last) > _ANSWERS:
                    self._last.popitem(last=False)
                return allowed
        last = self._last.get(key)
        return last[0] if last is not None and now - last[1] < _LAST_SECONDS else None

    def _delegation(self, cluster: Cluster) -> Delegation:
        known = self._delegations.get(cluster.name)
        if known is not None and known[0] == _way(cluster):
            return known[1]
        assert self._reach is not None
        found = Delegation(_Through(self._reach, cluster), of=f"cluster {cluster.name}", clock=self._clock)
        self._delegations[cluster.name] = _way(cluster), found
        return found


def _way(cluster: Cluster) -> _Way:
    """Return how a cluster is reached: what was answered another way may be the answer of another cluster."""
    return cluster.metadata.uid, cluster.spec.kubeconfig, cluster.spec.context, cluster.spec.uid


class _Through:
    """Sends each review through the connection that there is at its time."""

    def __init__(self, reach: _Reach, cluster: Cluster) -> None:
        self._reach = reach
        self._cluster = cluster

    async def create(self, path: str, body: object) -> Object:
        """Ask for a review. Raises ClusterError."""
        async with self._reach(self._cluster) as connection:
            return await connection.client.create(path, body)


CLUSTER_RIGHTS: Final = web.AppKey("cluster_rights", ClusterRights)


async def hidden_clusters(request: web.Request, wanted: Attributes | None = None) -> frozenset[str]:
    """Return the clusters whose workloads are hidden from the request's user, see `ClusterRights.hidden`.

    `wanted`: the right; None: that of the request itself.
    """
    return await request.app[CLUSTER_RIGHTS].hidden(request, wanted or attributes(request))


async def may_read_workload(request: web.Request, workload: Workload) -> bool:
    """Return whether the request's user may list workloads of a workload's namespace, here and in its cluster.

    Raises ReviewUnavailable, TooManyRequests and StoreError.
    """
    wanted = reading(workload.namespace)
    if not await request.app[AUTHORIZATION].allows(request, wanted):
        return False
    return workload.cluster == LOCAL or workload.cluster not in await hidden_clusters(request, wanted)


async def hidden_from_watch(request: web.Request) -> frozenset[str]:
    """Return `hidden_clusters`, and note them for `recheck_hidden`."""
    request[_HIDDEN] = await hidden_clusters(request)
    return request[_HIDDEN]


async def recheck_hidden(request: web.Request) -> None:
    """Raise Expired if other clusters are hidden from a watch than at its beginning: its client lists again."""
    if _HIDDEN in request and await hidden_clusters(request) != request[_HIDDEN]:
        raise Expired("the clusters whose workloads you may read are others now; list again")


async def warn_of_silent_clusters(request: web.Request, response: web.StreamResponse) -> None:
    """Say in a response what it leaves out because it is not known who may see it (signal `on_response_prepare`)."""
    for name in sorted(request.get(_SILENT, ())):
        add_warning(response, f"workloads in cluster {name} are not shown: it does not answer whether you may see them")
