"""Connections that are made to other servers."""

from __future__ import annotations

import sys
from asyncio import sslproto
from typing import TYPE_CHECKING

import aiohttp

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable
    from typing import Any

_LEAVES_CONNECTIONS = sys.version_info < (3, 12, 8)
"""Newer ones are spared the clean-up by aiohttp, which warns where it is asked for."""

if sys.version_info < (3, 11, 7):  # Debian 12 has 3.11.2
    _abort = sslproto._SSLProtocolTransport.abort

    def _abort_if_open(transport: sslproto._SSLProtocolTransport) -> None:
        """As newer ones do: that of a connection which the peer has closed raised AttributeError in the clean-up."""
        if transport._ssl_protocol is not None:
            _abort(transport)

    sslproto._SSLProtocolTransport.abort = _abort_if_open  # type: ignore[assignment]


def client_connector(
    context: ssl.SSLContext | None = None,
    *,
    limit: int = 100,
    keepalive: float = 15.0,
    socket_factory: Callable[[Any], socket.socket] | None = None,
) -> aiohttp.TCPConnector:
    """The connection pool of a client session, with no connection left open when the session is closed.

    A TLS connection with an answer that was not read to its end (a watch, a cancelled request) is closed by asking
    the peer, for which asyncio waits up to 30 s and aiohttp not at all: a slow peer would make it outlive the event
    loop.

    `context` None stands for the system's certificate authorities; `limit` is the number of connections at once (0: any
    number), `keepalive` the seconds for which an unused one is kept (0: each request has one of its own, to an address
    that is looked up for it), `socket_factory` makes the socket for an address, as `aiohttp.TCPConnector` has it.
    """
    return aiohttp.TCPConnector(
        ssl=True if context is None else context,
        limit=limit,
        enable_cleanup_closed=_LEAVES_CONNECTIONS,
        socket_factory=socket_factory,
        **({"keepalive_timeout": keepalive} if keepalive else {"force_close": True, "use_dns_cache": False}),
    )
