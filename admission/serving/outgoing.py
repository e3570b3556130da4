"""Connection pool and TLS context for HTTP clients (outgoing connections)."""

from __future__ import annotations

import ssl
import sys
from asyncio import sslproto
from typing import TYPE_CHECKING, Final

import aiohttp

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

CLEANS_UP: Final = sys.version_info < (3, 12, 8) or sys.version_info[:3] == (3, 13, 0)
"""Whether aiohttp cleans up TLS connections that Python leaves open after their session. On other versions it warns if
it is asked to, and a connection to an unresponsive peer is closed up to 30 s after its session."""

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
    """Return a connection pool for an aiohttp session; closing the session closes its connections, see `CLEANS_UP`.

    A TLS connection whose response was not read completely (a watch, a cancelled request) is closed with a TLS shutdown
    that involves the peer: asyncio waits up to 30 s for it, but aiohttp does not wait, so with a slow peer the
    connection would outlive the event loop.

    `context`: of `client_context`; None: for plain HTTP, and for requests with contexts of their own. `limit`:
    concurrent connections (0: unlimited). `keepalive`: seconds that an idle connection is kept (0: each request has a
    new connection, after a new DNS lookup).
    `socket_factory`: creates the socket for an address, as in `aiohttp.TCPConnector`.
    """
    return aiohttp.TCPConnector(
        ssl=True if context is None else context,
        limit=limit,
        enable_cleanup_closed=CLEANS_UP,
        socket_factory=socket_factory,
        **({"keepalive_timeout": keepalive} if keepalive else {"force_close": True, "use_dns_cache": False}),
    )
