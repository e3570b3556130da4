"""Event loop whose clock jumps to the next timer as soon as nothing else can happen."""

from __future__ import annotations

import selectors

from tests.event_loop import EventLoop

_DELIVERY = 0.001
"""Real seconds in which data that was written to a loopback connection arrives at its other end."""


class _Selector(selectors.DefaultSelector):
    """Selector that skips waiting: it adds the time that it was to wait to `skipped`."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(0) or super().select(min(timeout, _DELIVERY))
        if not ready:
            self.skipped += timeout
        return ready


class VirtualTimeLoop(EventLoop):
    """Event loop in which all timers keep their order, however slow the machine is, and no waiting takes real time.

    `time()` counts the seconds that timers were waited for, so that computations take no time at all. Only for tests
    whose clients and servers all run in this loop: it does not wait for other processes or threads. Tests with the
    marker `virtual_time`, and their fixtures, run in such a loop.
    """

    def __init__(self) -> None:
        self._skipping = _Selector()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.skipped
