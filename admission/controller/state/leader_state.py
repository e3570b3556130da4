"""What a leader works on: workloads, the engine, and what the next commit writes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from admission.controller.state.commit_batch import Batch
from admission.controller.state.ended import EndedWorkloads
from admission.controller.state.tracked import Registry, Tracked
from admission.controller.state.workload_change import WorkloadChange
from admission.engine.events import WorkloadGone
from admission.engine.vocabulary import MISCONFIGURED
from admission.model import sentences
from admission.store.records import State
from admission.store.workloads.replay import BARS

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.engine import Engine
    from admission.engine.events import Event
    from admission.store.records import CheckRecord, Order, WorkloadRecord


class LeaderState:
    """Registry, engine and batch, which change together, by `apply`. `clock` gives Unix time in seconds."""

    def __init__(self, engine: Engine, *, clock: Callable[[], float]) -> None:
        self.engine = engine
        self.registry = Registry()
        self.batch = Batch()
        self.dirty: dict[str, None] = {}
        """The workloads of which a request may be due, in order."""
        self.freed = False
        """Whether quota has become free since the last cycle."""
        self.arrived = 0
        """How many have arrived since then."""
        self.ended = EndedWorkloads()
        self.now = clock

    @property
    def is_wanted(self) -> bool:
        """Whether quota has become free, and somebody waits for quota who has not just arrived."""
        return self.freed and self.engine.waiting > self.arrived

    def tell(self, event: Event) -> None:
        """Tell the engine."""
        self.engine.observe(event, now=self.now())

    def apply(self, change: WorkloadChange) -> None:
        """Have a change take effect: in memory, in the engine, and with the next commit in the database."""
        tracked = change.tracked
        uid = tracked.record.workload.uid
        if change.is_new:
            self.arrived += 1
        self.registry.put(tracked)
        self.batch.add(change)
        if change.frees_quota:
            self.freed = True
        if change.is_due:
            self.dirty[uid] = None
        for event in change.engine_events:
            self.engine.observe(event, now=change.now)
        if change.is_over:
            self.registry.remove(uid)

    def restore(
        self, record: WorkloadRecord, order: Order | None, checks: tuple[CheckRecord, ...], *, is_on: bool = True
    ) -> None:
        """A workload as it is on record; not `is_on`: its kind is switched off, and nobody sees its object."""
        if order is not None:
            placed = replace(record.workload, rank_priority=order.rank_priority, rank_at=order.rank_at)
            record = replace(record, workload=placed)
        if record.state is State.ADMITTED and record.cleared_at is None and not record.checks_pending:
            record = replace(record, cleared_at=record.admitted_at)  # written by a version that knew no checks
        barred = record.reason in BARS or not record.active or not record.workload.pod_sets
        on_hold = record.state is State.PENDING and (barred or not is_on)
        tracked = Tracked(record=record, on_hold=on_hold, order=order, checks=checks)
        tracked.unsettled = tracked.holds_quota  # it may have been started and stopped a moment ago
        if order is None or order.priority is None:
            tracked.own_priority = record.workload.priority
        change = WorkloadChange(tracked, now=self.now())
        if order is not None and order.revision == record.revision:  # written by nobody who had taken it in
            change.tracked.order = None
            change.take_order(order)
        if record.admission is not None:
            change.tell_admitted()
        else:
            change.tell_pending()
        if on_hold and not is_on and record.active:
            _bar_kind_off(change)
        self.apply(change)

    def drop(self, tracked: Tracked) -> None:
        """Forget a workload that holds nothing, and what was to be written of it."""
        uid = tracked.uid
        self.batch.forget(uid)
        self.dirty.pop(uid, None)
        if self.registry.get(uid) is not None:
            self.registry.remove(uid)
        self.tell(WorkloadGone(uid))

    def keep_out(self, tracked: Tracked) -> None:
        """Record a dropped workload as it is, and keep it out of all decisions; if it runs, it is stopped."""
        change = WorkloadChange(tracked, now=self.now())
        change.tracked.on_hold = True
        change.write(message=tracked.record.message)
        change.tell_pending()
        change.is_due = tracked.seen is not None and not tracked.seen.suspended
        self.apply(change)


def _bar_kind_off(change: WorkloadChange) -> None:
    workload = change.tracked.record.workload
    message = sentences.kind_off(f"{workload.group}/{workload.kind.lower()}")
    if change.tracked.record.message != message:
        change.tracked.change(reason=MISCONFIGURED, message=message)
        change.write(message=message)
