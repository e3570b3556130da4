"""TCP proxies: in front of all replicas' webhooks, in the role of a Service; and between Sluice and a cluster."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence

_CHUNK = 65_536


@asynccontextmanager
async def service(ports: Sequence[int]) -> AsyncIterator[int]:
    """Run the proxy during the block; yields its port. A connection goes to the next of `ports` that accepts it."""
    connections = count()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(OSError):
            first = next(connections)
            for number in range(len(ports)):
                try:
                    backend = await asyncio.open_connection("127.0.0.1", ports[(first + number) % len(ports)])
                except OSError:
                    continue
                with closing(backend[1]):
                    await _copy_both_ways((reader, writer), backend, _copy)
                return

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


class Link:
    """TCP proxy at one address, which can be cut or slow; `port`: where it leads to."""

    def __init__(self) -> None:
        self.port = 0
        self.address = 0
        """The port at which it listens."""
        self._stack = AsyncExitStack()
        self._connections: set[asyncio.StreamWriter] = set()
        self._refuses = self._is_silent = False
        self._delay = 0.0

    async def __aenter__(self) -> Self:
        server = await self._stack.enter_async_context(await asyncio.start_server(self._connect, "127.0.0.1", 0))
        self._stack.callback(self._reset)
        self.address = server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @contextmanager
    def cut(self, *, silently: bool) -> Iterator[None]:
        """Let nothing pass during the block, and reset all connections; `silently`: at its end, else at once."""
        self._is_silent, self._refuses = silently, not silently
        if not silently:
            self._reset()
        try:
            yield
        finally:
            self._is_silent = self._refuses = False
            self._reset()

    @contextmanager
    def slowed(self, seconds: float) -> Iterator[None]:
        """Delay all data during the block."""
        self._delay = seconds
        try:
            yield
        finally:
            self._delay = 0.0

    def _reset(self) -> None:
        for writer in self._connections:
            writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            writer.transport.abort()
            return
        self._connections.add(writer)
        try:
            with closing(writer), suppress(OSError):
                if self._is_silent:
                    while await reader.read(_CHUNK):
                        pass
                    return
                backend = await asyncio.open_connection("127.0.0.1", self.port)
                with closing(backend[1]):
                    await _copy_both_ways((reader, writer), backend, self._pass)
        finally:
            self._connections.discard(writer)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK):
            if self._delay:
                await asyncio.sleep(self._delay)
            if not self._is_silent:
                writer.write(data)
                await writer.drain()


async def _copy_both_ways(
    one: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    other: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    copy: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]],
) -> None:
    """Copy data in both directions until either side closes the connection."""
    directions = [asyncio.create_task(copy(one[0], other[1])), asyncio.create_task(copy(other[0], one[1]))]
    try:
        await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for direction in directions:
            direction.cancel()
        await asyncio.gather(*directions, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
