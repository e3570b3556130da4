"""Limits on a server's open connections, so that idle or slow clients cannot exhaust them (Slowloris attacks).

A connection is anonymous until a request on it has been authenticated. The number of anonymous connections is limited
for each client address, and each stage of a connection has a timeout: the TLS handshake, the header, the body, reading
the response. When a limit on the number is reached, the connection that has waited longest for its client is closed.
"""

from __future__ import annotations

import asyncio
import ipaddress
import resource
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from aiohttp import web

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Iterable

_MAX_TOTAL = 20_000
"""Upper bound of `ConnectionLimits.total` for a process, however many files it may open."""
_STALL = 5.0
"""Seconds between two checks for overdue connections from which the process counts as stalled in between."""
_IPV6_NETWORK_BITS = 64
"""Prefix length by which IPv6 clients are distinguished: one machine usually has a whole /64."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of connections; timeouts are in seconds."""

    total: int
    """Concurrent connections."""
    anonymous_per_address: int
    """Concurrent anonymous connections of one client address."""
    handshake: float = 10.0
    """Timeout of the TLS handshake."""
    header: float = 10.0
    """Timeout on anonymous connections, from accept or the last response to the complete header of the next request."""
    idle: float = 75.0
    """The same on authenticated connections. Longer than the keep-alive of proxies, which usually is 60 s."""
    body: float = 30.0
    """Timeout from the end of the header to the end of the body."""
    unread: float = 30.0
    """Timeout of a client that reads nothing of a response that is buffered for it."""

    @classmethod
    def for_this_process(cls) -> ConnectionLimits:
        """Return limits by RLIMIT_NOFILE: half of the files for connections, the rest for everything else."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        total = _MAX_TOTAL if files == resource.RLIM_INFINITY else max(16, min(_MAX_TOTAL, files // 2))
        return cls(total, anonymous_per_address=max(8, min(100, total // 4)))


class ClientConnection(asyncio.Protocol):
    """One accepted connection: a protocol that delegates to `inner`, and tracks whether it waits for its client."""

    def __init__(self, connections: Connections, inner: asyncio.Protocol, sock: socket.socket, address: str) -> None:
        self._connections = connections
        self.inner = inner
        self._sock = sock
        self._transport: asyncio.Transport | None = None
        self._request: web.Request | None = None
        self._since = connections.clock()
        """Start of the present stage, by the clock of `connections`."""
        self._unread = 0
        """Bytes of the response that the client had not read at the last check."""
        self._unread_since = 0.0
        """Since when `_unread` has not decreased."""
        self.address = address
        """Address of the client (IPv4), or of its network (IPv6)."""
        self.is_authenticated = False
        """Whether any request on it was authenticated."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._since = self._connections.clock()
        self.inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.forget(self)
        self.inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self.inner.eof_received()

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()

    def note_request(self, request: web.Request | None) -> None:
        """Note the request whose header is complete; None: it has been handled."""
        self._request, self._since = request, self._connections.clock()

    def trust(self) -> None:
        """Note that a request on this connection was authenticated."""
        if not self.is_authenticated:
            self._connections.trust(self)

    @property
    def waiting_since(self) -> float | None:
        """Since when the connection waits for data from its client; None: it does not."""
        if self._transport is not None and self._transport.get_write_buffer_size():
            return None
        return self._since if self._request is None or not self._request.content.is_eof() else None

    def is_overdue(self, now: float, limits: ConnectionLimits) -> bool:
        """Whether the client has exceeded a timeout."""
        if self._transport is not None and self._is_unread(self._transport, now, limits.unread):
            return True
        since = self.waiting_since
        if since is None:
            return False
        if self._transport is None:
            return now - since > limits.handshake
        if self._request is not None:
            return now - since > limits.body
        return now - since > (limits.idle if self.is_authenticated else limits.header)

    def abort(self) -> None:
        """Close the connection immediately, in any stage."""
        if self._transport is not None:
            self._transport.abort()
        else:
            with suppress(OSError):  # the socket is closed if the handshake has just failed
                self._sock.shutdown(2)

    def _is_unread(self, transport: asyncio.Transport, now: float, limit: float) -> bool:
        waiting, before = transport.get_write_buffer_size(), self._unread
        self._unread = waiting
        if waiting == 0 or before == 0 or waiting < before:
            self._unread_since = now
        if waiting and self._request is None:
            self._since = now  # idle time starts when the response has been sent, long after the handler has returned
        return now - self._unread_since > limit


