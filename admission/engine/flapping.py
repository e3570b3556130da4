"""Whether preemptions come to something: the preemptor gets the room that was made, or the preemption is reported.

Kueue's rules do not promise it. A preemptor is watched from the decision until it is admitted or does not wait any
more; when its last victim is gone and nothing moves any more, or it preempts others, it should have been admitted.
Preemptions that were under way when the engine started are not watched.
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
    """The preemption under way for one preemptor."""

    __slots__ = ("leaving", "returned", "victims")

    def __init__(self) -> None:
        self.victims: dict[str, str] = {}
        """Uid of each victim to its `namespace/name`."""
        self.leaving: set[str] = set()
        """Uids of victims that may still hold quota."""
        self.returned: list[str] = []
        """The `namespace/name` of victims that were admitted again."""


class Preemptions:
    """Those under way. `items` are those that wait, `held` those that hold quota, both by uid and kept up to date."""

    def __init__(self, items: Mapping[str, Item], held: Mapping[str, Held]) -> None:
        self._items = items
        self._held = held
        self.watches: dict[str, _Watch] = {}
        """By the uid of the preemptor."""

    def note(self, admitted: Iterable[Admit], evicted: Iterable[Evict]) -> list[Flap]:
        """What a cycle decided; the earlier preemptions that were in vain, as their preemptors have to preempt anew.

        Where there are no `watches`, and nobody was evicted, there is nothing to note.
        """
        flaps = []
        anew: dict[str, dict[str, str]] = {}
        for evict in evicted:
            if evict.preemption_reason and evict.preemptor is not None:
                anew.setdefault(evict.preemptor, {})[evict.workload.uid] = evict.workload.key
        for preemptor, victims in anew.items():
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

    def in_vain(self) -> list[Flap]:
        """Those whose victims are all gone, and whose preemptor waits nevertheless. Nothing may be left to decide."""
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
