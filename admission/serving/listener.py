"""Listening sockets of an aiohttp application, with limits on connections, and a Status for malformed requests."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeAlias

import orjson
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.web_protocol import RequestHandler

from admission.apimachinery.errors import failure

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from admission.serving.connections import ClientConnection, Connections

Address: TypeAlias = tuple[str, int]
"""Host and port."""

_BACKLOG = 1024
_SWEEP_SECONDS = 1.0
"""Interval between two checks for connections that have exceeded a timeout."""
_TLS_SHUTDOWN_SECONDS = 5.0
_LINGERING_SECONDS = 10.0
"""Seconds that an unread request body is drained before the connection is closed, so that the client can read the
response (a connection that is closed with unread data is reset)."""
_PAUSE_SECONDS = 0.1
"""Pause after a failed accept(), such as when the process has no file descriptors left."""

_log = logging.getLogger(__name__)


def _is_own_fault(record: logging.LogRecord) -> bool:
    """Whether a log record of aiohttp is about anything but a client that sends no valid HTTP or disconnects."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | ConnectionError | web.RequestPayloadError)


protocol_log = logging.getLogger(f"{__name__}.http")
protocol_log.addFilter(_is_own_fault)  # otherwise any client could fill the log with tracebacks
"""Logger for servers of aiohttp."""


@asynccontextmanager
async def listening(
    app: web.Application,
    sockets: Sequence[socket.socket],
    *,
    connections: Connections,
    ssl_context: ssl.SSLContext | None = None,
    shutdown_seconds: float = 5.0,
) -> AsyncIterator[list[Address]]:
    """Serve `app` on `sockets` during the block, and yield their addresses; the sockets are closed at its end.

    Requests that are being handled at the end get `shutdown_seconds` to complete.
    """
    app.middlewares.insert(0, connections.middleware)
    runner = web.AppRunner(
        app,
        access_log=None,
        shutdown_timeout=shutdown_seconds,
        keepalive_timeout=2 * connections.limits.idle,  # never reached: `connections` closes idle ones earlier
        logger=protocol_log,
        auto_decompress=False,  # a small compressed body could expand to any size
        lingering_time=min(_LINGERING_SECONDS, connections.limits.body),
    )
    await runner.setup()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(runner.cleanup)
        assert runner.server is not None
        handlers = handler_factory(runner.server)
        tasks: list[asyncio.Task[None]] = []
        handshakes: set[asyncio.Task[None]] = set()
        stack.push_async_callback(_stop, tasks, handshakes, has_tls=ssl_context is not None)
        for each in sockets:
            stack.callback(each.close)
            tasks.append(asyncio.create_task(_accept(each, connections, handlers, ssl_context, handshakes)))
        tasks.append(asyncio.create_task(_sweep(connections)))
        yield [each.getsockname()[:2] for each in sockets]


async def open_sockets(host: str | None, port: int) -> list[socket.socket]:
    """Return a listening socket for each address of the host.

    `host` empty or None: all interfaces; port 0: a free port. Raises OSError.
    """
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            one = socket.socket(family, kind, protocol)
            sockets.append(one)
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind(address)
            one.listen(_BACKLOG)
    except OSError:
        for one in sockets:
            one.close()
        raise
    return sockets


async def _accept(
    listener: socket.socket,
    connections: Connections,
    handlers: Callable[[], asyncio.Protocol],
    ssl_context: ssl.SSLContext | None,
    handshakes: set[asyncio.Task[None]],
) -> None:
    """Accept connections until cancelled; `handshakes` has the task of each one until its handshake is complete."""
    loop = asyncio.get_running_loop()
    fails = False
    while True:
        try:
            sock, address = await loop.sock_accept(listener)
        except OSError as error:
            if not fails:
                _log.error("connections cannot be accepted for now: %s", error.strerror or error)
            fails = True
            await asyncio.sleep(_PAUSE_SECONDS)
            continue
        fails = False
        connection = connections.admit(handlers, sock, address[0])
        if connection is None:
            sock.close()
        else:
            task = asyncio.create_task(_connect(connection, connections, sock, ssl_context))
            handshakes.add(task)
            task.add_done_callback(handshakes.discard)
        # With connections in the backlog sock_accept() returns without suspending: let other tasks run.
        await asyncio.sleep(0)


async def _connect(
    connection: ClientConnection, connections: Connections, sock: socket.socket, ssl_context: ssl.SSLContext | None
) -> None:
    loop = asyncio.get_running_loop()
    try:
        if ssl_context is None:
            await loop.connect_accepted_socket(lambda: connection, sock)
        else:
            await loop.connect_accepted_socket(
                lambda: connection,
                sock,
                ssl=ssl_context,
                ssl_handshake_timeout=connections.limits.handshake,
                ssl_shutdown_timeout=_TLS_SHUTDOWN_SECONDS,
            )
    except OSError as error:  # including TLS errors and handshake timeouts: caused by the client
        _log.debug("a connection failed: %s", error)
        connections.forget(connection)
    except asyncio.CancelledError:
        connections.forget(connection)
        raise


async def _sweep(connections: Connections) -> None:
    while True:
        await asyncio.sleep(_SWEEP_SECONDS)
        connections.close_overdue()


async def _stop(tasks: Iterable[asyncio.Task[None]], handshakes: set[asyncio.Task[None]], *, has_tls: bool) -> None:
    """Accept no more connections, and end the handshakes that are not complete.

    Without TLS they complete by themselves in the next iterations. They are not cancelled: uvloop would close a
    transport that its protocol has already, without a call of `connection_lost`, and a response on it would raise
    RuntimeError.
    """
    for task in (*tasks, *(handshakes if has_tls else ())):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)  # no handshake begins any more
    await asyncio.gather(*handshakes, return_exceptions=True)


_MAX_LINE: Final = 8190
"""aiohttp's limit in bytes for the request line with the URL, and for one header."""


class ProtocolHandler(RequestHandler):
    """aiohttp's connection handler, with a Status as response to a request that cannot be parsed."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the response to a request that could not be parsed (`status` 400), or whose handler has failed."""
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return super().handle_error(request, status, exc, message)
        _log.debug("%s sent a malformed request: %r", request.remote, exc)
        too_long = f"the URL or a header is longer than {_MAX_LINE} bytes; shorten it"
        text = too_long if isinstance(exc, LineTooLong) else "the request is not a valid HTTP/1.1 request"
        body = orjson.dumps(failure(status, "BadRequest", text))
        response = web.Response(body=body, status=status, content_type="application/json")
        response.force_close()
        return response


def handler_factory(server: web.Server) -> Callable[[], ProtocolHandler]:
    """Return the factory of connection handlers, like the server's own, which has no option for the class."""
    return lambda: ProtocolHandler(server, loop=server._loop, **server._kwargs)
