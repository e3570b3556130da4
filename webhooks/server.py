"""The HTTPS server in front of the reviews; what is not an AdmissionReview gets an HTTP error, never a traceback."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Self

import orjson
from aiohttp import web

from webhooks.errors import MalformedReview

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from ssl import SSLContext
    from types import TracebackType

    from webhooks.review import Reviewer

logger = logging.getLogger(__name__)

MAX_BODY = 8 * 2**20
"""Bytes. A review holds the object twice, and the API server takes objects of up to 3 MiB."""


def create_app(reviewer: Reviewer) -> web.Application:
    """POST /mutate and /validate take an AdmissionReview and answer with one."""
    app = web.Application(client_max_size=MAX_BODY)
    app.router.add_post("/mutate", _handler(reviewer.mutate))
    app.router.add_post("/validate", _handler(reviewer.validate))
    return app


class WebhookServer:
    """`create_app` on a TLS socket. Used as `async with WebhookServer(...) as server`."""

    def __init__(self, reviewer: Reviewer, *, ssl_context: SSLContext, host: str, port: int) -> None:
        self._runner = web.AppRunner(
            create_app(reviewer),
            # Logging each request would cost more than answering it.
            access_log=None,
            # The API server keeps its connections open; closing them first would cost it a handshake each minute.
            keepalive_timeout=60,
            handle_signals=False,
        )
        self._address = host, port
        self._ssl_context = ssl_context

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        host, port = self._address
        try:
            await web.TCPSite(self._runner, host, port, ssl_context=self._ssl_context).start()
        except OSError:
            await self._runner.cleanup()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    @property
    def port(self) -> int:
        """The port that is listened on, also where 0 was asked for."""
        port: int = self._runner.addresses[0][1]
        return port


def _handler(review: Callable[[Any], Any]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        body = await request.read()
        try:
            answer = review(orjson.loads(body))
        except orjson.JSONDecodeError as error:
            return _refuse(f"the body is no JSON: {error}")
        except MalformedReview as error:
            return _refuse(str(error))
        return web.Response(body=orjson.dumps(answer), content_type="application/json")

    return handle


def _refuse(message: str) -> web.Response:
    logger.warning("a request was refused: %s", message)
    return web.Response(status=400, text=f"{message}\n")
