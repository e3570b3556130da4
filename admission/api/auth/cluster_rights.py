"""Rights of API users in the clusters that have joined: each shows its workloads to those whom its own RBAC allows it.

A request is authorized by the RBAC of `local`, whose users are those of the API. Of what it is about, workloads that
were created in another cluster are shown only if that cluster's RBAC allows the same to the user of that name, too.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from aiohttp import web

from admission.api.auth.authorization import AUTHORIZATION, attributes, is_superuser, reading
from admission.api.auth.delegation import Delegation
from admission.api.auth.identity import IDENTITY
from admission.api.auth.ttl_cache import TtlCache
from admission.api.errors import Expired, Forbidden, ReviewUnavailable
from admission.api.http.responses import add_warning
from admission.cluster.errors import Unreachable
from admission.model.errors import ClusterError
from admission.model.queues import Cluster
from admission.model.workload import LOCAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
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
"""Seconds that a review waits for the answer of another cluster, so that none makes users of the others wait."""
_BATCH_SECONDS: Final = 3.0
"""Seconds that a request waits for its reviews, also for their turn: longer, so that the cluster is known as silent."""
_AT_A_TIME: Final = 3
"""Reviews of a batch that are sent to a cluster at the same time."""
_SILENT_SECONDS: Final = 10.0
"""Seconds for which a cluster that has not answered is not asked again."""
_LAST_SECONDS: Final = 3600.0
"""Seconds for which the last answer of a cluster counts while it does not answer: its workloads are looked at then."""
_RECENT_SECONDS: Final = 60.0
"""Seconds for which it counts while the cluster answers, but not in time what the request needs.

