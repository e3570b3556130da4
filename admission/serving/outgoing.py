"""Connection pool and TLS context for HTTP clients (outgoing connections)."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from asyncio import sslproto
from functools import partial
from typing import TYPE_CHECKING, Final

import aiohttp
from aiohttp.client_proto import ResponseHandler

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

_PROBES: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""A connection is lost when nothing arrived for 30 s, and three probes at intervals of 10 s have no answer."""

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
    """A connection that is probed while nothing arrives, and closed at once, also by TLS.

    A peer that is cut off closes nothing, and what forwards connections may forget one that is idle for minutes: a log
    that is followed would never end.

    By itself a connection whose response was not read completely (a watch, a cancelled request), or that was idle for
    too long, is closed by a TLS shutdown that involves the peer. asyncio waits up to 30 s for it, and aiohttp does not
    wait: with an unresponsive peer the connection would outlive the session and the event loop.
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _PROBES.items():
                if (option := getattr(socket, name, None)) is not None:  # not on all platforms
                    connection.setsockopt(socket.IPPROTO_TCP, option, value)

    def close(self) -> None:
        if self.transport is not None and self.transport.get_extra_info("sslcontext") is not None:
            self.abort()
        else:
            super().close()
