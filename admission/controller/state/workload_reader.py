"""Reads a workload off a Kubernetes object: its pod sets, priority and queue, or why it could never start."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from admission.model.errors import Misconfigured
from admission.model.text import clean
from admission.model.workload import Workload
from admission.store.records import Order

if TYPE_CHECKING:
    from admission.controller.state.context import Context
    from admission.kinds.base import Object, Observed
    from admission.kinds.registry import Kinds
    from admission.model.workload import PodSet


@dataclass(frozen=True, slots=True)
class Reading:
    """A workload as its object asks for it; with a `fault` it must not be admitted."""

    workload: Workload
    fault: str = ""


def read(kinds: Kinds, seen: Observed, obj: Object, context: Context, *, known: Workload | None = None) -> Reading:
    """The workload of an object that names a queue; `known` itself, if that is what it still asks for."""
    pod_sets: tuple[PodSet, ...] = ()
    priority = 0
    fault = ""
    try:
        pod_sets = seen.kind.pod_sets(obj, context.of_namespace(seen.namespace))
        priority = context.priority(workload_class=seen.priority_class, pod_class=seen.pod_priority_class)
    except Misconfigured as error:
        fault = str(error)
    if known is not None and _asks_for(known, seen, pod_sets, priority):
        return Reading(known, fault)
    workload = Workload(
        uid=seen.uid,
        namespace=seen.namespace,
        name=seen.name,
        queue=seen.queue,
        priority=priority,
        created=seen.created,
        pod_sets=pod_sets,
        kind=seen.kind.kind,
        api_version=kinds.api_version(seen.kind),
        priority_class=seen.priority_class,
        user=seen.user,
    )
    return Reading(workload, fault)


def _asks_for(known: Workload, seen: Observed, pod_sets: tuple[PodSet, ...], priority: int) -> bool:
    """Whether a new workload would be equal to the known one, of the same uid: its kind and name never change."""
    return (
        known.queue == seen.queue
        and known.priority == priority
        and known.priority_class == seen.priority_class
        and known.user == seen.user
        and known.created == seen.created
        and known.pod_sets == pod_sets
    )


def with_order(workload: Workload, order: Order | None) -> Workload:
    """A workload as an admin will have it: another queue, priority or place."""
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
    """One line for the workload's story: what is ordered otherwise than `before`, by whom and why; "": nothing."""
    before = before or Order(order.uid)
    parts = []
    if order.local_queue != before.local_queue:
        parts.append(f"moved to LocalQueue {order.local_queue}" if order.local_queue else "back to its own LocalQueue")
    if order.priority != before.priority:
        parts.append("its own priority again" if order.priority is None else f"priority {order.priority}")
    if (order.rank_priority, order.rank_at) != (before.rank_priority, before.rank_at):
        parts.append("its own place again" if order.rank_at is None else "another place in the queue")
    if order.held != before.held:
        parts.append("held" if order.held else "released")
    if order.active != before.active and order.active is not None:
        parts.append("activated" if order.active else "deactivated")
    if not parts:
        return ""
    return clean(f"{', '.join(parts)} by {order.author}" + (f": {order.reason}" if order.reason else ""))
