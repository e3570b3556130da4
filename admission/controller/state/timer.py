"""Timer that starts a cycle of the leader although no message has arrived."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Timer:
    """Calls a function once, at the earliest time that was set."""

    def __init__(self) -> None:
        self._handle: asyncio.TimerHandle | None = None
        """The pending call; None if there is none."""
        self._due = 0.0
        """Time of the pending call, by the clock of the event loop."""

    def set(self, seconds: float, wake: Callable[[], None]) -> None:
        """Call `wake` in `seconds`, unless an earlier call is pending, which makes a later one needless."""
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        if self._handle is not None and self._due <= due:
            return
        self.cancel()
        self._due = due
        self._handle = loop.call_later(seconds, self._call, wake)

    def cancel(self) -> None:
        """Cancel the pending call."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _call(self, wake: Callable[[], None]) -> None:
        self._handle = None  # cannot be derived from the clock: uvloop calls up to a millisecond early
        wake()
