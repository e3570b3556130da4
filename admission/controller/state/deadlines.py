"""When something has to be done about a workload although nothing happens: one timer for the earliest is enough."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from admission.controller.state.tracked import Registry, Tracked


class Deadlines:
    """The times are those of `Tracked.deadline`; entries of the heap that do not agree with it mean nothing."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._heap: list[tuple[float, str]] = []

    def note(self, tracked: Tracked) -> None:
        """Its deadline is another one now."""
        if tracked.deadline is not None:
            heappush(self._heap, (tracked.deadline, tracked.uid))

    def next(self) -> float | None:
        """The earliest; None: there is none."""
        while self._heap and self._meant(*self._heap[0]) is None:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> list[Tracked]:
        """Those whose time has come; they have no deadline any more."""
        found = []
        while (at := self.next()) is not None and at <= now:
            tracked = self._registry.get(heappop(self._heap)[1])
            assert tracked is not None
            tracked.deadline = None
            found.append(tracked)
        return found

    def _meant(self, at: float, uid: str) -> Tracked | None:
        tracked = self._registry.get(uid)
        return tracked if tracked is not None and tracked.deadline == at else None
