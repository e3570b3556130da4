"""Conversion of the loaded state to events for an engine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from admission.engine.events import (
    NamespaceChanged,
    QueueObjectChanged,
    WorkloadAdmitted,
    WorkloadEnded,
    WorkloadPending,
    WorkloadPreempted,
)
from admission.engine.vocabulary import BEING_DELETED, CLUSTER_UNAVAILABLE, MISCONFIGURED, ON_HOLD
from admission.store.records import SUCCEEDED, State

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from admission.engine.events import Event
    from admission.store.records import LoadedState, Order, WorkloadRecord

BLOCKING_REASONS = frozenset({MISCONFIGURED, ON_HOLD, BEING_DELETED, CLUSTER_UNAVAILABLE})
"""Reasons for which cycles skip a workload, regardless of quota."""


def events(state: LoadedState, namespaces: Mapping[str, Mapping[str, str]]) -> Iterator[Event]:
    """Yield the events in the order in which an engine has to process them; `namespaces`: labels by name."""
    for name, labels in namespaces.items():
        yield NamespaceChanged(name, labels)
    for obj in state.queue_objects:
        yield QueueObjectChanged(obj)
    yield from ended_workloads(state)
    for uid, at in state.preemptions:
        yield WorkloadPreempted(uid, at)
    orders = {order.uid: order for order in state.orders}
    for record in state.workloads:
        yield event(record, orders.get(record.workload.uid))


def ended_workloads(state: LoadedState) -> Iterator[WorkloadEnded]:
    """Yield the events about the workloads that finished last, for those that start after them."""
    for one in state.recently_finished:
        yield WorkloadEnded(one.namespace, one.name, one.kind.lower(), one.created, one.outcome == SUCCEEDED)


def event(record: WorkloadRecord, order: Order | None = None) -> WorkloadAdmitted | WorkloadPending:
    """Return the event for one workload, with an admin's order applied."""
    workload = record.workload
    on_hold = not record.active or record.reason in BLOCKING_REASONS
    if order is not None:
        workload = replace(
            workload,
            queue=workload.queue if order.local_queue is None else order.local_queue,
            priority=workload.priority if order.priority is None else order.priority,
            rank_priority=order.rank_priority,
            rank_at=order.rank_at,
        )
        on_hold = order.held or not (record.active if order.active is None else order.active)
        on_hold = on_hold or record.reason == MISCONFIGURED
    on_hold = on_hold or not workload.pod_sets
    if record.admission is None:
        return WorkloadPending(workload, on_hold=on_hold, not_before=record.not_before or 0.0)
    at = record.queued_at if record.admitted_at is None else record.admitted_at
    evicting, cleared_at = record.state is State.EVICTING, record.cleared_at or 0.0
    return WorkloadAdmitted(workload, record.admission, at=at, evicting=evicting, cleared_at=cleared_at)