class Connections:
    """All connections of one listener. `clock` returns seconds of a monotonic clock."""

    def __init__(self, limits: ConnectionLimits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.clock = clock
        self._open: dict[asyncio.Protocol, ClientConnection] = {}
        """Open connections by their inner protocol, which a request refers to."""
        self._anonymous: dict[str, dict[ClientConnection, None]] = {}
        """Anonymous connections by client address, in order of their start; the dict is an ordered set."""
        self._checked = clock()
        """Time of the last check for overdue connections."""

    def __len__(self) -> int:
        return len(self._open)

    def admit(
        self, inner: Callable[[], asyncio.Protocol], sock: socket.socket, address: str
    ) -> ClientConnection | None:
        """Return the protocol for an accepted socket; None: a limit is reached, and the socket has to be closed."""
        network = _network(address)
        anonymous = self._anonymous.get(network, {})
        if len(anonymous) >= self.limits.anonymous_per_address and not self._make_room(anonymous):
            return None
        if len(self._open) >= self.limits.total:
            all_anonymous = (each for of_address in self._anonymous.values() for each in of_address)
            if not self._make_room(all_anonymous) and not self._make_room(self._open.values()):
                return None
        connection = ClientConnection(self, inner(), sock, network)
        self._open[connection.inner] = connection
        self._anonymous.setdefault(network, {})[connection] = None
        return connection

    @web.middleware
    async def middleware(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Note the request on its connection. Has to be the outermost middleware of an application."""
        connection = self._open.get(request.protocol)
        if connection is None:  # it was closed to make room for another
            return await handler(request)
        request[CONNECTION] = connection
        connection.note_request(request)
        try:
            return await handler(request)
        finally:
            connection.note_request(None)

    def trust(self, connection: ClientConnection) -> None:
        """Stop counting the connection as anonymous."""
        connection.is_authenticated = True
        self._forget_anonymous(connection)

    def forget(self, connection: ClientConnection) -> None:
        """Remove a connection that is closed, or about to be."""
        self._open.pop(connection.inner, None)
        self._forget_anonymous(connection)

    def close_overdue(self) -> None:
        """Close the connections that have exceeded a timeout; has to be called about once a second.

        None is closed at the first call after a stall of the process (a busy machine, SIGSTOP): what clients have sent
        meanwhile is unread, and a client that has just reused an idle connection would lose its request.
        """
        now = self.clock()
        stalled = now - self._checked > _STALL
        self._checked = now
        if stalled:
            return
        for connection in [each for each in self._open.values() if each.is_overdue(now, self.limits)]:
            connection.abort()

    def _make_room(self, among: Iterable[ClientConnection]) -> bool:
        """Close the connection that has waited longest for its client; return False if none waits."""
        waiting = [each for each in among if each.waiting_since is not None]
        if not waiting:
            return False
        longest = min(waiting, key=lambda each: each.waiting_since or 0.0)
        self.forget(longest)
        longest.abort()
        return True

    def _forget_anonymous(self, connection: ClientConnection) -> None:
        anonymous = self._anonymous.get(connection.address)
        if anonymous is not None:
            anonymous.pop(connection, None)
            if not anonymous:
                del self._anonymous[connection.address]


CONNECTION = web.RequestKey("connection", ClientConnection)
"""Key of the request's connection; missing on a server without connection limits."""


def trust(request: web.Request) -> None:
    """Note that a request was authenticated, so that its connection is no longer anonymous."""
    if (connection := request.get(CONNECTION)) is not None:
        connection.trust()


def _network(address: str) -> str:
    """Return the key by which connections of an address are counted: the IPv4 address, or the IPv6 /64 network."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed), _IPV6_NETWORK_BITS), strict=False))
