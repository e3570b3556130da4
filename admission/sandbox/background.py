"""Background tasks for the duration of a block; their failure ends the block."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine


@asynccontextmanager
async def background(**jobs: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run coroutines as tasks, named by their keywords, for the duration of the block.

    When one of them ends by itself, the task that runs the block is cancelled; at exit their exceptions are raised
    as an ExceptionGroup.
    """
    body = asyncio.current_task()
    tasks = [asyncio.create_task(job, name=name) for name, job in jobs.items()]

    def interrupt(ended: asyncio.Task[None]) -> None:
        if body is not None and not ended.cancelled():
            body.cancel()

    for task in tasks:
        task.add_done_callback(interrupt)
    try:
        yield
    finally:
        for task in tasks:
            task.remove_done_callback(interrupt)
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        failures = [end for end in ends if isinstance(end, Exception)]
        if failures:
            raise ExceptionGroup("a part of the sandbox failed", failures)
