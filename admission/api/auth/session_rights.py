"""What the caller may do, and search in what the caller may see, so that pages offer nothing else.

All ask the same RBAC that decides about every request; they allow nothing by themselves.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from admission.api.auth.authentication import identity
from admission.api.auth.authorization import AUTHORIZATION, may_read
from admission.api.auth.delegation import Attributes
from admission.api.auth.ttl_cache import Remembered
from admission.api.errors import BadRequest
from admission.api.http.bodies import read_document
from admission.api.http.responses import reply
from admission.model.queues import LocalQueue

if TYPE_CHECKING:
    from aiohttp import web

    from admission.store.store import Store

_MOST_REVIEWS: Final = 100
_MOST_FOUND: Final = 12
_LONGEST_TEXT: Final = 100
_MOST_CALLERS: Final = 1000
_READABLE_SECONDS: Final = 10.0
"""As long as a token is believed: one review for each namespace must not be sent with each key that is pressed."""
_FIELDS: Final = ("verb", "resource", "subresource", "namespace", "name")


class SessionRights:
    """What the caller may do."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: Remembered[tuple[list[str], bool]] = Remembered(size=_MOST_CALLERS, clock=time.monotonic)

    async def access(self, request: web.Request) -> web.Response:
        """Of each of `{"reviews": [{"verb": "patch", "resource": "clusterqueues"}]}` whether the caller may do it.

        The fields are those of a SelfSubjectAccessReview in the group `sluice.dev`. Raises BadRequest and
        ReviewUnavailable.
        """
        asked = (await read_document(request) or {}).get("reviews")
        if not isinstance(asked, list) or len(asked) > _MOST_REVIEWS:
            raise BadRequest(f"reviews: must be a list of at most {_MOST_REVIEWS} objects with {', '.join(_FIELDS)}")
        wanted = [_attributes(number, review) for number, review in enumerate(asked)]
        authorization = request.app[AUTHORIZATION]
        allowed = await asyncio.gather(*(authorization.allows(request, each) for each in wanted))
        return reply({"allowed": allowed})

    async def namespaces(self, request: web.Request) -> web.Response:
        """The namespaces with LocalQueues in which the caller may list workloads, and whether it may list all.

        Raises ReviewUnavailable and StoreError.
        """
        names, everywhere = await self._readable(request)
        return reply({"all": everywhere, "namespaces": names})

    async def workloads(self, request: web.Request) -> web.Response:
        """Some workloads that the caller may list whose name, user or uid contains `find`, unfinished ones first.

        Raises BadRequest, ReviewUnavailable and StoreError.
        """
        text = request.query.get("find", "")
        if not 2 <= len(text) <= _LONGEST_TEXT:
            raise BadRequest(f"find: give 2 to {_LONGEST_TEXT} characters of a name")
        names, everywhere = await self._readable(request)
        namespaces = None if everywhere else names
        found = await self._store.workloads.find(text, namespaces=namespaces, limit=_MOST_FOUND)
        return reply({"items": [each._asdict() for each in found]})

    async def _readable(self, request: web.Request) -> tuple[list[str], bool]:
        """The namespaces, and whether the caller may read all. Many are asked about, so the answer is kept a while."""

        async def ask() -> tuple[tuple[list[str], bool], float]:
            queues = await self._store.queues.list(LocalQueue.kind)
            names = sorted({queue.metadata.namespace for queue in queues})
            if await may_read(request, ""):
                return (names, True), _READABLE_SECONDS
            readable = await asyncio.gather(*(may_read(request, name) for name in names))
            return ([name for name, may in zip(names, readable, strict=True) if may], False), _READABLE_SECONDS

        who = identity(request)
        return await self._kept.get((who.name, who.uid, who.groups, who.extra, who.door), ask)


def _attributes(number: int, review: Any) -> Attributes:
    given = review if isinstance(review, dict) else {}
    fields = {name: given.get(name, "") for name in _FIELDS}
    if not all(isinstance(value, str) for value in fields.values()) or not fields["verb"] or not fields["resource"]:
        raise BadRequest(f"reviews[{number}]: must be an object of strings with at least verb and resource")
    return Attributes(**fields)
