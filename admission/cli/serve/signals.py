"""SIGTERM and SIGINT end the work of a command, and that is a success; SIGUSR1 logs what its tasks wait for."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

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
    loop.add_signal_handler(signal.SIGUSR1, _log_tasks)
    try:
        await task
    except asyncio.CancelledError:
        if not asked:
            raise


def _log_tasks() -> None:
    """A line for each task of the process with the calls that it is in, for whoever looks why nothing happens."""
    for task in sorted(asyncio.all_tasks(), key=asyncio.Task.get_name):
        log.info("task %s waits in %s", task.get_name(), " > ".join(_calls(task.get_coro())))


def _calls(coroutine: Any) -> Iterator[str]:
    """Function and line of each coroutine that waits for the next one; `Task.get_stack` knows the first one alone."""
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is not None:
            yield f"{frame.f_code.co_qualname}:{frame.f_lineno}"
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
