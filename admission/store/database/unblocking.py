"""A transaction that waits long, because a process that stands still has the database locked, has that looked after."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from admission.model.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

_PATIENCE_SECONDS = 4
"""Less than what a transaction waits for a lock before it fails."""
_PAUSE_SECONDS = 1


@asynccontextmanager
async def unblocking(unblock: Callable[[], Awaitable[None]] | None) -> AsyncIterator[None]:
    """Call `unblock`, if there is one, again and again once the block has taken some seconds; else it costs a timer."""
    if unblock is None:
        yield
        return
    loop, looking = asyncio.get_running_loop(), set[asyncio.Task[None]]()
    timer = loop.call_later(_PATIENCE_SECONDS, lambda: looking.add(loop.create_task(_repeat(unblock))))
    try:
        yield
    finally:
        timer.cancel()
        for task in looking:
            task.cancel()
            await asyncio.wait({task})


async def _repeat(what: Callable[[], Awaitable[None]]) -> None:
    while True:
        with suppress(StoreError):  # the transaction itself tells
            await what()
        await asyncio.sleep(_PAUSE_SECONDS)
