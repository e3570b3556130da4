"""One timer, for when the leader has to look again although nothing has arrived."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Alarm:
    """Calls `wake` at the earliest of the times that it was set for."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = 0.0

    def set(self, seconds: float, wake: Callable[[], None]) -> None:
        """Ring after a time, unless it rings before: an earlier wakeup makes a later one needless."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now < self._rings_at <= now + seconds:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = now + seconds
        self._timer = loop.call_later(seconds, wake)

    def cancel(self) -> None:
        """Do not ring."""
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = 0.0
