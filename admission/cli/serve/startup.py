"""A start that finds its database or its API server away: it waits, says so once, and answers probes meanwhile.

To end would make a crash loop of every outage, with pauses of minutes when it is over. What a user has to mend (an
address that is none, a password, tables that are not migrated) still ends the start at once.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, TypeVar

from aiohttp import web

from admission.api import errors
from admission.api.application import listening
from admission.api.http.failures import failures
from admission.cli.serve.aggregation import api_address, has_tls
from admission.cli.serve.certificates import OwnCertificates
from admission.cluster.errors import AlreadyExists, Conflict, Misdirected, ServerError, TooManyRequests, Unreachable
from admission.model.errors import SluiceError
from admission.serving.tls import DoorContext
from admission.store.errors import DatabaseRefusesWrites, DatabaseUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from admission.cli.configuration.settings import Settings
    from admission.cluster.client import Client

T = TypeVar("T")

log = logging.getLogger(__name__)

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 5.0
"""Seconds between two attempts: at first, and in the end."""

ANSWER: Final = 10.0
"""Seconds after which an API server that could be reached and says nothing is asked anew."""

_PASSES: Final = (
    DatabaseUnavailable,
    DatabaseRefusesWrites,
    Unreachable,
    ServerError,
    TooManyRequests,
    Conflict,
    AlreadyExists,
)
"""What may be over without anybody's doing; conflicts are those with other replicas that start."""


class Starting:
    """A start: where the API will listen, probes are answered from the first thing on that is waited for.

    It ends with `done`. `client` makes what asks the API server for the certificate of a listener that needs one.
    """

    def __init__(self, settings: Settings, client: Callable[[], Client]) -> None:
        self._settings = settings
        self._client = client
        self._fault = ""
        self._listener = AsyncExitStack()
        self._taken = False
        """Whether somebody answers there: this, or the API itself."""

    async def done(self) -> None:
        """Give the address free for the API."""
        self._taken = True
        await self._listener.aclose()

    async def patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """What `attempt` gives, made again and again while it fails for something that may pass."""
        told, pause = False, FIRST_PAUSE
        while True:
            try:
                result = await attempt()
            except Misdirected:
                raise
            except _PASSES as error:
                self._fault = str(error)
                if not told:
                    log.error("cannot start yet, and tries again until it can: %s", error)
                    told = True
                await self._listen()
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                if told:
                    log.info("starts")
                return result

    async def asked(self, request: Callable[[], Awaitable[T]]) -> T:
        """The same for what the API server is asked: what it does not answer soon is asked again."""

        async def bounded() -> T:
            try:
                async with asyncio.timeout(ANSWER):
                    return await request()
            except TimeoutError as error:
                raise Unreachable(f"the API server has not answered for {ANSWER:g} s: check the network") from error

        return await self.patiently(bounded)

    async def _listen(self) -> None:
        """As good as it can: without the API server there may be no certificate yet."""
        if self._taken:
            return
        try:
            async with asyncio.timeout(LONGEST_PAUSE):
                context = await self._tls() if has_tls(self._settings) else None
            app = web.Application(middlewares=[failures])
            app.router.add_get("/livez", self._alive)
            for probe in ("/readyz", "/healthz"):
                app.router.add_get(probe, self._not_ready)
            app.router.add_route("*", "/{path:.*}", self._refuse)
            await self._listener.enter_async_context(listening(app, *api_address(self._settings), ssl_context=context))
        except (SluiceError, TimeoutError) as error:
            log.debug("no probes are answered yet: %r", error)
        else:
            self._taken = True

    async def _tls(self) -> DoorContext:
        settings = self._settings
        if settings.api_certificate is not None and settings.api_key is not None:
            return DoorContext(settings.api_certificate, settings.api_key)
        async with self._client() as client:
            await OwnCertificates(settings, client).refresh()
        return DoorContext(settings.certificate_directory / "tls.crt", settings.certificate_directory / "tls.key")

    async def _alive(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _not_ready(self, request: web.Request) -> web.Response:
        """Why is told to whoever shows the admin's token, as later."""
        fault = self._fault if self._is_admin(request) else "reason withheld"
        text = f"[+]ping ok\n[-]start failed: {fault}\n{request.path.strip('/')} check failed\n"
        return web.Response(text=text, status=503, headers={"Retry-After": "1", "Cache-Control": "no-cache, private"})

    async def _refuse(self, request: web.Request) -> web.Response:
        """Whatever else is asked, with a Status."""
        fault = self._fault if self._is_admin(request) else "its log and /readyz say for what, to an admin"
        raise errors.Starting(f"Sluice is being started, and waits: {fault}")

    def _is_admin(self, request: web.Request) -> bool:
        if self._settings.admin_token is None:
            return False
        wanted = f"Bearer {self._settings.admin_token.get_secret_value()}"
        shown = request.headers.get("Authorization", "")
        return hmac.compare_digest(shown.encode(errors="surrogateescape"), wanted.encode())
