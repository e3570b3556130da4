"""The state that one step of the controller works on, and the few moves by which a workload changes its state.

Each move does the three things that belong together: it changes the record, tells the engine, and adds to the batch
that the step commits. Nothing here does I/O.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from admission.controller.state.commit_batch import Batch
from admission.controller.state.tracked import Registry, Tracked
from admission.controller.state.workload_reader import describe
from admission.engine.events import WorkloadAdmitted, WorkloadEvicted, WorkloadGone, WorkloadPending
from admission.engine.vocabulary import MISCONFIGURED, OVER_QUOTA, PENDING_EVALUATION, PODS_UNSCHEDULED, PREEMPTED
from admission.model import sentences
from admission.model.quantity import UNLIMITED
from admission.store.records import CheckRecord, Eviction, State, Transition, WorkloadRecord
from admission.store.workloads.replay import BARS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from contextlib import AbstractContextManager

    from admission.controller.state.workload_reader import Reading
    from admission.engine import Engine
    from admission.engine.events import Admit, Event, Evict
    from admission.kinds.base import Object
    from admission.model.workload import PodSetAssignment
    from admission.store.records import Order

QUOTA_RESERVED = "QuotaReserved"
ADMITTED = "Admitted"
DEACTIVATED = "Deactivated"
ORDERED = "Ordered"

MOST_REASON_CHANGES = 100
"""Changes of the reason for waiting that get a line in the story; what follows counts for the last of them."""


class Desk:
    """Registry, engine and batch, changed together."""

    def __init__(self, engine: Engine, *, clock: Callable[[], float]) -> None:
        self.engine = engine
        self.registry = Registry()
        self.batch = Batch()
        self.dirty: dict[str, None] = {}
        """The workloads whose next step has to be looked at, in order."""
        self.freed = False
        """Whether quota has become free since the last cycle."""
        self.arrived = 0
        """How many have arrived since then."""
        self.ended: frozenset[str] = frozenset()
        """The uids of workloads that are over, though an API server that lags behind may show them as they were."""
        self._clock = clock

    @property
    def is_wanted(self) -> bool:
        """Whether quota has become free, and somebody waits for quota who has not just arrived."""
        return self.freed and self.engine.waiting > self.arrived

    def tell(self, event: Event) -> None:
        self.engine.observe(event, now=self._clock())

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
        tracked = self.registry.add(Tracked(record=record, on_hold=on_hold, order=order, checks=checks))
        tracked.unsettled = tracked.holds_quota  # it may have been started and stopped a moment ago
        if order is None or order.priority is None:
            tracked.own_priority = record.workload.priority
        if order is not None and order.revision == record.revision:  # written by nobody who had taken it in
            tracked.order = None
            self.order(tracked, order)
        if record.admission is not None:
            self.tell_admitted(tracked)
        else:
            self.tell_pending(tracked)
        if on_hold and not is_on and record.active:
            self._bar_kind_off(tracked)

    def _bar_kind_off(self, tracked: Tracked) -> None:
        workload = tracked.record.workload
        message = sentences.kind_off(f"{workload.group}/{workload.kind.lower()}")
        if tracked.record.message != message:
            self.write(tracked.change(reason=MISCONFIGURED, message=message), message=message)

    def bar_kind_forbidden(self, tracked: Tracked) -> None:
        """It waits, but Sluice may not see objects of its kind; as soon as it is seen it queues again."""
        workload = tracked.record.workload
        message = sentences.kind_forbidden(f"{workload.group}/{workload.kind.lower()}")
        tracked.on_hold = True
        self.write(tracked.change(reason=MISCONFIGURED, message=message), message=message)
        self.tell_pending(tracked)

    def arrive(self, reading: Reading, *, on_hold: bool, reason: str, message: str) -> Tracked:
        """An object was queued that was not known before."""
        now = self._clock()
        record = WorkloadRecord(
            workload=reading.workload, state=State.PENDING, queued_at=now, reason=reason, message=message
        )
        tracked = self.registry.add(Tracked(record=record, on_hold=on_hold))
        self.batch.write(record, at=now, reason="Queued", message=message)
        self.tell_pending(tracked)
        self.arrived += 1
        return tracked

    def tell_pending(self, tracked: Tracked) -> None:
        """Tell the engine how it waits."""
        record = tracked.record
        self.tell(WorkloadPending(record.workload, on_hold=tracked.on_hold, not_before=record.not_before or 0.0))

    def tell_admitted(self, tracked: Tracked) -> None:
        """Tell the engine what it holds: when the state is loaded, or when that has changed."""
        record = tracked.record
        assert record.admission is not None, record
        at = record.admitted_at if record.admitted_at is not None else record.queued_at
        evicting = record.state is State.EVICTING
        self.tell(WorkloadAdmitted(record.workload, record.admission, at=at, evicting=evicting))

    def requeue(self, tracked: Tracked, reading: Reading, *, on_hold: bool, reason: str, message: str) -> None:
        """A waiting workload looks different: edited, moved to another queue, held or released."""
        tracked.on_hold = on_hold
        self.write(tracked.change(workload=reading.workload, reason=reason, message=message), message=message)
        self.tell_pending(tracked)

    def write(self, record: WorkloadRecord, *, reason: str = "", message: str = "") -> None:
        """With the next commit, and with a line of its story: what happened, by default why it is in its state."""
        self.batch.write(record, at=self._clock(), reason=reason or record.reason, message=message)

    def order(self, tracked: Tracked, order: Order) -> None:
        """An admin has ordered something about it; what follows from that is decided when it is looked at."""
        before, tracked.order = tracked.order, order
        if before is not None and before.revision >= order.revision:
            return
        if order.active is not None and order.active != tracked.record.active:
            fresh = {"requeues": 0, "not_before": None, "past_seconds": 0.0} if order.active else {}
            tracked.change(active=order.active, **fresh)
        if line := describe(order, before):
            self.write(tracked.record, reason=ORDERED, message=line)

    def admit(self, tracked: Tracked, decision: Admit, *, original: Object, checks: Collection[str] = ()) -> None:
        """The engine gave it quota; it may run at once, or as soon as admission `checks` say so."""
        now = self._clock()
        queue, said = decision.admission.cluster_queue, sentences.admitted(tracked.record.workload, decision.admission)
        record = tracked.change(
            state=State.ADMITTED,
            cluster_queue=queue,
            admission=decision.admission,
            original=original,
            admitted_at=now,
            checks_pending=bool(checks),
            cleared_at=None if checks else now,
            not_before=None,
            reason=QUOTA_RESERVED if checks else ADMITTED,
            message=sentences.checks_pending([*checks]) if checks else said,
        )
        self.write(record, message=f"{said} {record.message}" if checks else said)
        self.batch.open(record, decision.admission, at=now)
        self.dirty[tracked.uid] = None

    def clear(self, tracked: Tracked, *, original: Object) -> None:
        """All admission checks say that it may run."""
        admission = tracked.record.admission
        assert admission is not None, tracked
        record = tracked.change(
            checks_pending=False,
            cleared_at=self._clock(),
            original=original,
            reason=ADMITTED,
            message=sentences.admitted(tracked.record.workload, admission),
        )
        self.write(record, message=f"{record.message} All admission checks are ready.")
        self.dirty[tracked.uid] = None

    def note_pod_problem(self, tracked: Tracked, text: str) -> None:
        """What keeps pods of an admitted workload from running; empty: nothing does."""
        record = tracked.record
        if record.state is not State.ADMITTED or record.admission is None or record.checks_pending:
            return
        if text and text != record.message:
            self.batch.note(tracked.change(reason=PODS_UNSCHEDULED, message=text))
        elif not text and record.reason == PODS_UNSCHEDULED:
            message = sentences.admitted(record.workload, record.admission)
            self.batch.note(tracked.change(reason=ADMITTED, message=message))

    def shrink(self, tracked: Tracked, counts: Mapping[str, int]) -> None:
        """Only so many pods of these pod sets are needed any more: the quota of the others is free."""
        admission = tracked.record.admission
        assert admission is not None, tracked
        pod_sets = (
            _shrunk(given, counts[given.name]) if given.name in counts else given for given in admission.pod_sets
        )
        smaller = replace(admission, pod_sets=tuple(pod_sets))
        record = tracked.change(admission=smaller)
        self.batch.resize(record, smaller, at=self._clock())
        self.tell_admitted(tracked)
        self.freed = True

    def amend(self, tracked: Tracked, *, original: Object) -> None:
        """It was edited between admission and start: what will have to be restored is different now."""
        self.write(tracked.change(original=original), reason="Edited")
        self.dirty[tracked.uid] = None

    def evict(
        self,
        tracked: Tracked,
        *,
        reason: str,
        message: str,
        preemption: str = "",
        decided_by_engine: bool = False,
        **fields: Any,
    ) -> None:
        """It must give its quota back; it holds it until its pods are gone. `fields` are of its record.

        `preemption`: Kueue's reason, as InCohortReclamation, if it is preempted.
        """
        workload = tracked.record.workload
        if workload.queued_at is not None:  # that was for an earlier eviction
            fields = {"workload": replace(workload, queued_at=None), **fields}
        eviction = Eviction(reason, message, self._clock(), preemption)
        record = tracked.change(
            state=State.EVICTING, evict_reason=reason, eviction=eviction, reason=reason, message=message, **fields
        )
        self.write(record, message=message)
        self._ask_again(tracked)
        if not decided_by_engine:
            self.tell(WorkloadEvicted(tracked.uid))
        self.dirty[tracked.uid] = None

    def deactivate(self, tracked: Tracked, *, cause: str, because: str) -> None:
        """It must give its quota back and does not queue again before it is activated."""
        self.evict(
            tracked,
            reason=f"{DEACTIVATED}DueTo{cause}",
            message=sentences.deactivated(because),
            active=False,
            requeues=0,
            not_before=None,
        )
        self.batch.deactivate(tracked.uid)
        if tracked.order is not None:
            tracked.order = replace(tracked.order, active=None)

    def _ask_again(self, tracked: Tracked) -> None:
        """As in Kueue, what checks said counts no more after an eviction."""
        checks = []
        for check in tracked.checks:
            if check.state == "Pending":
                checks.append(check)
                continue
            anew = CheckRecord(
                uid=check.uid,
                name=check.name,
                state="Pending",
                at=self._clock(),
                message=f"Reset to Pending after eviction. Previously: {check.state}",
                requeue_after_seconds=check.requeue_after_seconds,
                retries=check.retries + (check.state == "Retry"),
            )
            self.batch.ask(anew)
            checks.append(anew)
        tracked.checks = tuple(checks)

    def release(self, tracked: Tracked, reading: Reading, *, on_hold: bool, reason: str, message: str) -> None:
        """It is stopped and restored: its quota is free, and it waits again.

        Its `original` stays on record: the start of an earlier leader may still come through (`Observing`).
        """
        now = self._clock()
        self.freed = True
        before = tracked.record
        self.batch.close(tracked.uid, at=now, reason=before.evict_reason)
        ran = 0.0 if before.cleared_at is None else max(now - before.cleared_at, 0.0)
        tracked.on_hold = on_hold
        record = tracked.change(
            workload=reading.workload,
            state=State.PENDING,
            admission=None,
            admitted_at=None,
            checks_pending=False,
            cleared_at=None,
            ready_at=None,
            unready_at=None,
            past_seconds=before.past_seconds + ran if before.active else 0.0,
            queued_at=now,
            evict_reason="",
            reason=reason,
            message=message,
        )
        self.write(record, reason="Requeued" if record.active else reason, message=message)
        self.tell(
            WorkloadGone(tracked.uid, requeue=reading.workload, on_hold=on_hold, not_before=record.not_before or 0.0)
        )

    def finish(self, tracked: Tracked, *, outcome: str, message: str) -> None:
        """It is over: done, failed, deleted, or not for Sluice any more."""
        now = self._clock()
        if tracked.holds_quota:
            self.freed = True
            self.batch.close(tracked.uid, at=now, reason=outcome)
        record = tracked.change(
            state=State.FINISHED, admission=None, finished_at=now, outcome=outcome, reason=outcome, message=message
        )
        self.batch.write(record, at=now, reason=outcome, message=message)
        self.tell(WorkloadGone(tracked.uid))
        self.registry.remove(tracked.uid)

    def refuse(self, tracked: Tracked, *, generation: int, message: str) -> None:
        """The API server will not have it started as it is: its quota goes back, and it waits for an edit."""
        tracked.refused = (generation, message)
        self.evict(tracked, reason=MISCONFIGURED, message=message)

    def bar(self, tracked: Tracked, *, generation: int, message: str) -> None:
        """It waits, but cannot be started as it is; not tried again before it is edited."""
        tracked.refused, tracked.on_hold = (generation, message), True
        self.write(tracked.change(reason=MISCONFIGURED, message=message), message=message)
        self.tell_pending(tracked)

    def drop(self, tracked: Tracked) -> None:
        """Forget a workload that holds nothing, and what was to be written of it."""
        uid = tracked.uid
        self.batch.forget(uid)
        self.dirty.pop(uid, None)
        if self.registry.get(uid) is not None:
            self.registry.remove(uid)
        self.tell(WorkloadGone(uid))

    def set_aside(self, tracked: Tracked) -> None:
        """Record a dropped workload as it is, and keep it out of all decisions; if it runs, it is stopped."""
        tracked.on_hold = True
        self.registry.add(tracked)
        self.write(tracked.record, message=tracked.record.message)
        self.tell_pending(tracked)
        if tracked.seen is not None and not tracked.seen.suspended:
            self.dirty[tracked.uid] = None

    def evict_by_decision(self, decision: Evict) -> None:
        """The engine takes quota back."""
        tracked = self.registry.get(decision.workload.uid)
        if tracked is not None and tracked.record.state is State.ADMITTED:
            is_taken = decision.reason in (PREEMPTED, OVER_QUOTA)
            self.evict(
                tracked,
                reason=decision.reason,
                message=sentences.taken_back(decision.message) if is_taken else decision.message,
                preemption=decision.preemption_reason,
                decided_by_engine=True,
            )

    def store_reasons(
        self,
        limit: int,
        *,
        untried: tuple[str, str] | None = None,
        isolated: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        """Store the reasons for waiting that have changed, after the engine has looked at up to `limit` workloads.

        `untried`: reason and sentence for those that it was not let try yet. `isolated`: see `Isolation.of`.
        """
        for park in self.engine.reasons(limit, isolated=isolated):
            tracked = self.registry.get(park.workload.uid)
            if tracked is None:
                continue
            pausing = (tracked.record.not_before or 0.0) > self._clock()
            if untried is not None and park.reason == PENDING_EVALUATION and not pausing:
                self._wait_for(tracked, *untried)
            else:
                self._wait_for(tracked, park.reason, park.message)

    def _wait_for(self, tracked: Tracked, reason: str, message: str) -> None:
        record = tracked.record
        # Why it is held is known better here.
        if (
            record.state is State.PENDING
            and not tracked.on_hold
            and (reason, message) != (record.reason, record.message)
        ):
            change = None
            if reason != record.reason and tracked.reason_changes < MOST_REASON_CHANGES:
                tracked.reason_changes += 1
                change = Transition(tracked.uid, self._clock(), State.PENDING, reason, message)
            self.batch.note(tracked.change(reason=reason, message=message), change)


def _shrunk(given: PodSetAssignment, count: int) -> PodSetAssignment:
    """With the quota of `count` pods."""
    # What was cut off at the most that can be counted is not known: of that nothing is given back early.
    usage = {
        resource: amount if amount >= UNLIMITED else amount * count // given.count
        for resource, amount in given.usage.items()
    }
    return replace(given, usage=usage, count=count)
