"""Signal handling of long-running commands: SIGTERM and SIGINT shut down, SIGUSR1 logs what each task waits for."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

log = logging.getLogger(__name__)


async def until_signal(work: Coroutine[Any, Any, None]) -> bool:
    """Run `work` until it returns, or until SIGTERM or SIGINT; return whether one of them ended it.

    Errors of `work` propagate.
    """
    task = asyncio.ensure_future(work)
    interrupted = False

    def end(number: signal.Signals) -> None:
        nonlocal interrupted
        interrupted = True
        log.info("shutting down: %s", number.name)
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, number)
    loop.add_signal_handler(signal.SIGUSR1, _log_tasks)
    try:
        await task
    except asyncio.CancelledError:
        if not interrupted:
            raise
        return True
    return False


def _log_tasks() -> None:
    """Log a line for each task of the process with its stack of coroutines, to diagnose a process that hangs."""
    for task in sorted(asyncio.all_tasks(), key=asyncio.Task.get_name):
        log.info("task %s waits in %s", task.get_name(), " > ".join(_calls(task.get_coro())))


def _calls(coroutine: Any) -> Iterator[str]:
    """Yield function and line of each coroutine in the chain of awaits; `Task.get_stack` has only the first one."""
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is not None:
            yield f"{frame.f_code.co_qualname}:{frame.f_lineno}"
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
