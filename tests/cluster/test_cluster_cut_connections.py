"""Closing of connections whose response was not read completely, to an unresponsive peer."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from scripted_server import issue

from admission.cluster.client import Client
from admission.cluster.credentials import load_kubeconfig
from admission.serving.outgoing import client_context

HEADER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


@contextmanager
def silent_server(authority, tmp_path, answer: bytes) -> Iterator[tuple[str, threading.Event]]:
    """Run a server that reads one request, sends `answer` and then neither reads nor writes.

    Yields its URL, and an event that is set when it has answered.
    """
    pem = tmp_path / "server.pem"
    certificate = issue("server", authority)
    pem.write_bytes(certificate.pem + certificate.key_pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pem)
    answered, over = threading.Event(), threading.Event()

    def serve(listener: socket.socket) -> None:
        listener.settimeout(10)
        raw, _ = listener.accept()
        with context.wrap_socket(raw, server_side=True) as connection:
            connection.recv(65536)
            connection.sendall(answer)
            answered.set()
            over.wait()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=[listener])
        thread.start()
        try:
            yield f"https://127.0.0.1:{listener.getsockname()[1]}", answered
        finally:
            over.set()
            thread.join()


async def leave_a_watch(client: Client, _: threading.Event) -> None:
    async with client.stream("/watch", params={}, idle_timeout=30) as pieces:
        await anext(pieces)


async def cancel_a_request(client: Client, arrived: threading.Event) -> None:
    request = asyncio.create_task(client.get("/slow"))
    await asyncio.to_thread(arrived.wait)
    request.cancel()
    with suppress(asyncio.CancelledError):
        await request


@pytest.mark.parametrize(
    ("answer", "use"), [(HEADER + b"3\r\n{}\n\r\n", leave_a_watch), (b"", cancel_a_request)], ids=["watch", "cancelled"]
)
def test_connection_to_unresponsive_server_is_closed_with_the_client(authority, tmp_path, kubeconfig, answer, use):
    async def session(url: str, answered: threading.Event) -> None:
        path = kubeconfig(url)
        async with Client(lambda: load_kubeconfig(str(path), None)) as client:
            await use(client, answered)

    with silent_server(authority, tmp_path, answer) as server, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ResourceWarning)
        asyncio.run(session(*server))
        gc.collect()
    assert [str(warning.message) for warning in told] == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists the timers of connections")
def test_silent_connection_is_probed_so_that_a_cut_is_noticed(authority, tmp_path, kubeconfig):
    async def session(url: str, _: threading.Event) -> list[str]:
        peer = f":{urlsplit(url).port:04X}"
        async with (
            Client(lambda: load_kubeconfig(str(kubeconfig(url)), None)) as client,
            client.stream("/log", params={}, idle_timeout=86400) as pieces,
        ):
            await anext(pieces)
            table = await asyncio.to_thread(Path("/proc/net/tcp").read_text, encoding="ascii")
            rows = map(str.split, table.splitlines())
            return [row[5] for row in rows if row[2].endswith(peer) and row[3] == "01"]

    with silent_server(authority, tmp_path, HEADER + b"3\r\nabc\r\n") as server:
        (timer,) = asyncio.run(session(*server))
    assert timer.startswith("02:")  # that of keepalive probes


class ConnectionEnd(asyncio.Protocol):
    """Sets the event `ended` when its connection is lost."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    def connection_lost(self, _: Exception | None) -> None:
        self.ended.set()


def test_closed_tls_transport_can_be_closed_again_and_aborted(authority, tmp_path):
    """aiohttp does so when a client is closed; asyncio before Python 3.11.7 (Debian 12) then raised an error."""

    async def session() -> None:
        context = client_context(ca_data=authority.pem.decode())
        loop = asyncio.get_running_loop()
        with silent_server(authority, tmp_path, b"") as (url, _):
            address = urlsplit(url)
            transport, told = await loop.create_connection(ConnectionEnd, address.hostname, address.port, ssl=context)
            transport.close()
            transport.close()
            transport.abort()
        await told.ended.wait()

    asyncio.run(session())
