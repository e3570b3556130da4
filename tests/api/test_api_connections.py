"""Limits on idle, slow and excess connections, on real sockets, and that other clients are still served."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from aiohttp import web
from pki import Authority

from admission.serving.connections import ConnectionLimits, Connections, trust
from admission.serving.listener import listening, open_sockets
from admission.serving.runtime import new_loop
from admission.serving.tls import ReloadingContext

PATIENT = ConnectionLimits(total=100, anonymous_per_address=100, handshake=60, header=60, idle=60, body=60, unread=60)
"""Limits too high to be reached by a test that does not lower them."""
LARGE = 64 * 2**20
"""Size of a response in bytes, larger than the buffers of both ends of a socket."""


async def _open(_: web.Request) -> web.Response:
    return web.Response(text="hello")


async def _known(request: web.Request) -> web.Response:
    trust(request)
    return web.Response(text="hello")


async def _body(request: web.Request) -> web.Response:
    return web.Response(text=str(len(await request.read())))


async def _large(_: web.Request) -> web.Response:
    return web.Response(body=bytes(LARGE))


async def _defect(_: web.Request) -> web.Response:
    return web.Response(text=str(1 / 0))


class Server:
    """The server of a test, and the connections to it."""

    def __init__(self, port: int, connections: Connections, stack: AsyncExitStack) -> None:
        self.port = port
        self.connections = connections
        self._stack = stack
        self._writers: list[asyncio.StreamWriter] = []  # a writer that is garbage collected closes its connection

    async def connect(self, sent: bytes = b"", **options: object) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection, which is closed at the end of the test, and send the bytes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, **options)
        self._stack.callback(writer.transport.abort)
        self._writers.append(writer)
        writer.write(sent)
        return reader, writer

    async def silent(self, count: int) -> list[asyncio.StreamReader]:
        """Open connections that send nothing, and return their readers after the server has accepted them."""
        readers = []
        for _ in range(count):
            before = len(self.connections)
            readers.append((await self.connect())[0])
            await until(lambda before=before: len(self.connections) > before)
        return readers


async def until(holds: Callable[[], bool]) -> None:
    """Wait until a condition on the state of the server holds."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  clients see less than the server knows
            await asyncio.sleep(0.01)


@asynccontextmanager
async def served(
    limits: ConnectionLimits, *, clock: Callable[[], float] = time.monotonic, **options: ssl.SSLContext
) -> AsyncIterator[Server]:
    app = web.Application()
    app.router.add_get("/", _open)
    app.router.add_get("/known", _known)
    app.router.add_post("/body", _body)
    app.router.add_get("/large", _large)
    app.router.add_get("/defect", _defect)
    connections = Connections(limits, clock=clock)
    async with AsyncExitStack() as stack:
        sockets = await open_sockets("127.0.0.1", 0)
        serving = listening(app, sockets, connections=connections, shutdown_seconds=0.1, **options)
        ((_, port),) = await stack.enter_async_context(serving)
        yield Server(port, connections, stack)


def get(path: str = "/") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode()


async def end(reader: asyncio.StreamReader) -> bytes:
    """Bytes that are received until the server closes the connection."""
    async with asyncio.timeout(60):
        try:
            return await reader.read()
        except ConnectionError:
            return b""


