"""Detection of preemptions without effect: the targets released their quota, but the preemptor was not admitted.

Kueue's rules do not rule it out. A preemptor is watched from the decision until it is admitted or not pending any more.
When its last target has released its quota and cycles decide nothing more, or when it preempts again, it should have
been admitted; otherwise the preemption is reported. Preemptions from before the start of the engine are not watched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.engine.events import Flap

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from admission.engine.clusterqueue import Held
    from admission.engine.events import Admit, Evict
    from admission.engine.pending_item import Item


class _Watch:
    """An ongoing preemption for one preemptor."""

    __slots__ = ("leaving", "returned", "victims")

    def __init__(self) -> None:
        self.victims: dict[str, str] = {}
        """Uid of each target to its `namespace/name`."""
        self.leaving: set[str] = set()
        """Uids of targets that may still hold quota."""
        self.returned: list[str] = []
        """`namespace/name` of targets that were admitted again."""


class PreemptionTracker:
    """Ongoing preemptions. `items`: pending workloads, `held`: those that hold quota, both by uid and live."""

    def __init__(self, items: Mapping[str, Item], held: Mapping[str, Held]) -> None:
        self._items = items
        self._held = held
        self.watches: dict[str, _Watch] = {}
        """Uid of a preemptor to its preemption."""

    def record(self, admitted: Iterable[Admit], evicted: Iterable[Evict]) -> list[Flap]:
        """Record the decisions of a cycle; return earlier preemptions whose preemptor has to preempt again.

        Not needed for a cycle without evictions while there are no `watches`.
        """
        flaps = []
        new: dict[str, dict[str, str]] = {}
        for evict in evicted:  # a preemptor that is no item is a mover: it runs in any case
            if evict.preemption_reason and evict.preemptor is not None and evict.preemptor in self._items:
                new.setdefault(evict.preemptor, {})[evict.workload.uid] = evict.workload.key
        for preemptor, victims in new.items():
            watch = self.watches.setdefault(preemptor, _Watch())
            if watch.victims and not self._under_way(watch, besides=victims):
                flaps.append(self._end(preemptor, watch))
                watch = self.watches[preemptor] = _Watch()
            watch.victims.update(victims)
            watch.leaving.update(victims)
        for admit in admitted:
            self.watches.pop(admit.workload.uid, None)
            for watch in self.watches.values():
                if admit.workload.uid in watch.leaving:
                    watch.leaving.remove(admit.workload.uid)
                    watch.returned.append(admit.workload.key)
        return flaps

    def forget(self, preemptor: str, victim: str) -> None:
        """Forget that a workload was preempted, as its admission was taken back instead."""
        watch = self.watches.get(preemptor)
        if watch is None:
            return
        del watch.victims[victim]
        watch.leaving.discard(victim)
        if not watch.victims:
            del self.watches[preemptor]

    def without_effect(self) -> list[Flap]:
        """Return preemptions whose targets have released their quota and whose preemptor is pending.

        Only valid when another cycle would decide nothing.
        """
        flaps = []
        for uid, watch in list(self.watches.items()):
            if uid not in self._items:
                del self.watches[uid]
            elif not self._under_way(watch, besides=()):
                flaps.append(self._end(uid, watch))
        return flaps

    def _under_way(self, watch: _Watch, *, besides: Container[str]) -> bool:
        held = self._held
        return any(uid in held and held[uid].evicting for uid in watch.leaving if uid not in besides)

    def _end(self, preemptor: str, watch: _Watch) -> Flap:
        del self.watches[preemptor]
        return Flap(self._items[preemptor].workload, tuple(watch.victims.values()), tuple(watch.returned))
