"""Startup while the database or the API server is unavailable: retry, log it once, and answer probes meanwhile.

Exiting would turn every outage into a crash loop whose backoff lasts for minutes after the outage. Errors that a user
has to correct (an invalid address, a wrong password, tables that are not migrated) still end the start immediately.
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
from admission.serving.tls import ReloadingContext
from admission.store.errors import DatabaseRefusesWrites, DatabaseUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from admission.cli.configuration.settings import Settings
    from admission.cluster.client import Client

T = TypeVar("T")

log = logging.getLogger(__name__)

FIRST_PAUSE: Final = 0.5
"""Seconds before the second attempt; the pause doubles with each further one."""
LONGEST_PAUSE: Final = 5.0
"""Longest pause between attempts, in seconds."""

ANSWER: Final = 10.0
"""Seconds to wait for the answer of an API server that accepts connections, before the request is repeated."""

_TRANSIENT: Final = (
    DatabaseUnavailable,
    DatabaseRefusesWrites,
    Unreachable,
    ServerError,
    TooManyRequests,
    Conflict,
    AlreadyExists,
)
"""Errors that are retried, since they may end by themselves; conflicts occur with other replicas that start."""


class Startup:
    """Retries the steps of a start. From the first retry on it answers probes at the address of the API.

    `done` ends that. `client` creates the client that fetches the serving certificate, if the listener needs TLS.
    """

    def __init__(self, settings: Settings, client: Callable[[], Client]) -> None:
        self._settings = settings
        self._client = client
        self._fault = ""
        self._listener = AsyncExitStack()
        self._taken = False
        """Whether the address is in use, by this listener or by the API."""

    async def done(self) -> None:
        """Close the listener, so that the API can use its address."""
        self._taken = True
        await self._listener.aclose()

    async def retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `attempt`, retrying it with backoff while it fails with a transient error."""
        logged, pause = False, FIRST_PAUSE
        while True:
            try:
                result = await attempt()
            except Misdirected:
                raise
            except _TRANSIENT as error:
                self._fault = str(error)
                if not logged:
                    log.error("cannot start yet, retrying: %s", error)
                    logged = True
                await self._listen()
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                if logged:
                    log.info("continuing the start")
                return result

    async def retry_request(self, request: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a request to the API server, like `retry`, with a timeout for each attempt."""

        async def bounded() -> T:
            try:
                async with asyncio.timeout(ANSWER):
                    return await request()
            except TimeoutError as error:
                raise Unreachable(f"the API server has not answered for {ANSWER:g} s: check the network") from error

        return await self.retry(bounded)

    async def _listen(self) -> None:
        """Open the listener for probes if possible: without the API server there may be no certificate yet."""
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
            log.debug("probes cannot be answered yet: %r", error)
        else:
            self._taken = True

    async def _tls(self) -> ReloadingContext:
        settings = self._settings
        if settings.api_certificate is not None and settings.api_key is not None:
            return ReloadingContext(settings.api_certificate, settings.api_key)
        async with self._client() as client:
            await OwnCertificates(settings, client).refresh()
        return ReloadingContext(settings.certificate_directory / "tls.crt", settings.certificate_directory / "tls.key")

    async def _alive(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _not_ready(self, request: web.Request) -> web.Response:
        """Answer a readiness probe with 503; only requests with the admin token get the reason, as after the start."""
        fault = self._fault if self._is_admin(request) else "reason withheld"
        text = f"[+]ping ok\n[-]start failed: {fault}\n{request.path.strip('/')} check failed\n"
        return web.Response(text=text, status=503, headers={"Retry-After": "1", "Cache-Control": "no-cache, private"})

    async def _refuse(self, request: web.Request) -> web.Response:
        """Answer any other request with a Status of reason ServiceUnavailable."""
        fault = self._fault if self._is_admin(request) else "an admin finds the reason in its log and at /readyz"
        raise errors.Starting(f"Sluice is starting, and not ready yet: {fault}")

    def _is_admin(self, request: web.Request) -> bool:
        if self._settings.admin_token is None:
            return False
        wanted = f"Bearer {self._settings.admin_token.get_secret_value()}"
        shown = request.headers.get("Authorization", "")
        return hmac.compare_digest(shown.encode(errors="surrogateescape"), wanted.encode())
