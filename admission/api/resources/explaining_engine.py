"""The engine that answers questions: the one that decides, where this replica leads, else one from the database."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from admission.api.kinds.descriptor import WarningContext, no_receiver_fault
from admission.engine import Engine, Policy, WorkloadPending
from admission.store.workloads.replay import events

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from admission.api.kinds.descriptor import ReceiverFault
    from admission.engine import Event
    from admission.store.store import Store

MIRRORED_SECONDS = 5.0
"""An engine made from the database answers for so long, though the database has gone on: to make one takes a while."""


class LocalController(Protocol):
    """What the API may ask of the Sluice that runs in the same process."""

    @property
    def policy(self) -> Policy:
        """What the engine was told to do in general."""

    def engine(self) -> Engine | None:
        """The engine that decides now; None while another replica does, or nobody. To be read only, and at once."""

    def namespaces(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of each namespace of the cluster."""

    async def audit(self, *, repair: bool) -> Sequence[Mapping[str, str]] | None:
        """What differs between database, cluster and memory; None while another decides. Raises ClusterError."""


class NoController:
    """Where no Sluice runs in the same process: an API by itself."""

    policy = Policy()

    def engine(self) -> None:
        """There is none."""

    def namespaces(self) -> dict[str, Mapping[str, str]]:
        """None is known."""
        return {}

    async def audit(self, *, repair: bool) -> None:
        """There is nothing to compare with."""
        del repair


@dataclass(frozen=True, slots=True)
class _Mirror:
    engine: Engine
    revision: int
    made_at: float


class Live:
    """Engines to ask, and engines to try things on."""

    def __init__(
        self,
        store: Store,
        deciding: LocalController,
        *,
        receiver_fault: ReceiverFault = no_receiver_fault,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._deciding = deciding
        self._receiver_fault = receiver_fault
        self._clock = clock
        self._mirror: _Mirror | None = None
        self._making = asyncio.Lock()

    @property
    def now(self) -> float:
        """Seconds since the epoch."""
        return self._clock()

    def warning_context(self) -> WarningContext:
        """What is known beside the database."""
        return WarningContext(self._deciding.namespaces(), self._receiver_fault)

    async def engine(self) -> Engine:
        """An engine that knows everything, to be read only, before the next `await`."""
        return self._deciding.engine() or await self._mirrored()

    async def copy(self) -> tuple[Engine, list[WorkloadPending]]:
        """An engine of one's own at the state of the database, and the workloads that it was told to be waiting."""
        state = await self._store.load()
        deciding = self._deciding.engine()
        told = [*(() if deciding is None else deciding.policy_events()), *events(state, self._deciding.namespaces())]
        engine = await asyncio.to_thread(_made, self._deciding.policy, told, self._clock())
        return engine, [event for event in told if isinstance(event, WorkloadPending)]

    async def _mirrored(self) -> Engine:
        async with self._making:
            revision = await self._store.queues.revision()
            mirror = self._mirror
            if mirror is None or (mirror.revision != revision and self._clock() - mirror.made_at >= MIRRORED_SECONDS):
                mirror = self._mirror = _Mirror((await self.copy())[0], revision, self._clock())
            return mirror.engine


def _made(policy: Policy, told: list[Event], now: float) -> Engine:
    engine = Engine(policy)
    for event in told:
        engine.observe(event, now=now)
    engine.refresh(now)
    return engine
