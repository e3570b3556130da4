"""One timer, for when the leader has to look again although nothing has arrived."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Timer:
    """Calls a function at the earliest of the times that it was set for."""

    def __init__(self) -> None:
        self._handle: asyncio.TimerHandle | None = None
        self._due = 0.0
        """In the time of the event loop."""

    def set(self, seconds: float, wake: Callable[[], None]) -> None:
        """Call `wake` after a time, unless it is called before: an earlier call makes a later one needless."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now < self._due <= now + seconds:
            return
        if self._handle is not None:
            self._handle.cancel()
        self._due = now + seconds
        self._handle = loop.call_later(seconds, wake)

    def cancel(self) -> None:
        """Call nothing."""
        if self._handle is not None:
            self._handle.cancel()
        self._due = 0.0
