"""Bounds on a server's open connections, so that silent or slow clients cannot use up what others need.

A connection is anonymous ("stranger") until a request on it has been authenticated. Anonymous connections are few for
each address, and each stage of a connection has a time limit: the TLS handshake, the header, the body, reading the
answer. Where a limit on numbers is reached, the connection that has waited for its client for longest is closed.
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

_LARGEST_TOTAL = 20_000
_IPV6_NETWORK_BITS = 64
"""Prefix length by which IPv6 clients are told apart: one machine usually has a whole /64."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of connections; times are in seconds."""

    total: int
    """Connections at once."""
    strangers_per_address: int
    """Concurrent anonymous connections of one client address."""
    handshake: float = 10.0
    """For the TLS handshake."""
    header: float = 10.0
    """For the header of a stranger's request, from when the connection was accepted or the last answer was given."""
    idle: float = 75.0
    """The same for authenticated connections. Longer than the keep-alive of proxies (usually 60 s)."""
    body: float = 30.0
    """From the end of the header to the end of the body."""
    unread: float = 30.0
    """Without the client reading anything of the answer that waits for it."""

    @classmethod
    def for_this_process(cls) -> ConnectionLimits:
        """By the number of files that the process may open: half of them, the rest is for what else it does."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        total = _LARGEST_TOTAL if files == resource.RLIM_INFINITY else max(16, min(_LARGEST_TOTAL, files // 2))
        return cls(total, strangers_per_address=max(8, min(100, total // 4)))


class Connection(asyncio.Protocol):
    """One accepted connection: passes everything on to `inner`, and knows what is waited for."""

    def __init__(self, connections: Connections, inner: asyncio.Protocol, sock: socket.socket, address: str) -> None:
        self._connections = connections
        self.inner = inner
        self._sock = sock
        self._transport: asyncio.Transport | None = None
        self._request: web.Request | None = None
        self._since = connections.clock()
        """Since when the current stage lasts."""
        self._unread = 0
        """Bytes of the answer that the client has not read yet."""
        self._unread_since = 0.0
        """Since when `_unread` has not decreased."""
        self.address = address
        """The client's, or its network's."""
        self.is_known = False
        """Whether a request on it was authenticated."""

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

    def serves(self, request: web.Request | None) -> None:
        """Note that the header of a request is complete; None: that it has been answered."""
        self._request, self._since = request, self._connections.clock()

    def trust(self) -> None:
        """Note that a request on it was authenticated."""
        if not self.is_known:
            self._connections.trust(self)

    @property
    def waits_since(self) -> float | None:
        """Since when it waits for its client to send something; None: it does not."""
        if self._transport is not None and self._transport.get_write_buffer_size():
            return None
        return self._since if self._request is None or not self._request.content.is_eof() else None

    def is_overdue(self, now: float, limits: ConnectionLimits) -> bool:
        """Whether the client has taken longer than it may."""
        if self._transport is not None and self._is_unread(self._transport, now, limits.unread):
            return True
        since = self.waits_since
        if since is None:
            return False
        if self._transport is None:
            return now - since > limits.handshake
        if self._request is not None:
            return now - since > limits.body
        return now - since > (limits.idle if self.is_known else limits.header)

    def abort(self) -> None:
        """Close it at once, in whatever stage it is."""
        if self._transport is not None:
            self._transport.abort()
        else:
            with suppress(OSError):  # the handshake has failed just now
                self._sock.shutdown(2)

    def _is_unread(self, transport: asyncio.Transport, now: float, limit: float) -> bool:
        waiting, before = transport.get_write_buffer_size(), self._unread
        self._unread = waiting
        if waiting == 0 or before == 0 or waiting < before:
            self._unread_since = now
        if waiting and self._request is None:
            self._since = now  # the handler is done long before its answer has been sent
        return now - self._unread_since > limit


class Connections:
    """All connections of one listener. `clock` gives seconds that never go back."""

    def __init__(self, limits: ConnectionLimits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.clock = clock
        self._open: dict[asyncio.Protocol, Connection] = {}
        """By the protocol that it passes everything on to."""
        self._strangers: dict[str, dict[Connection, None]] = {}
        """By address; the oldest first."""

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, inner: Callable[[], asyncio.Protocol], sock: socket.socket, address: str) -> Connection | None:
        """A protocol for an accepted socket; None: there is no room, and it has to be closed."""
        network = _network(address)
        strangers = self._strangers.get(network, {})
        if len(strangers) >= self.limits.strangers_per_address and not self._make_room(strangers):
            return None
        if len(self._open) >= self.limits.total:
            every_stranger = (stranger for of_one in self._strangers.values() for stranger in of_one)
            if not self._make_room(every_stranger) and not self._make_room(self._open.values()):
                return None
        connection = Connection(self, inner(), sock, network)
        self._open[connection.inner] = connection
        self._strangers.setdefault(network, {})[connection] = None
        return connection

    @web.middleware
    async def middleware(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Note which connection is busy with which request; the outermost of an application's middlewares."""
        connection = self._open.get(request.protocol)
        if connection is None:  # closed meanwhile, to make room
            return await handler(request)
        request[CONNECTION] = connection
        connection.serves(request)
        try:
            return await handler(request)
        finally:
            connection.serves(None)

    def trust(self, connection: Connection) -> None:
        """Count the connection among those of strangers no more."""
        connection.is_known = True
        self._forget_stranger(connection)

    def forget(self, connection: Connection) -> None:
        """The connection is closed, or about to be."""
        self._open.pop(connection.inner, None)
        self._forget_stranger(connection)

    def close_overdue(self) -> None:
        """Close what has taken too long; to be called about once a second."""
        now = self.clock()
        for connection in [each for each in self._open.values() if each.is_overdue(now, self.limits)]:
            connection.abort()

    def _make_room(self, among: Iterable[Connection]) -> bool:
        """Close the one that has waited for its client for longest, if any does."""
        waiting = [each for each in among if each.waits_since is not None]
        if not waiting:
            return False
        longest = min(waiting, key=lambda each: each.waits_since or 0.0)
        self.forget(longest)
        longest.abort()
        return True

    def _forget_stranger(self, connection: Connection) -> None:
        strangers = self._strangers.get(connection.address)
        if strangers is not None:
            strangers.pop(connection, None)
            if not strangers:
                del self._strangers[connection.address]


CONNECTION = web.RequestKey("connection", Connection)
"""The connection that a request came by; missing where a server does without bounds."""


def trust(request: web.Request) -> None:
    """Note that the request was authenticated, so that its connection is no stranger's any more."""
    if (connection := request.get(CONNECTION)) is not None:
        connection.trust()


def _network(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed), _IPV6_NETWORK_BITS), strict=False))
