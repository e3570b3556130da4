"""What the leader does by time: work that is repeated beside the decisions, and the call that starts a cycle."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NoReturn

from admission.model.errors import SluiceError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from admission.controller.state.faults import Faults

log = logging.getLogger(__name__)


async def repeat(work: Callable[[], Awaitable[float | None]], faults: Faults, *, every: float, name: str) -> NoReturn:
    """Do `work` every so many seconds, or after those that it returns, until cancelled. `name`: for the log.

    Neither an outage nor a defect ends it.
    """
    while True:
        pause = None
        try:
            pause = await work()
        except SluiceError as error:
            log.warning("%s is tried again: %s", name, error)
        except Exception as error:  # noqa: BLE001  a defect here must not end decisions
            faults.report(name, error)
        await asyncio.sleep(every if pause is None else pause)


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
