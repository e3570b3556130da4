"""Periodic callback while a transaction takes long, to end the transaction of a frozen process that blocks it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from admission.model.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

_DELAY_SECONDS = 4
"""Seconds until the first call: less than the lock timeout, after which a waiting transaction fails."""
_INTERVAL_SECONDS = 1
"""Seconds between two calls."""


@asynccontextmanager
async def unblocking(unblock: Callable[[], Awaitable[None]] | None) -> AsyncIterator[None]:
    """Call `unblock` periodically while the block runs longer than `_DELAY_SECONDS`; else it costs only a timer."""
    if unblock is None:
        yield
        return
    loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[None]]()
    timer = loop.call_later(_DELAY_SECONDS, lambda: tasks.add(loop.create_task(_repeat(unblock))))
    try:
        yield
    finally:
        timer.cancel()
        for task in tasks:
            task.cancel()
            await asyncio.wait({task})


async def _repeat(callback: Callable[[], Awaitable[None]]) -> None:
    while True:
        with suppress(StoreError):  # the blocked transaction reports the error
            await callback()
        await asyncio.sleep(_INTERVAL_SECONDS)
