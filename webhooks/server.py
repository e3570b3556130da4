"""HTTPS server of the webhook. A request that is not an AdmissionReview gets status 400, never a traceback."""

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
    """Source of /metrics and /readyz of a gate that runs separately (`webhooks.exposition.Report`)."""

    def update_certificate(self, pem: bytes) -> None:
        """Set the certificate that is served now; to be called periodically."""

    def fault(self) -> str | None:
        """Return why no API server can call this gate, or None if it can."""

    def metrics(self, document: dict[str, Any]) -> bytes:
        """Return all metrics in Prometheus' text format; `document` is the result of `ReviewTimes.document`."""


logger = logging.getLogger(__name__)

MAX_BODY = 8 * 2**20
"""Largest request body, in bytes: a review has the object twice, and the API server accepts objects up to 3 MiB."""

SELF_CHECK: Final = "CONNECT"
"""Operation of the reviews by which `serve` checks that the webhooks can be reached. No webhook has a rule for it, so
that API servers do not send it; such a review is the cheapest there is, and is not counted in the metrics."""

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_SHUTDOWN_SECONDS: Final = 2.0
"""Seconds that requests in progress may take at a shutdown."""


def create_app(
    reviewer: Reviewer,
    times: ReviewTimes | None = None,
    *,
    report: SelfReport | None = None,
    tracing: Tracing | None = None,
) -> web.Application:
    """Return the application: POST /mutate and /managed review an AdmissionReview, GET /livez is for probes.

    /managed is called for managed namespaces, in which objects without a queue label are queued, too. `report` serves
    GET /metrics and GET /readyz; without it these paths do not exist. `tracing` records a span for each review.
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
    ending: asyncio.Event | None = None,
    tracing: Tracing | None = None,
) -> AsyncIterator[None]:
    """Serve `create_app` on listening sockets for the duration of the block.

    Once `ending` is set, each response closes its connection, so that the client connects to another replica.
    """
    connections = Connections(webhook_limits())
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
    """Return connection limits for the API server as client: short timeouts, half of the connections for one address.

    A client is trusted once it has sent a review: the API server reuses such connections for its next reviews.
    """
    default = ConnectionLimits.for_this_process()
    return ConnectionLimits(
        default.total,
        # All connections of the API server may come from one address, that of a node.
        anonymous_per_address=max(8, default.total // 2),
        handshake=5.0,
        header=5.0,
        # Go's client closes connections that were idle for 90 s; closing them earlier would cost a handshake a minute.
        idle=100.0,
        body=5.0,
        unread=5.0,
    )


def _closing(ending: asyncio.Event) -> Middleware:
    """Return the middleware that closes connections after their next response, once `ending` is set."""

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
    """Return the handler of /readyz, with responses in the API server's format.

    The reason is given to every client: it contains nothing that the served certificate does not show anyway.
    """

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
        is_check = False
        try:
            asked = orjson.loads(body)
            answer = review(asked)
            is_check = asked["request"].get("operation") == SELF_CHECK
            outcome = "allowed" if answer["response"]["allowed"] else "denied"
        except orjson.JSONDecodeError as error:
            return _refuse(f"the body is not valid JSON: {error}")
        except MalformedReview as error:
            return _refuse(str(error))
        finally:
            seconds, exemplar = time.perf_counter() - began, None
            if tracing is not None:
                attributes = {"sluice.outcome": outcome}
                exemplar = tracing.remote_child(
                    "webhook review", began_at, began_at + seconds, attributes, headers=request.headers
                )
            if not is_check:
                times.observe(outcome, seconds, exemplar)
        trust(request)
        return web.Response(body=orjson.dumps(answer), content_type="application/json")

    return handle


def _refuse(message: str) -> web.Response:
    logger.warning("a request was refused: %s", message)
    return web.Response(status=400, text=f"{message}\n")
