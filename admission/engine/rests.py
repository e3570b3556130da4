"""Rests of workloads that are preempted again and again for the same workload, before they queue again.

Sluice's own (docs/semantics.md 10): several preemptors may keep each other from being admitted, and evict the same
workloads again each time. Counts are lost at a restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from admission.engine.clusterqueue import Held

FIRST: Final = 30.0
"""Seconds from the second preemption for the same workload until the victim queues again; doubled with each further
one."""
LONGEST: Final = 3600.0
"""The longest rest (s)."""
CALM: Final = 600.0
"""Seconds for which a workload has held quota when it is preempted, after which earlier preemptions do not count."""


class Rests:
    """How often workloads were preempted for which other workload, and when their rest ends."""

    def __init__(self) -> None:
        self._times: dict[str, dict[str, int]] = {}
        """Uid of a victim to the number of its preemptions by uid of the preemptor."""
        self._until: dict[str, float] = {}

    def preempted(self, held: Held, preemptor: str, now: float) -> None:
        """Count a preemption at `now` (Unix time, s) of a workload that still holds its quota."""
        uid = held.workload.uid
        times = self._times.setdefault(uid, {})
        if now - held.admitted_at >= CALM:
            times.clear()
        times[preemptor] = again = times.get(preemptor, 0) + 1
        if again > 1:
            self._until[uid] = now + min(FIRST * 2.0 ** (again - 2), LONGEST)

    def until(self, uid: str) -> float:
        """Return when the last rest of a workload ends or has ended (Unix time, s); 0: it had none."""
        return self._until.get(uid, 0.0)

    def forget(self, uid: str) -> None:
        """Forget a workload that does not queue any more."""
        self._times.pop(uid, None)
        self._until.pop(uid, None)