async def status(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(60):
        line = await reader.readline()
        await reader.readuntil(b"hello")
        return line.strip()


def limits(**changed: float) -> ConnectionLimits:
    values = {name: getattr(PATIENT, name) for name in PATIENT.__slots__}
    return ConnectionLimits(**{**values, **changed})


async def test_oldest_idle_anonymous_connection_is_closed_for_a_new_client():
    async with served(limits(anonymous_per_address=3)) as server:
        oldest, *others = await server.silent(3)
        reader, _ = await server.connect(get())
        assert await status(reader) == b"HTTP/1.1 200 OK"
        assert await end(oldest) == b""
        assert not any(each.at_eof() for each in others)


async def test_authenticated_connections_do_not_count_towards_the_anonymous_limit():
    async with served(limits(anonymous_per_address=2)) as server:
        known = [await server.connect(get("/known")) for _ in range(4)]
        for reader, _ in known:
            assert await status(reader) == b"HTTP/1.1 200 OK"
        oldest, _ = await server.silent(2)
        await server.connect()
        assert await end(oldest) == b""
        for reader, writer in known:
            writer.write(get())
            assert await status(reader) == b"HTTP/1.1 200 OK"


async def test_idle_connection_is_closed_at_the_total_connection_limit():
    async with served(limits(total=3)) as server:
        reader, _ = await server.connect(get("/known"))
        assert await status(reader) == b"HTTP/1.1 200 OK"
        first, second = await server.silent(2)
        for _ in range(5):
            asking, _ = await server.connect(get("/known"))
            assert await status(asking) == b"HTTP/1.1 200 OK"
        assert (await end(first), await end(second), await end(reader)) == (b"", b"", b"")
        assert len(server.connections) == 3


async def test_new_connection_is_closed_when_all_connections_are_busy():
    async with served(limits(total=2)) as server:
        for _ in range(2):
            reader, _ = await server.connect(get("/large"))
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        reader, _ = await server.connect(get())
        assert await end(reader) == b""


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: a\r\n"])
async def test_connection_is_closed_when_the_request_header_times_out(sent):
    async with served(limits(header=0.1)) as server:
        reader, _ = await server.connect(sent)
        assert await end(reader) == b""


async def test_slowly_sent_request_header_does_not_extend_the_header_timeout():
    async with served(limits(header=0.5)) as server:
        reader, writer = await server.connect(b"GET / HTTP/1.1\r\n")

        async def drip() -> None:
            while not reader.at_eof() and not writer.transport.is_closing():
                writer.write(b"X-A: b\r\n")
                await asyncio.sleep(0.05)

        _, received = await asyncio.gather(drip(), end(reader))
        assert received == b""


async def test_idle_timeout_is_longer_for_authenticated_than_for_anonymous_connections():
    async with served(limits(header=0.1, idle=3)) as server:
        known, writer = await server.connect(get("/known"))
        assert await status(known) == b"HTTP/1.1 200 OK"
        stranger, _ = await server.connect()
        assert await end(stranger) == b""
        writer.write(get())
        assert await status(known) == b"HTTP/1.1 200 OK"
        assert await end(known) == b""


async def test_request_sent_during_a_stall_of_the_process_is_answered_on_an_idle_connection(clock):
    async with served(PATIENT, clock=clock) as server:
        reader, writer = await server.connect(get("/known"))
        assert await status(reader) == b"HTTP/1.1 200 OK"
        clock.advance(10 * PATIENT.idle)
        writer.write(get())
        server.connections.close_overdue()  # before the request is read
        assert await status(reader) == b"HTTP/1.1 200 OK"
        for _ in range(30):
            clock.advance(PATIENT.idle / 20)
            server.connections.close_overdue()
        assert await end(reader) == b""


@pytest.mark.parametrize(
    "sent",
    [
        b"POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc",
        b"POST /body HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"POST /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc",
    ],
)
async def test_connection_is_closed_when_the_request_body_times_out(sent):
    async with served(limits(body=0.1)) as server:
        reader, _ = await server.connect(sent)
        assert b"200 OK" not in await end(reader)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"POST /body HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\nzz\r\n\r\n",
        b"POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 5\r\n\r\nab",
        b"POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc",
        b"\x16\x03\x01 a TLS handshake without TLS \r\n\r\n",
    ],
)
async def test_malformed_or_incomplete_http_requests_are_not_logged(sent, caplog):
    async with served(limits(body=0.1)) as server:
        reader, writer = await server.connect(sent)
        writer.write_eof()
        await end(reader)
        await until(lambda: not len(server.connections))
    assert caplog.text == ""


async def test_exception_in_a_handler_is_logged_and_answered_with_500(caplog):
    async with served(PATIENT) as server:
        reader, _ = await server.connect(get("/defect"))
        assert b"500" in await reader.readline()
    assert "ZeroDivisionError" in caplog.text


async def test_connection_is_closed_when_the_client_does_not_read_the_response():
    async with served(limits(unread=0.1)) as server:
        reader, _ = await server.connect(get("/large"))
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        await until(lambda: not len(server.connections))
        assert len(await end(reader)) < LARGE


async def test_missing_tls_handshake_closes_the_connection_and_blocks_no_other_client(tmp_path):
    authority = Authority(tmp_path, "serving-ca")
    pair = authority.server("localhost")
    server_context = ReloadingContext(pair.certificate, pair.key)
    client_context = ssl.create_default_context(cafile=str(authority.file))
    async with served(limits(handshake=1, anonymous_per_address=2), ssl_context=server_context) as server:
        oldest, other = await server.silent(2)
        reader, _ = await server.connect(get(), ssl=client_context, server_hostname="localhost")
        assert await status(reader) == b"HTTP/1.1 200 OK"
        assert await end(oldest) == b""
        assert await end(other) == b""


def test_an_ipv6_network_counts_as_one_address():
    connections = Connections(limits(anonymous_per_address=1))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for address in ("2001:db8::1", "::ffff:192.0.2.1", "2001:db8::2:3", "192.0.2.1", "2001:db8:0:1::1"):
            assert connections.admit(asyncio.Protocol, ours, address) is not None
    assert len(connections) == 3


def test_connection_limit_is_half_of_the_open_file_limit():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        found = ConnectionLimits.for_this_process()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (found.total, found.anonymous_per_address) == (128, 32)


# A connection that is accepted while the accepting task is being cancelled is closed by its destructor only.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("iterations", range(2, 30))
def test_requests_that_arrive_while_a_server_stops_leave_no_traceback(iterations: int, caplog):
    """Accepting a connection must not be cancelled once it has a transport, as uvloop closes the transport silently."""

    async def serve() -> None:
        app = web.Application()
        app.router.add_get("/", _open)
        (listening_socket,) = await open_sockets("127.0.0.1", 0)
        clients = [socket.create_connection(listening_socket.getsockname()) for _ in range(20)]
        for client in clients:
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        async with listening(app, [listening_socket], connections=Connections(PATIENT)):
            for _ in range(iterations):
                await asyncio.sleep(0)
        for client in clients:
            client.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(serve())
    assert "Traceback" not in caplog.text
