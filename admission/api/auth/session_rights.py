"""Rights of the session's user: access reviews, and readable namespaces.

The dashboard shows only actions that its user may take. The answers come from the same RBAC that authorizes every
request, and grant nothing themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from admission.api.auth.authorization import AUTHORIZATION, may_read, may_read_each, reading
from admission.api.auth.cluster_rights import hidden_clusters, hidden_of_each, note_silent, silent_clusters
from admission.api.auth.delegation import Attributes
from admission.api.auth.identity import identity
from admission.api.auth.ttl_cache import TtlCache
from admission.api.errors import BadRequest
from admission.api.http.bodies import read_document
from admission.api.http.responses import reply
from admission.api.registry import NAMESPACE_REPORT, WORKLOADS
from admission.model.queues import LocalQueue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

    from admission.model.workload import Workload
    from admission.store.store import Store

_MOST_REVIEWS: Final = 100
_MOST_USERS: Final = 1000
"""Size of the cache of readable namespaces."""
_READABLE_SECONDS: Final = 30.0
"""Seconds for which a user's readable namespaces are cached: as long as a watch is not authorized again.

A search sends a request with each key that is pressed; it must not send a review for each namespace every time.
"""
_PARTLY_SECONDS: Final = 2.0
"""Seconds for that while it is not known what each cluster allows."""
_FIELDS: Final = ("verb", "resource", "subresource", "namespace", "name")


@dataclass(frozen=True, slots=True)
class Readable:
    """Of which namespaces and clusters a user may list the workloads."""

    namespaces: frozenset[str]
    """Readable namespaces with LocalQueues."""
    everywhere: bool
    """Whether all namespaces are readable."""
    elsewhere: tuple[tuple[str, frozenset[str]], ...] = ()
    """Joined clusters whose workloads are not readable in all namespaces, each with those in which they are."""
    silent: frozenset[str] = frozenset()
    """Clusters of which it is not known what they allow."""

    @property
    def only(self) -> frozenset[str] | None:
        """The readable namespaces; None: all."""
        return None if self.everywhere else self.namespaces

    def includes(self, workload: Workload) -> bool:
        """Return whether the user may read a workload."""
        namespace, cluster = workload.namespace, workload.cluster
        return (self.everywhere or namespace in self.namespaces) and all(
            name != cluster or namespace in readable for name, readable in self.elsewhere
        )


class SessionRights:
    """Handlers of `/session/access`, `/session/namespaces` and `reports/namespaces`.

    `can_cancel` returns whether Sluice could cancel workloads for the user of a request, who may have the right to.
    """

    def __init__(
        self, store: Store, can_cancel: Callable[[web.Request], Awaitable[bool]], *, clock: Callable[[], float]
    ) -> None:
        """`clock`: monotonic, seconds."""
        self._store = store
        self._can_cancel = can_cancel
        self._readable_cache: TtlCache[Readable] = TtlCache(size=_MOST_USERS, clock=clock)

    async def access(self, request: web.Request) -> web.Response:
        """Review several rights at once: `{"reviews": [{"verb": "patch", "resource": "clusterqueues"}]}`.

        The fields are those of a SelfSubjectAccessReview in the group `sluice.dev`. Returns `{"allowed": [true]}`, in
        the order of the reviews; no right to `workloads/cancel` where Sluice cannot.
        Raises BadRequest and ReviewUnavailable.
        """
        reviews = (await read_document(request) or {}).get("reviews")
        if not isinstance(reviews, list) or len(reviews) > _MOST_REVIEWS:
            raise BadRequest(f"reviews: must be a list of at most {_MOST_REVIEWS} objects with {', '.join(_FIELDS)}")
        wanted = [_attributes(number, review) for number, review in enumerate(reviews)]
        allowed = await request.app[AUTHORIZATION].allows_each(request, wanted)
        if any(may and _is_cancellation(each) for may, each in zip(allowed, wanted, strict=True)):
            can_cancel = await self._can_cancel(request)
            allowed = [
                may and (can_cancel or not _is_cancellation(each)) for may, each in zip(allowed, wanted, strict=True)
            ]
        return reply({"allowed": allowed})

    async def namespaces(self, request: web.Request) -> web.Response:
        """Return the namespaces with LocalQueues in which the user may list workloads.

        `all` is true if the user may list the workloads of all namespaces. Raises ReviewUnavailable and StoreError.
        """
        found = await self.readable(request)
        return reply({"all": found.everywhere, "namespaces": sorted(found.namespaces)})

    async def report(self, request: web.Request) -> web.Response:
        """Return the same as a report, which clients can also get through the cluster's API server. Raises as that."""
        found = await self.readable(request)
        return reply(NAMESPACE_REPORT.document(all=found.everywhere, namespaces=sorted(found.namespaces)))

    async def readable(self, request: web.Request) -> Readable:
        """Return what the request's user may read. Cached: each namespace needs a review, here and in other clusters.

        Raises ReviewUnavailable and StoreError.
        """

        async def load() -> tuple[Readable, float]:
            queues = await self._store.queues.list(LocalQueue.kind)
            names = sorted({queue.metadata.namespace for queue in queues})
            everywhere = await may_read(request, "")
            if not everywhere:
                readable = await may_read_each(request, names)
                names = [name for name, may in zip(names, readable, strict=True) if may]
            partly = sorted(await hidden_clusters(request, reading("")))
            each = await hidden_of_each(request, [*map(reading, names if partly else ())])
            hidden = dict(zip(names, each, strict=False))  # none where nothing is hidden
            elsewhere = tuple(
                (cluster, frozenset(name for name in names if cluster not in hidden[name])) for cluster in partly
            )
            silent = silent_clusters(request)
            seconds = _PARTLY_SECONDS if silent else _READABLE_SECONDS
            return Readable(frozenset(names), everywhere, elsewhere, silent), seconds

        who = identity(request)
        found = await self._readable_cache.get((who.name, who.uid, who.groups, who.extra, who.auth_method), load)
        note_silent(request, found.silent)
        return found


def _is_cancellation(wanted: Attributes) -> bool:
    return (wanted.resource, wanted.subresource) == (WORKLOADS.plural, "cancel")


def _attributes(number: int, review: Any) -> Attributes:
    document = review if isinstance(review, dict) else {}
    fields = {name: document.get(name, "") for name in _FIELDS}
    if not all(isinstance(value, str) for value in fields.values()) or not fields["verb"] or not fields["resource"]:
        raise BadRequest(f"reviews[{number}]: must be an object of strings with at least verb and resource")
    return Attributes(**fields)
