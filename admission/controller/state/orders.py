"""Admins' orders: their application to a workload, and their description in its history."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from admission.model.text import clean
from admission.store.records import Order

if TYPE_CHECKING:
    from admission.model.workload import Workload


def with_order(workload: Workload, order: Order | None) -> Workload:
    """Return the workload with an admin's overrides of queue, priority and position in the queue."""
    if order is None:
        return workload
    return replace(
        workload,
        queue=order.local_queue or workload.queue,
        priority=workload.priority if order.priority is None else order.priority,
        rank_priority=order.rank_priority,
        rank_at=order.rank_at,
    )


def describe(order: Order, before: Order | None) -> str:
    """Return the history message of an order: differences from `before`, author, reason; "" if nothing differs."""
    before = before or Order(order.uid)
    parts = []
    if order.local_queue != before.local_queue:
        parts.append(f"moved to LocalQueue {order.local_queue}" if order.local_queue else "back to its own LocalQueue")
    if order.priority != before.priority:
        parts.append("its own priority again" if order.priority is None else f"priority {order.priority}")
    if (order.rank_priority, order.rank_at) != (before.rank_priority, before.rank_at):
        parts.append("its own place again" if order.rank_at is None else "another place in the queue")
    if order.held != before.held:
        parts.append("put on hold" if order.held else "released")
    if order.active != before.active and order.active is not None:
        parts.append("activated" if order.active else "deactivated")
    if not parts:
        return ""
    return clean(f"{', '.join(parts)} by {order.author}" + (f": {order.reason}" if order.reason else ""))
