"""Engines for explanations and dry runs: the leader's own engine, or one built from the database on other replicas."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from admission.api.kinds.descriptor import WarningContext, no_cluster_check, no_receiver_fault
from admission.engine import Engine, Policy, WorkloadPending
from admission.store.policy_seeds import policy_seeds
from admission.store.workloads.replay import events

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from admission.api.kinds.descriptor import ClusterCheck, ReceiverFault
    from admission.engine import Event
    from admission.store.store import Store

MIRRORED_SECONDS = 5.0
"""Time for which an engine built from the database is used although the database has changed: building is expensive."""


class LocalController(Protocol):
    """The controller in the same process, as far as the API uses it."""

    @property
    def policy(self) -> Policy:
        """The engine's policy: fair sharing and other settings."""

    def engine(self) -> Engine | None:
        """Return the engine if this replica leads, else None. Read only, and only until the next `await`."""

    def namespaces(self) -> Mapping[str, Mapping[str, str]]:
        """Return the labels by namespace of the cluster."""

    async def audit(self, *, repair: bool) -> Sequence[Mapping[str, str]] | None:
        """Compare database, cluster and memory; None if this replica does not lead. Raises ClusterError."""


class NoController:
    """For an API without a controller in the same process."""

    policy = Policy()

    def engine(self) -> None:
        """Return None: there is no leader in this process."""

    def namespaces(self) -> dict[str, Mapping[str, str]]:
        """Return no namespaces: they are not known."""
        return {}

    async def audit(self, *, repair: bool) -> None:
        """Return None: this process does not lead."""
        del repair


@dataclass(frozen=True, slots=True)
class _Mirror:
    """An engine built from the database, with the revision and the Unix time (s) of that."""

    engine: Engine
    revision: int
    made_at: float


class Engines:
    """Access to engines: the current one for reading, copies for dry runs. `clock` returns the Unix time (s)."""

    def __init__(
        self,
        store: Store,
        controller: LocalController,
        *,
        receiver_fault: ReceiverFault = no_receiver_fault,
        check_cluster: ClusterCheck = no_cluster_check,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._controller = controller
        self._receiver_fault = receiver_fault
        self._check_cluster = check_cluster
        self._clock = clock
        self._mirror: _Mirror | None = None
        self._building = asyncio.Lock()

    @property
    def now(self) -> float:
        """The Unix time (s)."""
        return self._clock()

    def warning_context(self) -> WarningContext:
        """Return the information beside the database that warnings are based on."""
        return WarningContext(self._controller.namespaces(), self._receiver_fault, self._check_cluster)

    async def current(self) -> Engine:
        """Return an engine with the current state. Read only, and only until the next `await`."""
        return self._controller.engine() or await self._mirrored()

    async def copy(self) -> tuple[Engine, list[WorkloadPending]]:
        """Build an engine from the database, for the caller alone; return it with the events of pending workloads."""
        state = await self._store.load()
        leading = self._controller.engine()
        policy = self._controller.policy
        seeds = (
            await policy_seeds(self._store, policy, state.queue_objects, now=self._clock())
            if leading is None
            else leading.policy_events()
        )
        replayed = [
            *seeds,
            *events(state, self._controller.namespaces()),
        ]
        engine = await asyncio.to_thread(_build, policy, replayed, self._clock())
        return engine, [event for event in replayed if isinstance(event, WorkloadPending)]

    async def _mirrored(self) -> Engine:
        async with self._building:
            revision = await self._store.queues.revision()
            mirror = self._mirror
            if mirror is None or (mirror.revision != revision and self._clock() - mirror.made_at >= MIRRORED_SECONDS):
                mirror = self._mirror = _Mirror((await self.copy())[0], revision, self._clock())
            return mirror.engine


def _build(policy: Policy, replayed: list[Event], now: float) -> Engine:
    engine = Engine(replace(policy, topology=None))  # nodes are known to the leader only: it answers for quota alone
    for event in replayed:
        engine.observe(event, now=now)
    engine.refresh(now)
    return engine