By causing many reviews, a user who has lost a right could otherwise keep it.
"""
_ANSWERS: Final = 16_384
"""Last answers that are kept."""
_KNOWN_SECONDS: Final = 1.0
"""Seconds for which the list of clusters is cached."""

_HIDDEN: Final = web.RequestKey("hidden", frozenset)
"""Request key of a watch: the clusters whose workloads it leaves out."""
_JOINED: Final = web.RequestKey("joined", frozenset)
"""Request key of a watch: the clusters that had joined when it began."""
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

    async def hidden(self, request: web.Request, wanted: Sequence[Attributes]) -> list[frozenset[str]]:
        """Return for each right the clusters that do not allow it to the request's user, or do not say so.

        None for superusers, and none that have left: their records are those of `local`. Raises TooManyRequests and
        StoreError.
        """
        if is_superuser(request[IDENTITY]):
            return [frozenset()] * len(wanted)
        clusters = await self.joined()
        answers = await asyncio.gather(*(self._answers(cluster, request[IDENTITY], wanted) for cluster in clusters))
        found = dict(zip((cluster.name for cluster in clusters), answers, strict=True))
        note_silent(request, [name for name, allowed in found.items() if None in allowed])
        return [frozenset(name for name, allowed in found.items() if not allowed[at]) for at in range(len(wanted))]

    async def joined(self) -> tuple[Cluster, ...]:
        """Return the clusters beside `local`, as of a moment ago. Raises StoreError."""
        return await self._joined.get(None, self._load)

    async def _load(self) -> tuple[tuple[Cluster, ...], float]:
        found = await self._store.queues.list(Cluster.kind)
        return tuple(each for each in found if isinstance(each, Cluster) and each.name != LOCAL), _KNOWN_SECONDS

    async def _answers(self, cluster: Cluster, who: Identity, wanted: Sequence[Attributes]) -> list[bool | None]:
        """Return what a cluster allows, or did when it last answered; None: that is not known."""
        way = cluster.name, _way(cluster), who.name, who.uid, who.groups, who.extra
        is_asked = self._reach is not None and cluster.spec.state != "Disabled"
        if is_asked:
            # Of more than there is time for, those are asked first that have no answer yet, or the oldest one.
            asked = sorted(wanted, key=lambda each: self._last.get((*way, each), (False, -inf))[1])
            with suppress(ReviewUnavailable, TimeoutError):  # of what is not answered, the last answer is taken below
                async with asyncio.timeout(_BATCH_SECONDS):
                    for at in range(0, len(asked), _AT_A_TIME):
                        batch = asked[at : at + _AT_A_TIME]
                        await asyncio.gather(*(self._ask(cluster, who, each, (*way, each)) for each in batch))
        is_silent = not is_asked or self._clock() < self._asked_again_at.get(cluster.name, 0.0)
        since = self._clock() - (_LAST_SECONDS if is_silent else _RECENT_SECONDS)
        last = (self._last.get((*way, each)) for each in wanted)
        return [None if each is None or each[1] <= since else each[0] for each in last]

    async def _ask(self, cluster: Cluster, who: Identity, wanted: Attributes, key: object) -> None:
        """Note the answer of a cluster, which may be cached. Raises ReviewUnavailable and TooManyRequests."""
        allowed = await self._delegation(cluster).allows(who, wanted)
        self._last.pop(key, None)
        self._last[key] = allowed, self._clock()
        if len(self._last) > _ANSWERS:
            self._last.popitem(last=False)

    async def review(self, cluster: Cluster, path: str, body: object) -> Object:
        """Ask a cluster for a review, through the connection that there is now. Raises ClusterError.

        Of one that takes too long no user asks for some time. That many reviews of a user wait for each other is not
        the cluster's silence.
        """
        assert self._reach is not None
        if self._clock() < self._asked_again_at.get(cluster.name, 0.0):
            raise Unreachable("it has not answered a moment ago")
        try:
            async with asyncio.timeout(_PATIENCE), self._reach(cluster) as connection:
                return await connection.client.create(path, body)
        except (ClusterError, TimeoutError) as error:
            self._asked_again_at[cluster.name] = self._clock() + _SILENT_SECONDS
            raise error if isinstance(error, ClusterError) else Unreachable("it does not answer in time") from error

    def _delegation(self, cluster: Cluster) -> Delegation:
        known = self._delegations.get(cluster.name)
        if known is not None and known[0] == _way(cluster):
            return known[1]
        found = Delegation(_Through(self, cluster), of=f"cluster {cluster.name}", clock=self._clock)
        self._delegations[cluster.name] = _way(cluster), found
        return found


def _way(cluster: Cluster) -> _Way:
    """Return how a cluster is reached: what was answered another way may be the answer of another cluster."""
    return cluster.metadata.uid, cluster.spec.kubeconfig, cluster.spec.context, cluster.spec.uid


class _Through:
    """Sends the reviews of one cluster."""

    def __init__(self, rights: ClusterRights, cluster: Cluster) -> None:
        self._rights = rights
        self._cluster = cluster

    async def create(self, path: str, body: object) -> Object:
        """Ask for a review. Raises ClusterError."""
        return await self._rights.review(self._cluster, path, body)


CLUSTER_RIGHTS: Final = web.AppKey("cluster_rights", ClusterRights)


async def hidden_clusters(request: web.Request, wanted: Attributes | None = None) -> frozenset[str]:
    """Return the clusters whose workloads are hidden from the request's user, see `ClusterRights.hidden`.

    `wanted`: the right; None: that of the request itself.
    """
    (found,) = await hidden_of_each(request, [wanted or attributes(request)])
    return found


async def hidden_of_each(request: web.Request, wanted: Sequence[Attributes]) -> list[frozenset[str]]:
    """Return `hidden_clusters` for each right of a batch, which together take no longer than one."""
    return await request.app[CLUSTER_RIGHTS].hidden(request, wanted)


async def require_in_cluster(request: web.Request, cluster: str, wanted: Attributes) -> None:
    """Check that a cluster that has joined allows a right to the request's user, too. Raises Forbidden."""
    if is_superuser(request[IDENTITY]):
        return
    if cluster not in await _joined(request):
        raise Forbidden(f'forbidden: no cluster "{cluster}" has joined, which could allow it')
    if cluster in await hidden_clusters(request, wanted):
        where = f'in the namespace "{wanted.namespace}"' if wanted.namespace else "in all namespaces"
        raise Forbidden(
            f'forbidden: User "{request[IDENTITY].name}" cannot {wanted.verb} {wanted.resource} {where} of the cluster '
            f'"{cluster}", by the RBAC there, or it does not answer'
        )


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
    request[_JOINED] = await _joined(request)
    request[_HIDDEN] = await hidden_clusters(request)
    return request[_HIDDEN]


async def recheck_hidden(request: web.Request, *, joined_only: bool = False) -> None:
    """Raise Expired if other clusters are hidden from a watch than at its beginning: its client lists again.

    `joined_only`: ask nothing, but see whether other clusters have joined, before events are sent that may be of these.
    """
    if _HIDDEN not in request:
        return
    joined = await _joined(request)
    if joined_only and joined <= request[_JOINED]:
        return
    if await hidden_clusters(request) != request[_HIDDEN]:
        raise Expired("the clusters whose workloads you may read are others now; list again")
    request[_JOINED] = joined


async def _joined(request: web.Request) -> frozenset[str]:
    return frozenset(cluster.name for cluster in await request.app[CLUSTER_RIGHTS].joined())


def note_silent(request: web.Request, clusters: Iterable[str]) -> None:
    """Note clusters of which it is not known what they allow, for `warn_of_silent_clusters`."""
    request.setdefault(_SILENT, set()).update(clusters)


def silent_clusters(request: web.Request) -> frozenset[str]:
    """Return the clusters that `note_silent` has noted."""
    return frozenset(request.get(_SILENT, ()))


async def warn_of_silent_clusters(request: web.Request, response: web.StreamResponse) -> None:
    """Say in a response what it leaves out because it is not known who may see it (signal `on_response_prepare`)."""
    for name in sorted(silent_clusters(request)):
        add_warning(response, f"workloads in cluster {name} are not shown: it does not answer whether you may see them")
