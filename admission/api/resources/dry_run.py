"""Impact of dry runs: which workloads a write would admit, evict or make impossible immediately."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from admission.api.resources.impact import Impact, impact
from admission.engine import (
    Evict,
    QueueObjectChanged,
    QueueObjectDeleted,
    WorkloadGone,
    WorkloadPending,
    decisive_part,
)
from admission.store.records import State
from admission.store.workloads.replay import event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.api.kinds.descriptor import WarningContext
    from admission.api.resources.explaining_engine import Engines
    from admission.engine import Event
    from admission.model.queues import QueueObject
    from admission.store.records import Order, WorkloadRecord


class Previews:
    """Computes the impact of writes on a copy of the engine.

    The copy has all workloads, so that making it costs many times as much as a write: none is made for a change that
    cannot have an impact, as most objects of a large manifest are unchanged when it is applied again.
    """

    def __init__(self, engines: Engines) -> None:
        self._engines = engines

    def warning_context(self) -> WarningContext:
        """Return the information beside the database that warnings are based on."""
        return self._engines.warning_context()

    async def written(self, before: QueueObject | None, after: QueueObject) -> Impact:
        """Return the impact of writing a queue object: `after` is the result of the dry run; `before` None: created."""
        if decisive_part(before) == decisive_part(after):
            return Impact()
        return await self._of([QueueObjectChanged(after)])

    async def deleted(self, objects: Sequence[QueueObject]) -> Impact:
        """Return the impact of deleting queue objects."""
        decisive = [obj for obj in objects if decisive_part(obj) is not None]
        if not decisive:
            return Impact()
        return await self._of([QueueObjectDeleted(obj.kind, obj.metadata.namespace, obj.name) for obj in decisive])

    async def ordered(self, record: WorkloadRecord, order: Order) -> Impact:
        """Return the impact of an order about a workload (move, priority, hold ...)."""
        if record.state is State.FINISHED:
            return Impact()
        if record.admission is None or not (reason := _eviction_reason(record, order)):
            return await self._of([event(record, order)])
        requeued = event(replace(record, admission=None), order)
        assert isinstance(requeued, WorkloadPending)
        gone = WorkloadGone(record.workload.uid, requeue=requeued.workload, on_hold=requeued.on_hold)
        found = await self._of([gone])
        return replace(found, evicted=(Evict(record.workload, reason, "as ordered"), *found.evicted))

    async def _of(self, change: list[Event]) -> Impact:
        engine, waiting = await self._engines.copy()
        return await asyncio.to_thread(impact, engine, change, waiting=waiting, now=self._engines.now)


def _eviction_reason(record: WorkloadRecord, order: Order) -> str:
    """Return the reason for which an order evicts an admitted workload; empty if it does not."""
    if order.active is False:
        return "Deactivated"
    if order.held:
        return "OnHold"
    moved = order.local_queue is not None and order.local_queue != record.workload.queue
    return "Moved" if moved else ""
