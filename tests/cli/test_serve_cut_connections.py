"""TLS connections that clients cut at any point cause no errors in the log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from ports import free_port
from serve_processes import TOKEN, serving

from admission.sandbox.sandbox import Sandbox
from admission.serving.runtime import new_loop

REQUEST = (
    f"GET /openapi/v3/apis/sluice.dev/v1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
)
WATCH = REQUEST.replace(b"/openapi/v3/apis/sluice.dev/v1", b"/apis/sluice.dev/v1/cohorts?watch=1")


def _cut(port: int, talk: Callable[[ssl.SSLSocket], None] | bytes) -> None:
    """Connect, run `talk` over TLS or send it as plain bytes, and reset the connection."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port)) as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if isinstance(talk, bytes):
            plain.sendall(talk)
            return
        with contextlib.suppress(OSError), context.wrap_socket(plain) as secret:
            talk(secret)


def _garbage(connection: ssl.SSLSocket) -> None:
    connection.sendall(REQUEST)
    with socket.socket(fileno=connection.detach()) as plain:
        plain.sendall(b"no record of TLS")


WAYS: list[Callable[[ssl.SSLSocket], None] | bytes] = [
    b"",
    b"\x16\x03\x01\x02\x00\x01",  # the beginning of a ClientHello
    b"GET / HTTP/1.1\r\n\r\n",
    lambda connection: None,
    lambda connection: connection.sendall(REQUEST),
    lambda connection: connection.sendall(REQUEST * 20),
    lambda connection: (connection.sendall(REQUEST * 20), connection.recv(10)),
    lambda connection: (connection.sendall(WATCH), connection.recv(10)),
    _garbage,
]


@pytest.mark.long
async def test_cut_tls_connections_log_no_error_or_traceback(tmp_path: Path) -> None:
    port = free_port()
    async with Sandbox() as sandbox:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        arguments = (f"--api-address=0.0.0.0:{port}", f"--certificate-directory={tmp_path / 'certificates'}")
        async with serving(tmp_path, f"sqlite:///{tmp_path / 'sluice.db'}", *arguments) as replica:
            while b"API at https" not in replica.log:
                assert replica.process.returncode is None, replica.log.decode()
                await asyncio.sleep(0.02)
            for way in WAYS * 5:
                await asyncio.to_thread(_cut, port, way)
        assert replica.process.returncode == 0
    log = replica.log.decode()
    assert "Traceback" not in log
    assert "ERROR" not in log


@pytest.fixture
def loop_and_error():
    """An event loop, and the exception of its transport when it is used after it was closed."""
    loop = new_loop()

    async def closed() -> RuntimeError:
        async with await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0) as server:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.transport.abort()
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError) as caught:
                writer.transport.set_write_buffer_limits()
            return caught.value

    yield loop, loop.run_until_complete(closed())
    loop.close()


def test_uvloop_error_on_a_closed_ssl_transport_is_logged_at_debug(loop_and_error, caplog):
    loop, error = loop_and_error
    caplog.set_level(logging.DEBUG)
    loop.call_exception_handler({"message": "Fatal error on SSL protocol", "exception": error})
    assert [(record.levelname, record.exc_info) for record in caplog.records] == [("DEBUG", None)]


@pytest.mark.parametrize("message", ["Fatal error on SSL protocol", "something else"])
def test_other_exceptions_of_the_loop_are_logged_as_errors(loop_and_error, caplog, message):
    loop, error = loop_and_error
    loop.call_exception_handler(
        {"message": message, "exception": error if message == "something else" else RuntimeError("a defect")}
    )
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_unretrieved_name_lookup_failure_is_logged_at_debug(loop_and_error, caplog):
    """uvloop's `create_connection` leaves its lookup behind when it is cancelled, as at the end of `serve`."""
    loop, _ = loop_and_error
    caplog.set_level(logging.DEBUG)
    error = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    loop.call_exception_handler({"message": "Future exception was never retrieved", "exception": error})
    assert [(record.levelname, record.exc_info) for record in caplog.records] == [("DEBUG", None)]
