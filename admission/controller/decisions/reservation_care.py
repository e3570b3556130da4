"""What the leader does for Reservations beside decisions: domains, what will not be free, and what nobody uses.

It chooses the racks, or other domains, of those that have a topology, and ends those that nobody uses. Both is written
to the spec, so that every later leader knows it. What may not be free at the start, because of workloads that were
admitted before or of quota that was lowered, is said as soon as it is known, by an Event and in the log, and again when
it has got worse.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from admission.cluster.events import ObjectReference
from admission.controller.state.repeating import repeat
from admission.engine import KeptQuota
from admission.model import sentences
from admission.model.queues import Reservation
from admission.store.audit_log import Author
from admission.store.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.cluster.events import EventRecorder
    from admission.controller.state.faults import Faults
    from admission.engine import Engine, ReservedDomains
    from admission.store.store import Store

log = logging.getLogger(__name__)

INTERVAL: Final = 10.0
"""Seconds between two looks."""


class ReservationCare:
    """Takes care of Reservations. `engine`: that of the leader, or None while it decides nothing."""

    def __init__(
        self,
        store: Store,
        events: EventRecorder,
        engine: Callable[[], Engine | None],
        faults: Faults,
        *,
        interval: float = INTERVAL,
    ) -> None:
        self._store = store
        self._events = events
        self._engine = engine
        self._faults = faults
        self._interval = interval
        self._told: dict[tuple[str, str, str], int] = {}
        """What may lack of Reservations, as was said last, by Reservation, flavor and resource."""
        self._told_of_domains: dict[str, str] = {}
        """What is in the way of their domains, as was said last."""

    async def run(self) -> None:
        """Look every `interval` seconds, until cancelled."""
        await repeat(self.look, self._faults, every=self._interval, name="the care of Reservations")

    async def look(self) -> None:
        """Choose domains, say what may not be free, and end what nobody uses. Raises SluiceError."""
        engine = self._engine()
        if engine is None:
            return
        await self._look_at_domains(engine.reserved_domains)
        for policy in engine.policies:
            if isinstance(policy, KeptQuota):
                await self._tell(policy)
                await self._release(policy)

    async def _look_at_domains(self, reserved: ReservedDomains) -> None:
        obstacles = [*reserved.obstacles()]
        for name, chosen in [*reserved.choices()]:
            if isinstance(chosen, str):
                obstacles.append((name, chosen))
                continue
            found = await self._get(name)
            topology = None if found is None else found.spec.topology
            if found is None or topology is None or topology.domains or topology.count != len(chosen):
                continue
            spec = found.spec.model_copy(update={"topology": topology.model_copy(update={"domains": chosen})})
            author = Author("sluice", reason="where least is in the way")
            await self._store.queues.replace(found.model_copy(update={"spec": spec}), author=author)
        told, self._told_of_domains = self._told_of_domains, dict(obstacles)
        for name, note in obstacles:
            if told.get(name) != note and (found := await self._get(name)) is not None:
                self._say(found, note)

    async def _get(self, name: str) -> Reservation | None:
        """Return a Reservation; None: it is deleted."""
        try:
            found = await self._store.queues.get(Reservation.kind, name)
        except NotFound:
            return None
        assert isinstance(found, Reservation)
        return found

    def _say(self, reservation: Reservation, note: str) -> None:
        log.warning("%s", note)
        regarding = ObjectReference("sluice.dev/v1", Reservation.kind, reservation.name, reservation.metadata.uid or "")
        self._events.record(regarding, reason="ReservationShort", action="Reserve", note=note, warning=True)

    async def _tell(self, policy: KeptQuota) -> None:
        told, self._told = self._told, {}
        for each in policy.shortages():
            said = told.get(key := (each.name, *each.key), 0)
            self._told[key] = max(each.lacks, said)
            if each.lacks <= said:
                continue
            if (found := await self._get(each.name)) is None or each.at > found.spec.begins:
                continue  # it has begun, and has said so before
            note = sentences.reservation_short(
                each.name, (*each.key, each.kept, each.lacks), each.at,
                [(workload.key, has_limit) for workload, has_limit in each.in_the_way],
                preempts=found.spec.at_start == "Preempt",
            )  # fmt: skip
            self._say(found, note)

    async def _release(self, policy: KeptQuota) -> None:
        for name in policy.unused():
            if (found := await self._get(name)) is None:
                continue
            released_at = datetime.fromtimestamp(self._store.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            seconds = found.spec.release_unused_after_seconds
            spec = found.spec.model_copy(update={"released_at": released_at})
            author = Author("sluice", reason=f"nobody has used it for {seconds} s")
            await self._store.queues.replace(found.model_copy(update={"spec": spec}), author=author)
