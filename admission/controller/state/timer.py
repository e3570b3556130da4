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
        """Of the call that is to come; None: none is."""
        self._due = 0.0
        """When it is, in the time of the event loop."""

    def set(self, seconds: float, wake: Callable[[], None]) -> None:
        """Call `wake` after a time, unless it is called before: an earlier call makes a later one needless."""
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        if self._handle is not None and self._due <= due:
            return
        self.cancel()
        self._due = due
        self._handle = loop.call_later(seconds, self._call, wake)

    def cancel(self) -> None:
        """Call nothing."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _call(self, wake: Callable[[], None]) -> None:
        self._handle = None  # the clock does not tell that it came: uvloop calls up to a millisecond early
        wake()
