"""Handler of `/session/workloads`: search among the workloads that the caller may read, in pages or counted by group.

Unlike a list of Kubernetes' kind it covers all readable namespaces, is sorted as people read it, and can be read from
any offset: for pages that show a part of a very long list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.api.documents.presentation import workload_documents
from admission.api.errors import BadRequest
from admission.api.http.request_options import instant, number, resource_version
from admission.api.http.response_cache import ResponseCache
from admission.api.http.responses import encode, reply_encoded
from admission.model import sentences
from admission.store.workloads.search import FIELDS, ORDERS, WorkloadQuery

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from admission.api.auth.session_rights import SessionRights
    from admission.api.resources.workloads import WorkloadHandlers
    from admission.store.store import Store

_LONGEST_TEXT: Final = 100
_DEFAULT_LIMIT: Final = 100
_LARGEST_LIMIT: Final = 500
_CACHE_SECONDS: Final = 1.0
"""Shortest time for which a response is cached: open pages send the same request again and again."""


class WorkloadSearch:
    """Handler of the search. `now` returns the Unix time (s)."""

    def __init__(
        self, store: Store, rights: SessionRights, workloads: WorkloadHandlers, *, now: Callable[[], float]
    ) -> None:
        self._store = store
        self._rights = rights
        self._workloads = workloads
        self._now = now
        self._bodies: ResponseCache[bytes] = ResponseCache(_CACHE_SECONDS)

    async def get(self, request: web.Request) -> web.Response:
        """Return the found workloads, those with quota first, then pending and finished ones; or (`?by=`) their counts.

        Parameters: `find` (part of the name, user or uid); fields of FIELDS, which may be repeated; `from` (unfinished
        ones, and those that have finished since this time); `evicted=again` (those that were evicted again and
        again in the last hour); `order`, `offset` and `limit`, or `by`. A response may be some seconds old, unless
        `resourceVersion` is given, at which it then is or later.

        Raises BadRequest, ReviewUnavailable and StoreError.
        """
        query = request.query
        text = query.get("find", "")
        if len(text) > _LONGEST_TEXT:
            raise BadRequest(f"find: give at most {_LONGEST_TEXT} characters of a name")
        by, order = query.get("by", ""), query.get("order") or "state"
        if by and by not in FIELDS:
            raise BadRequest(f'by: workloads cannot be grouped by "{by}"; give one of {", ".join(FIELDS)}')
        if order not in ORDERS:
            raise BadRequest(f'order: "{order}" is not one of {", ".join(ORDERS)}')
        offset = number(request, "offset") or 0
        limit = number(request, "limit") or _DEFAULT_LIMIT
        if limit > _LARGEST_LIMIT:
            raise BadRequest(f"limit: give at most {_LARGEST_LIMIT}, and read the rest by offset")
        fields = {name: frozenset(query.getall(name)) for name in FIELDS if name in query}
        since = instant(query["from"], self._now(), field="from") if query.get("from") else None
        readable = await self._rights.readable(request)
        evicted = query.get("evicted", "")
        if evicted not in ("", "again"):
            raise BadRequest(f'evicted: "{evicted}" is not again')
        uids = None
        if evicted:
            uids = frozenset(each.uid for each in await self._store.workloads.evicted_again(now=self._now()))
        search = WorkloadQuery(readable.only, readable.elsewhere, text, fields, since, uids)

        async def make() -> bytes:
            return await (self._groups(search, by) if by else self._page(search, order, offset, limit))

        key = (
            search.namespaces,
            search.elsewhere,
            text,
            *fields.items(),
            query.get("from"),
            uids,
            by,
            order,
            offset,
            limit,
        )
        return reply_encoded(await self._bodies.get((*key, resource_version(request)), make))

    async def _page(self, search: WorkloadQuery, order: str, offset: int, limit: int) -> bytes:
        found = await self._store.workloads.search(search, order=order, offset=offset, limit=limit)
        items = await workload_documents(self._store, found.workloads, now=self._now())
        self._workloads.add_estimates(items)
        metadata = {"resourceVersion": str(found.revision), "total": found.total}
        return encode({"metadata": metadata, "items": items})

    async def _groups(self, search: WorkloadQuery, by: str) -> bytes:
        groups = await self._store.workloads.search_groups(search, by=by)
        items = [
            {
                "value": group.value,
                "counts": group.counts,
                **({} if group.oldest is None else {"oldest": sentences.time(group.oldest)}),
            }
            for group in groups
        ]
        return encode({"metadata": {}, "by": by, "items": items})
