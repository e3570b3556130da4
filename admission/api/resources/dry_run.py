"""Dry runs that tell more than that a write would be accepted: what would follow from it at once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from admission.api.resources.impact import Impact, impact
from admission.engine import Evict, QueueObjectChanged, QueueObjectDeleted, WorkloadGone, WorkloadPending
from admission.store.records import State
from admission.store.workloads.replay import event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.api.kinds.descriptor import WarningContext
    from admission.api.resources.explaining_engine import Live
    from admission.engine import Event
    from admission.model.queues import QueueObject
    from admission.store.records import Order, WorkloadRecord


class Previews:
    """Each method takes the outcome of a dry run, or what would be deleted or ordered."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def warning_context(self) -> WarningContext:
        """What warnings are made from, beside the database."""
        return self._live.warning_context()

    async def written(self, obj: QueueObject) -> Impact:
        """If a queue object were as `obj`."""
        return await self._of([QueueObjectChanged(obj)])

    async def deleted(self, objects: Sequence[QueueObject]) -> Impact:
        """If these queue objects were gone."""
        return await self._of([QueueObjectDeleted(obj.kind, obj.metadata.namespace, obj.name) for obj in objects])

    async def ordered(self, record: WorkloadRecord, order: Order) -> Impact:
        """If this were ordered about a workload."""
        if record.state is State.FINISHED:
            return Impact()
        if record.admission is None or not (reason := _stopping(record, order)):
            return await self._of([event(record, order)])
        waits = event(replace(record, admission=None), order)
        assert isinstance(waits, WorkloadPending)
        found = await self._of([WorkloadGone(record.workload.uid, requeue=waits.workload, on_hold=waits.on_hold)])
        return replace(found, evicted=(Evict(record.workload, reason, "as ordered"), *found.evicted))

    async def _of(self, change: list[Event]) -> Impact:
        engine, waiting = await self._live.copy()
        return await asyncio.to_thread(impact, engine, change, waiting=waiting, now=self._live.now)


def _stopping(record: WorkloadRecord, order: Order) -> str:
    """Why a workload that holds quota would have to give it back; empty if it would not."""
    if order.active is False:
        return "Deactivated"
    if order.held:
        return "OnHold"
    moved = order.local_queue is not None and order.local_queue != record.workload.queue
    return "Moved" if moved else ""
