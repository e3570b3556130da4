"""Connection pool and TLS context for HTTP clients (outgoing connections)."""

from __future__ import annotations

import asyncio
import ssl
import sys
from asyncio import sslproto
from functools import partial
from typing import TYPE_CHECKING

import aiohttp
from aiohttp.client_proto import ResponseHandler

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

if sys.version_info < (3, 11, 7):  # Debian 12 has 3.11.2
    _abort = sslproto._SSLProtocolTransport.abort

    def _abort_if_open(transport: sslproto._SSLProtocolTransport) -> None:
        """Ignore a connection that the peer has closed, as of Python 3.11.7; before, abort() raised AttributeError."""
        if transport._ssl_protocol is not None:
            _abort(transport)

    sslproto._SSLProtocolTransport.abort = _abort_if_open  # type: ignore[assignment]


def client_context(*, ca_file: str | Path | None = None, ca_data: str | None = None) -> ssl.SSLContext:
    """Return a TLS context that trusts these authorities (PEM), or those of the system if none are given.

    Python 3.13 requires certificate extensions (RFC 5280: key identifiers) that the authorities of many clusters and
    companies lack. Go's clients, libpq and browsers do not require them, and neither does this context. Raises OSError
    (of which ssl.SSLError is one).
    """
    context = ssl.create_default_context(cafile=ca_file, cadata=ca_data)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def client_connector(
    context: ssl.SSLContext | None = None,
    *,
    limit: int = 100,
    keepalive: float = 15.0,
    socket_factory: Callable[[Any], socket.socket] | None = None,
) -> aiohttp.TCPConnector:
    """Return a connection pool for an aiohttp session; connections do not outlive the session.

    `context`: of `client_context`; None: for plain HTTP, and for requests with contexts of their own. `limit`:
    concurrent connections (0: unlimited). `keepalive`: seconds that an idle connection is kept (0: each request has a
    new connection, after a new DNS lookup).
    `socket_factory`: creates the socket for an address, as in `aiohttp.TCPConnector`.
    """
    connector = aiohttp.TCPConnector(
        ssl=True if context is None else context,
        limit=limit,
        socket_factory=socket_factory,
        **({"keepalive_timeout": keepalive} if keepalive else {"force_close": True, "use_dns_cache": False}),
    )
    connector._factory = partial(_Handler, loop=asyncio.get_running_loop())  # type: ignore[assignment]
    return connector


class _Handler(ResponseHandler):
    """A connection that is closed at once, also by TLS.

    By itself a connection whose response was not read completely (a watch, a cancelled request), or that was idle for
    too long, is closed by a TLS shutdown that involves the peer. asyncio waits up to 30 s for it, and aiohttp does not
    wait: with an unresponsive peer the connection would outlive the session and the event loop.
    """

    def close(self) -> None:
        if self.transport is not None and self.transport.get_extra_info("sslcontext") is not None:
            self.abort()
        else:
            super().close()
