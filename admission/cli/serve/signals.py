"""Ending on request: SIGTERM and SIGINT cancel the work of a command, and that is a success."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine

log = logging.getLogger(__name__)


async def until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` until it ends by itself, or a signal asks for the end; errors of `work` pass through."""
    task = asyncio.ensure_future(work)
    asked = False

    def end(number: signal.Signals) -> None:
        nonlocal asked
        asked = True
        log.info("shutting down: %s", number.name)
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, number)
    try:
        await task
    except asyncio.CancelledError:
        if not asked:
            raise
