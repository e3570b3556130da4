"""Round-robin TCP proxy in front of all replicas' webhooks, in the role of a Service."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, closing, suppress
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

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
                    await _copy_both_ways((reader, writer), backend)
                return

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def _copy_both_ways(
    one: tuple[asyncio.StreamReader, asyncio.StreamWriter], other: tuple[asyncio.StreamReader, asyncio.StreamWriter]
) -> None:
    """Copy data in both directions until either side closes the connection."""
    directions = [asyncio.create_task(_copy(one[0], other[1])), asyncio.create_task(_copy(other[0], one[1]))]
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
