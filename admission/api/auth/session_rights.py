"""`POST /session/access` and `GET /session/namespaces`: what the caller may do, so that pages offer nothing else.

Both ask the same RBAC that decides about every request; they allow nothing by themselves.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from admission.api.auth.authorization import AUTHORIZATION, may_read
from admission.api.auth.delegation import Attributes
from admission.api.errors import BadRequest
from admission.api.http.bodies import read_document
from admission.api.http.responses import reply
from admission.model.queues import LocalQueue

if TYPE_CHECKING:
    from aiohttp import web

    from admission.store.store import Store

_MOST_REVIEWS: Final = 100
_FIELDS: Final = ("verb", "resource", "subresource", "namespace", "name")


class SessionRights:
    """What the caller may do."""

    def __init__(self, store: Store) -> None:
        self._store = store

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
        queues = await self._store.queues.list(LocalQueue.kind)
        names = sorted({queue.metadata.namespace for queue in queues})
        everywhere = await may_read(request, "")
        if not everywhere:
            readable = await asyncio.gather(*(may_read(request, name) for name in names))
            names = [name for name, may in zip(names, readable, strict=True) if may]
        return reply({"all": everywhere, "namespaces": names})


def _attributes(number: int, review: Any) -> Attributes:
    given = review if isinstance(review, dict) else {}
    fields = {name: given.get(name, "") for name in _FIELDS}
    if not all(isinstance(value, str) for value in fields.values()) or not fields["verb"] or not fields["resource"]:
        raise BadRequest(f"reviews[{number}]: must be an object of strings with at least verb and resource")
    return Attributes(**fields)
