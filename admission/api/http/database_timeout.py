"""Middleware that ends requests with 503 when they wait for a database that has stopped answering."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from admission.store.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from admission.store.store import Store

CHECK_SECONDS = 10.0
"""Interval at which the database is checked during a request. If it answers, the request goes on: reports take long."""

_STARTED = web.RequestKey("started", bool)


async def mark_started(request: web.Request, _response: web.StreamResponse) -> None:
    """Note that the response has started (signal `on_response_prepare`).

    From then on it cannot be replaced by a 503; and a watch lasts long without waiting for the database.
    """
    request[_STARTED] = True


class DatabaseTimeout:
    """The middleware, for the database of `store`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._abandoned: set[asyncio.Future[web.StreamResponse]] = set()
        """Cancelled handlers that have not ended yet; asyncio itself keeps only weak references to tasks."""

    @web.middleware
    async def middleware(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Run the handler. Raises DatabaseUnavailable if it waits and the database does not answer.

        After that error it is unknown whether a write of the request was committed.
        """
        handling = asyncio.ensure_future(handler(request))
        try:
            while not (await asyncio.wait({handling}, timeout=CHECK_SECONDS))[0]:
                if request.get(_STARTED):
                    break
                fault = await self._store.unresponsive()
                if fault and not (handling.done() or request.get(_STARTED)):
                    raise DatabaseUnavailable(fault)
            return await handling
        finally:
            if handling.done():
                _retrieve_exception(handling)
            else:
                self._abandon(handling)

    def _abandon(self, handling: asyncio.Future[web.StreamResponse]) -> None:
        """Cancel a handler without waiting for it: to cancel a statement the driver contacts the database for 10 s."""
        handling.cancel()
        self._abandoned.add(handling)
        handling.add_done_callback(self._abandoned.discard)
        handling.add_done_callback(_retrieve_exception)


def _retrieve_exception(handling: asyncio.Future[web.StreamResponse]) -> None:
    """Mark the exception as retrieved: asyncio logs it otherwise when nothing awaits the handler any more."""
    if not handling.cancelled():
        handling.exception()
