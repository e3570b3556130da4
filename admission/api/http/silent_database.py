"""Gives requests up that wait for a database which answers nobody: whoever asked is told so, instead of waiting on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from admission.store.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from admission.store.store import Store

PATIENCE_SECONDS = 10.0
"""After which, and again after which, it is looked whether the database answers at all: long reports go on."""

_BEGUN = web.RequestKey("begun", bool)


async def note_begun(request: web.Request, _response: web.StreamResponse) -> None:
    """To be told when an answer begins: no other one can be given from then on, and watches last."""
    request[_BEGUN] = True


class SilentDatabase:
    """A middleware on the database of `store`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._given_up: set[asyncio.Future[web.StreamResponse]] = set()

    @web.middleware
    async def middleware(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Raises DatabaseUnavailable in place of an answer that no database gives; what was written is not known."""
        answering = asyncio.ensure_future(handler(request))
        try:
            while not (await asyncio.wait({answering}, timeout=PATIENCE_SECONDS))[0]:
                if request.get(_BEGUN):
                    break
                silence = await self._store.unresponsive()
                if silence and not (answering.done() or request.get(_BEGUN)):
                    raise DatabaseUnavailable(silence)
            return await answering
        finally:
            if answering.done():
                _note_outcome(answering)
            else:
                self._give_up(answering)

    def _give_up(self, answering: asyncio.Future[web.StreamResponse]) -> None:
        """Without waiting for it: to end what is under way the driver asks the database, for another ten seconds."""
        answering.cancel()
        self._given_up.add(answering)
        answering.add_done_callback(self._given_up.discard)
        answering.add_done_callback(_note_outcome)


def _note_outcome(ended: asyncio.Future[web.StreamResponse]) -> None:
    """Nobody may have waited for it: asyncio would log an exception that nobody has asked for."""
    if not ended.cancelled():
        ended.exception()
