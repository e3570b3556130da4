"""What follows from one event for one workload: its new state, and what is told, written and requested because of it.

A change is computed by pure functions (`admission.controller.workloads.transition`) on a copy of the workload; nothing
has an effect before the `Reconciler` applies it. The methods are the moves of the life cycle: each changes the record,
and adds the events for the engine and the lines for the database that belong to it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from admission.controller.state.orders import describe
from admission.engine.events import WorkloadAdmitted, WorkloadEvicted, WorkloadGone, WorkloadPending
from admission.engine.vocabulary import MISCONFIGURED, PODS_UNSCHEDULED
from admission.model import sentences
from admission.store.records import CheckRecord, Closed, Eviction, Opened, Resized, State, Transition

if TYPE_CHECKING:
    from collections.abc import Collection

    from admission.controller.state.context import Reading
    from admission.controller.state.tracked import StartPatch, Tracked
    from admission.engine.events import Event
    from admission.kinds.base import Object
    from admission.model.workload import Admission, Workload
    from admission.store.records import Order

QUOTA_RESERVED = "QuotaReserved"
ADMITTED = "Admitted"
DEACTIVATED = "Deactivated"
ORDERED = "Ordered"

MOST_REASON_CHANGES = 100
"""Changes of the reason for waiting that get a line in the story; what follows counts for the last of them."""


class WorkloadChange:
    """The new state is `tracked`, a copy; the record to be written is `tracked.record`. `now`: Unix time (s)."""

    __slots__ = (
        "asked_checks",
        "deactivates",
        "dropped_checks",
        "engine_events",
        "frees_quota",
        "is_due",
        "is_new",
        "is_noted",
        "is_over",
        "is_written",
        "ledger",
        "lines",
        "now",
        "tracked",
        "waits_for_pods",
        "was_looked_at",
    )

    def __init__(self, tracked: Tracked, *, now: float, is_new: bool = False) -> None:
        self.tracked = tracked if is_new else replace(tracked)
        self.now = now
        self.is_new = is_new
        self.is_over = False
        """It has finished: nothing more is kept of it in memory."""
        self.engine_events: list[Event] = []
        self.is_written = False
        """Its record has changed, and is written with the next commit."""
        self.is_noted = False
        """Only why it waits has changed, or whether its pods are ready: that may be written some time later."""
        self.lines: list[Transition] = []
        """Of its story, as it happened; if `is_noted` alone, they may be written some time later."""
        self.ledger: list[Opened | Closed | Resized] = []
        """Beginnings, endings and sizes of its admissions, in order."""
        self.asked_checks: list[CheckRecord] = []
        """Admission checks that are asked, newly or anew."""
        self.dropped_checks: list[CheckRecord] = []
        """Those that are not asked any more."""
        self.deactivates = False
        """Sluice takes it out of the queue for good."""
        self.frees_quota = False
        self.is_due = False
        """Whether a request to the API server may be due after the commit."""
        self.waits_for_pods = False
        """Whether its pods have to be asked for until none is left, as its object does not tell of them."""
        self.was_looked_at = False
        """Whether its readiness and deadline were considered."""

    # --- what is written

    def write(self, *, reason: str = "", message: str = "") -> None:
        """Write the record, and a line of its story: what happened, by default why it is in its state."""
        record = self.tracked.record
        self.is_written = True
        self.lines.append(Transition(record.workload.uid, self.now, record.state, reason or record.reason, message))

    def note(self, line: Transition | None = None) -> None:
        """Write the record, and a line of its story, when a commit goes out anyway."""
        self.is_noted = True
        if line is not None:
            self.lines.append(line)

    # --- pending

    def arrive(self) -> None:
        """An object was queued that was not known before."""
        self.write(reason="Queued", message=self.tracked.record.message)
        self.tell_pending()

    def tell_pending(self) -> None:
        """Tell the engine how it waits."""
        tracked, record = self.tracked, self.tracked.record
        self.engine_events.append(
            WorkloadPending(record.workload, on_hold=tracked.on_hold, not_before=record.not_before or 0.0)
        )

    def requeue(self, reading: Reading, *, on_hold: bool, reason: str, message: str) -> None:
        """A waiting workload looks different: edited, moved to another queue, put on hold or taken off it."""
        self.tracked.on_hold = on_hold
        self.tracked.change(workload=reading.workload, reason=reason, message=message)
        self.write(message=message or sentences.REQUEUED)
        self.tell_pending()

    def wait_for(self, reason: str, message: str) -> None:
        """The engine says why it waits."""
        tracked, record = self.tracked, self.tracked.record
        line = None
        if reason != record.reason and tracked.reason_changes < MOST_REASON_CHANGES:
            tracked.reason_changes += 1
            line = Transition(tracked.uid, self.now, State.PENDING, reason, message)
        tracked.change(reason=reason, message=message)
        self.note(line)

    def bar(self, *, generation: int, message: str) -> None:
        """It waits, but cannot be started as it is; not tried again before it is edited."""
        self.tracked.refused, self.tracked.on_hold = (generation, message), True
        self.tracked.change(reason=MISCONFIGURED, message=message)
        self.write(message=message)
        self.tell_pending()

    def take_order(self, order: Order) -> None:
        """An admin has ordered something about it; what follows from that is decided when it is looked at."""
        tracked, before = self.tracked, self.tracked.order
        tracked.order = order
        if before is not None and before.revision >= order.revision:
            return
        if order.active is not None and order.active != tracked.record.active:
            fresh = {"requeues": 0, "not_before": None, "past_seconds": 0.0} if order.active else {}
            tracked.change(active=order.active, **fresh)
        if line := describe(order, before):
            self.write(reason=ORDERED, message=line)

    def bar_kind_unlisted(self) -> None:
        """It waits, but objects of its kind cannot be listed; as soon as it is seen it queues again."""
        workload = self.tracked.record.workload
        message = sentences.kind_unlisted(f"{workload.group}/{workload.kind.lower()}")
        self.tracked.on_hold = True
        self.tracked.change(reason=MISCONFIGURED, message=message)
        self.write(message=message)
        self.tell_pending()

    # --- admitted

    def admit(self, admission: Admission, start: StartPatch, *, checks: Collection[str] = ()) -> None:
        """The engine gave it quota; it may run at once, or as soon as admission `checks` say so."""
        tracked, now = self.tracked, self.now
        text = sentences.admitted(tracked.record.workload, admission)
        record = tracked.change(
            state=State.ADMITTED,
            cluster_queue=admission.cluster_queue,
            admission=admission,
            original=start.original,
            admitted_at=now,
            checks_pending=bool(checks),
            cleared_at=None if checks else now,
            not_before=None,
            reason=QUOTA_RESERVED if checks else ADMITTED,
            message=sentences.checks_pending([*checks]) if checks else text,
        )
        tracked.start_patch = None if checks else start
        self.write(message=f"{text} {record.message}" if checks else text)
        self.ledger.append(Opened(record.workload, admission, now))
        self.is_due = True

    def clear(self, start: StartPatch) -> None:
        """All admission checks say that it may run."""
        tracked = self.tracked
        admission = tracked.record.admission
        assert admission is not None, tracked
        message = sentences.admitted(tracked.record.workload, admission)
        tracked.change(
            checks_pending=False, cleared_at=self.now, original=start.original, reason=ADMITTED, message=message
        )
        tracked.start_patch = start
        self.write(message=f"{message} All admission checks are ready.")
        self.is_due = True

    def tell_admitted(self) -> None:
        """Tell the engine what it holds: when the state is loaded, or when that has changed."""
        record = self.tracked.record
        assert record.admission is not None, record
        at = record.admitted_at if record.admitted_at is not None else record.queued_at
        evicting = record.state is State.EVICTING
        self.engine_events.append(WorkloadAdmitted(record.workload, record.admission, at=at, evicting=evicting))

    def note_pod_problem(self, text: str) -> None:
        """What keeps pods of an admitted workload from running; empty: nothing does."""
        record = self.tracked.record
        if record.state is not State.ADMITTED or record.admission is None or record.checks_pending:
            return
        if text and text != record.message:
            self.tracked.change(reason=PODS_UNSCHEDULED, message=text)
            self.note()
        elif not text and record.reason == PODS_UNSCHEDULED:
            self.tracked.change(reason=ADMITTED, message=sentences.admitted(record.workload, record.admission))
            self.note()

    def resize(self, admission: Admission, workload: Workload, *, why: str) -> None:
        """The same admission holds another amount from now on; `workload` with the pods that it is for."""
        self.tracked.change(admission=admission, workload=workload)
        self.ledger.append(Resized(workload, admission, self.now, why))
        self.tell_admitted()

    def ask_for(self, larger: Workload) -> None:
        """This larger version of it waits for quota, beside what it holds (see `scaling`)."""
        self.tracked.larger, self.tracked.larger_barred = larger, ""
        self.engine_events.append(WorkloadPending(larger))

    def ask_no_more(self) -> None:
        """It wants no more pods than it has quota for, or is to stop."""
        if self.tracked.larger is not None:
            self.engine_events.append(WorkloadGone(self.tracked.larger.uid))
            self.tracked.larger, self.tracked.larger_barred = None, ""

    def tell_wish(self, text: str) -> None:
        """Say, beside where it runs, that it asks for more pods than it has quota for; empty: it does not."""
        record = self.tracked.record
        if record.reason != ADMITTED or record.admission is None or not (text or sentences.ASKS in record.message):
            return
        message = " ".join(filter(None, [sentences.admitted(record.workload, record.admission), text]))
        if message != record.message:
            self.tracked.change(message=message)
            self.note()

    def amend(self, *, original: Object) -> None:
        """It was edited between admission and start: what will have to be restored is different now."""
        self.tracked.change(original=original)
        self.write(reason="Edited")
        self.is_due = True

    # --- evicted

    def evict(
        self, *, reason: str, message: str, preemption: str = "", decided_by_engine: bool = False, **fields: Any
    ) -> None:
        """It must give its quota back; it holds it until its pods are gone. `fields` are of its record.

        `preemption`: Kueue's reason, as InCohortReclamation, if it is preempted.
        """
        workload = self.tracked.record.workload
        if workload.queued_at is not None:  # that was for an earlier eviction
            fields = {"workload": replace(workload, queued_at=None), **fields}
        eviction = Eviction(reason, message, self.now, preemption)
        self.tracked.change(
            state=State.EVICTING, evict_reason=reason, eviction=eviction, reason=reason, message=message, **fields
        )
        self.tracked.start_patch, self.tracked.surplus = None, frozenset()
        self.write(message=message)
        self.ask_no_more()
        self._ask_again()
        if not decided_by_engine:
            self.engine_events.append(WorkloadEvicted(self.tracked.uid))
        self.is_due = True

    def note_stop_refused(self, text: str) -> None:
        """What keeps it from being stopped, or given back; empty: nothing does."""
        record = self.tracked.record
        if record.state is not State.EVICTING or record.eviction is None:
            return
        if (message := text or record.eviction.message) != record.message:
            self.tracked.change(message=message)
            self.note()

    def deactivate(self, *, cause: str, because: str) -> None:
        """It must give its quota back and does not queue again before it is activated."""
        self.evict(
            reason=f"{DEACTIVATED}DueTo{cause}",
            message=sentences.deactivated(because),
            active=False,
            requeues=0,
            not_before=None,
        )
        self.deactivates = True
        if self.tracked.order is not None:
            self.tracked.order = replace(self.tracked.order, active=None)

    def refuse(self, *, generation: int, message: str) -> None:
        """The API server will not have it started as it is: its quota goes back, and it waits for an edit."""
        self.tracked.refused = (generation, message)
        self.evict(reason=MISCONFIGURED, message=message)

    def _ask_again(self) -> None:
        """As in Kueue, what checks said counts no more after an eviction."""
        checks = []
        for check in self.tracked.checks:
            if check.state == "Pending":
                checks.append(check)
                continue
            anew = CheckRecord(
                uid=check.uid,
                name=check.name,
                state="Pending",
                at=self.now,
                message=f"Reset to Pending after eviction. Previously: {check.state}",
                requeue_after_seconds=check.requeue_after_seconds,
                retries=check.retries + (check.state == "Retry"),
            )
            self.asked_checks.append(anew)
            checks.append(anew)
        self.tracked.checks = tuple(checks)

    def release(self, reading: Reading, *, on_hold: bool, reason: str, message: str) -> None:
        """It is stopped and restored: its quota is free, and it waits again.

        Its `original` stays on record: the start of an earlier leader may still come through.
        """
        tracked, before, now = self.tracked, self.tracked.record, self.now
        self.frees_quota = True
        self.ledger.append(Closed(tracked.uid, now, before.evict_reason))
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
        self.write(reason="Requeued" if record.active else reason, message=message)
        not_before = record.not_before or 0.0
        self.engine_events.append(
            WorkloadGone(tracked.uid, requeue=reading.workload, on_hold=on_hold, not_before=not_before)
        )

    # --- finished

    def finish(self, *, outcome: str, message: str) -> None:
        """It is over: done, failed, deleted, or not for Sluice any more."""
        tracked = self.tracked
        if tracked.holds_quota:
            self.frees_quota = True
            self.ledger.append(Closed(tracked.uid, self.now, outcome))
        tracked.change(
            state=State.FINISHED, admission=None, finished_at=self.now, outcome=outcome, reason=outcome, message=message
        )
        self.write(reason=outcome, message=message)
        self.ask_no_more()
        self.engine_events.append(WorkloadGone(tracked.uid))
        self.is_over = True
