"""One address before the webhooks of all replicas, as a Service is: each connection goes to the next that takes it."""

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
    """A port of loopback that leads to these ones, as long as the block lasts."""
    turns = count()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(OSError):
            first = next(turns)
            for number in range(len(ports)):
                try:
                    behind = await asyncio.open_connection("127.0.0.1", ports[(first + number) % len(ports)])
                except OSError:
                    continue
                with closing(behind[1]):
                    await _both_ways((reader, writer), behind)
                return

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def _both_ways(
    one: tuple[asyncio.StreamReader, asyncio.StreamWriter], other: tuple[asyncio.StreamReader, asyncio.StreamWriter]
) -> None:
    """Until either side ends the connection."""
    ways = [asyncio.create_task(_copy(one[0], other[1])), asyncio.create_task(_copy(other[0], one[1]))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
