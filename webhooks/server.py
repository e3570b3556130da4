"""The HTTPS server in front of the reviews; what is not an AdmissionReview gets an HTTP error, never a traceback."""

from __future__ import annotations

import logging
import time
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import orjson
from aiohttp import web

from admission.serving.connections import ConnectionLimits, Connections, trust
from admission.serving.listener import listening
from webhooks.errors import MalformedReview
from webhooks.times import ReviewTimes

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from socket import socket
    from ssl import SSLContext

    from aiohttp.typedefs import Handler, Middleware

    from admission.serving.tracing import Tracing
    from webhooks.review import Reviewer


class SelfReport(Protocol):
    """What a gate tells of itself to whoever asks at its address."""

    def shows(self, pem: bytes) -> None:
        """To be told now and then which certificate is shown."""

    def fault(self) -> str | None:
        """Why no API server can use it; None: it can."""

    def metrics(self, document: dict[str, Any]) -> bytes:
        """Its numbers in Prometheus' text format; `document` is what `ReviewTimes.document` gives."""


logger = logging.getLogger(__name__)

MAX_BODY = 8 * 2**20
"""Bytes. A review holds the object twice, and the API server takes objects of up to 3 MiB."""

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_SHUTDOWN_SECONDS: Final = 2.0


def create_app(
    reviewer: Reviewer,
    times: ReviewTimes | None = None,
    *,
    report: SelfReport | None = None,
    tracing: Tracing | None = None,
) -> web.Application:
    """POST /mutate takes an AdmissionReview and answers with one; GET /livez is for probes.

    POST /managed is for the namespaces in which what has no queue label is queued, too. `report` answers GET /metrics
    and GET /readyz; without it there are no such paths. `tracing`: where spans of reviews go.
    """
    times = times or ReviewTimes()
    app = web.Application(client_max_size=MAX_BODY)
    app.router.add_post("/mutate", _handler(reviewer.review, times, tracing))
    app.router.add_post("/managed", _handler(partial(reviewer.review, managed=True), times, tracing))
    app.router.add_get("/livez", _alive)
    if report is not None:
        app.router.add_get("/metrics", _metrics(times, report))
        app.router.add_get("/readyz", _readiness(report))
    return app


@asynccontextmanager
async def answering(
    reviewer: Reviewer,
    sockets: Sequence[socket],
    *,
    ssl_context: SSLContext,
    times: ReviewTimes | None = None,
    report: SelfReport | None = None,
    limits: ConnectionLimits | None = None,
    ending: asyncio.Event | None = None,
    tracing: Tracing | None = None,
) -> AsyncIterator[None]:
    """Serve `create_app` on listening sockets for the time of the block; `limits` are those of this process.

    Once `ending` is set, each answer closes its connection, so that its client makes the next one elsewhere.
    """
    connections = Connections(limits or webhook_limits())
    app = create_app(reviewer, times, report=report, tracing=tracing)
    if ending is not None:
        app.middlewares.append(_closing(ending))
    async with listening(
        app,
        sockets,
        connections=connections,
        ssl_context=ssl_context,
        shutdown_seconds=_SHUTDOWN_SECONDS,
    ):
        yield


def webhook_limits() -> ConnectionLimits:
    """Time for the API server's requests, and half of what the process can serve for one address.

    A client is known once it has sent a review: the API server keeps such connections for its next ones.
    """
    usual = ConnectionLimits.for_this_process()
    return ConnectionLimits(
        usual.total,
        # All of the API server's connections may seem to come from one address, that of a node.
        anonymous_per_address=max(8, usual.total // 2),
        handshake=5.0,
        header=5.0,
        # Go's client closes what was idle for 90 s; to close it first would cost a handshake each minute.
        idle=100.0,
        body=5.0,
        unread=5.0,
    )


def _closing(ending: asyncio.Event) -> Middleware:
    @web.middleware
    async def close(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        if ending.is_set():
            response.force_close()
        return response

    return close


async def _alive(_: web.Request) -> web.Response:
    return web.Response(text="ok")


def _metrics(times: ReviewTimes, report: SelfReport) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(_: web.Request) -> web.Response:
        return web.Response(body=report.metrics(times.document()), headers={"Content-Type": METRICS_TYPE})

    return handle


def _readiness(report: SelfReport) -> Callable[[web.Request], Awaitable[web.Response]]:
    """In the format of the API server's; who asks is told why, as it is nothing that its certificate does not say."""

    async def handle(_: web.Request) -> web.Response:
        fault = report.fault()
        if fault is None:
            return web.Response(text="ok")
        text = f"[+]ping ok\n[-]certificate failed: {fault}\nreadyz check failed\n"
        return web.Response(text=text, status=503, headers={"Cache-Control": "no-cache, private"})

    return handle


def _handler(
    review: Callable[[Any], Any], times: ReviewTimes, tracing: Tracing | None
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        body = await request.read()
        began, began_at = time.perf_counter(), time.time()
        outcome = "malformed"
        try:
            answer = review(orjson.loads(body))
            outcome = "allowed" if answer["response"]["allowed"] else "denied"
        except orjson.JSONDecodeError as error:
            return _refuse(f"the body is no JSON: {error}")
        except MalformedReview as error:
            return _refuse(str(error))
        finally:
            seconds, exemplar = time.perf_counter() - began, None
            if tracing is not None:
                attributes = {"sluice.outcome": outcome}
                exemplar = tracing.remote_child(
                    "webhook review", began_at, began_at + seconds, attributes, headers=request.headers
                )
            times.observe(outcome, seconds, exemplar)
        trust(request)
        return web.Response(body=orjson.dumps(answer), content_type="application/json")

    return handle


def _refuse(message: str) -> web.Response:
    logger.warning("a request was refused: %s", message)
    return web.Response(status=400, text=f"{message}\n")
