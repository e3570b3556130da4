"""Reservations that nobody uses: the leader ends them early, in their specs, so that every later leader knows it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from admission.controller.state.repeating import repeat
from admission.engine import KeptQuota
from admission.model.queues import Reservation
from admission.store.audit_log import Author
from admission.store.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.controller.state.faults import Faults
    from admission.engine import Engine
    from admission.store.store import Store

INTERVAL: Final = 10.0
"""Seconds between two looks."""


class UnusedReservations:
    """Ends what has been unused for too long. `engine`: that of the leader, or None while it decides nothing."""

    def __init__(
        self, store: Store, engine: Callable[[], Engine | None], faults: Faults, *, interval: float = INTERVAL
    ) -> None:
        self._store = store
        self._engine = engine
        self._faults = faults
        self._interval = interval

    async def run(self) -> None:
        """Look every `interval` seconds, until cancelled."""
        await repeat(self.look, self._faults, every=self._interval, name="the end of unused Reservations")

    async def look(self) -> None:
        """End the Reservations that have been unused for as long as they may be. Raises SluiceError."""
        engine = self._engine()
        if engine is None:
            return
        for name in [name for policy in engine.policies if isinstance(policy, KeptQuota) for name in policy.unused()]:
            try:
                found = await self._store.queues.get(Reservation.kind, name)
            except NotFound:
                continue
            assert isinstance(found, Reservation)
            released_at = datetime.fromtimestamp(self._store.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            seconds = found.spec.release_unused_after_seconds
            spec = found.spec.model_copy(update={"released_at": released_at})
            author = Author("sluice", reason=f"nobody has used it for {seconds} s")
            await self._store.queues.replace(found.model_copy(update={"spec": spec}), author=author)
