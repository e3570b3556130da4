"""Result of a transition of one workload: its new state, events for the engine, and changes for the next commit.

A change is computed by pure functions (`admission.controller.workloads.transition`) on a copy of the workload; it has
no effect before the `Reconciler` applies it. The methods are the steps of the lifecycle: each changes the record, and
adds the events for the engine, the ledger entries and the history entries that belong to it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from admission.controller.state.orders import describe
from admission.engine.events import (
    WorkloadAdmitted,
    WorkloadCleared,
    WorkloadEvicted,
    WorkloadGone,
    WorkloadPending,
)
from admission.engine.vocabulary import CLUSTER_UNAVAILABLE, MISCONFIGURED, PODS_UNSCHEDULED
from admission.model import sentences
from admission.store.records import CheckRecord, Closed, LastEviction, Opened, Resized, State, Transition

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

MAX_REASON_CHANGES = 100
"""Changes of the reason for waiting that are added to a workload's history; later time counts for the last one."""


class WorkloadChange:
    """A change of one workload. `tracked`: the new state, a copy, with the record to write. `now`: Unix time (s)."""

    __slots__ = (
        "deactivates",
        "dropped_checks",
        "engine_events",
        "frees_quota",
        "is_due",
        "is_finished",
        "is_new",
        "is_written",
        "is_written_later",
        "ledger",
        "now",
        "requested_checks",
        "tracked",
        "transitions",
        "waits_for_pods",
        "was_evaluated",
    )

    def __init__(self, tracked: Tracked, *, now: float, is_new: bool = False) -> None:
        self.tracked = tracked if is_new else replace(tracked)
        self.now = now
        self.is_new = is_new
        self.is_finished = False
        """Whether it has finished, and is removed from memory."""
        self.engine_events: list[Event] = []
        """Events for the engine, in order."""
        self.is_written = False
        """Whether its record is written with the next commit, which is due soon."""
        self.is_written_later = False
        """Whether its record may be written later: only reason, message or the readiness of its pods has changed."""
        self.transitions: list[Transition] = []
        """History entries, in order; with `is_written_later` alone they are written later, too."""
        self.ledger: list[Opened | Closed | Resized] = []
        """Starts, ends and new sizes of its admissions, in order."""
        self.requested_checks: list[CheckRecord] = []
        """Admission checks that are requested, or requested again after an eviction."""
        self.dropped_checks: list[CheckRecord] = []
        """Admission checks that are no longer required."""
        self.deactivates = False
        """Whether Sluice deactivates it: it does not queue again before it is activated."""
        self.frees_quota = False
        """Whether it releases quota."""
        self.is_due = False
        """Whether a request to the API server may be due after the commit."""
        self.waits_for_pods = False
        """Whether its pods have to be listed until none is left, as its object does not report them."""
        self.was_evaluated = False
        """Whether the readiness of its pods and its deadline were evaluated."""

    # --- writing

    def write(self, *, reason: str = "", message: str = "") -> None:
        """Write the record with the next commit, and add a history entry; `reason` is by default that of the record."""
        record = self.tracked.record
        self.is_written = True
        entry = Transition(record.workload.uid, self.now, record.state, reason or record.reason, message)
        self.transitions.append(entry)

    def write_later(self, transition: Transition | None = None) -> None:
        """Write the record, and a history entry if given, with a later commit: neither makes a commit due."""
        self.is_written_later = True
        if transition is not None:
            self.transitions.append(transition)

    # --- pending

    def arrive(self) -> None:
        """Queue a new workload."""
        self.write(reason="Queued", message=self.tracked.record.message)
        self.report_pending()

    def report_pending(self) -> None:
        """Report it to the engine as pending."""
        tracked, record = self.tracked, self.tracked.record
        self.engine_events.append(
            WorkloadPending(record.workload, on_hold=tracked.on_hold, not_before=record.not_before or 0.0)
        )

    def requeue(self, reading: Reading, *, on_hold: bool, reason: str, message: str) -> None:
        """Update a pending workload: it was edited, moved to another queue, put on hold or released."""
        self.tracked.on_hold = on_hold
        self.tracked.change(workload=reading.workload, reason=reason, message=message)
        self.write(message=message or sentences.REQUEUED)
        self.report_pending()

    def set_waiting_reason(self, reason: str, message: str) -> None:
        """Store the engine's reason why it is pending."""
        tracked, record = self.tracked, self.tracked.record
        transition = None
        if reason != record.reason and tracked.reason_changes < MAX_REASON_CHANGES:
            tracked.reason_changes += 1
            transition = Transition(tracked.uid, self.now, State.PENDING, reason, message)
        tracked.change(reason=reason, message=message)
        self.write_later(transition)

    def block(self, *, generation: int, message: str) -> None:
        """Mark a pending workload as impossible to start as it is; it is tried again when its object is edited.

        `generation`: that of the object. `message`: why, for the user.
        """
        self.tracked.refused, self.tracked.on_hold = (generation, message), True
        self.tracked.change(reason=MISCONFIGURED, message=message)
        self.write(message=message)
        self.report_pending()

    def apply_order(self, order: Order) -> None:
        """Store an admin's order; its effects on queue, priority and hold follow when the object is evaluated next."""
        tracked, before = self.tracked, self.tracked.order
        tracked.order = order
        if before is not None and before.revision >= order.revision:
            return
        if order.active is not None and order.active != tracked.record.active:
            fresh = {"requeues": 0, "not_before": None, "past_seconds": 0.0} if order.active else {}
            tracked.change(active=order.active, **fresh)
        if message := describe(order, before):
            self.write(reason=ORDERED, message=message)

    def block_kind_unlisted(self) -> None:
        """Block a pending workload whose kind cannot be listed; it queues again once its object is seen."""
        workload = self.tracked.record.workload
        message = sentences.kind_unlisted(f"{workload.group}/{workload.kind.lower()}")
        self.tracked.on_hold = True
        self.tracked.change(reason=MISCONFIGURED, message=message)
        self.write(message=message)
        self.report_pending()

    def block_cluster_closed(self, message: str) -> None:
        """Block a pending workload in a cluster that is not open; it queues again once its object is seen."""
        self.tracked.on_hold = True
        self.tracked.change(reason=CLUSTER_UNAVAILABLE, message=message)
        self.write(message=message)
        self.report_pending()

    # --- admitted

    def admit(self, admission: Admission, start: StartPatch, *, checks: Collection[str] = ()) -> None:
        """Admit it: it may start immediately, or when all admission `checks` (names) are Ready."""
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
        """Allow an admitted workload to start: all its admission checks are Ready."""
        tracked = self.tracked
        admission = tracked.record.admission
        assert admission is not None, tracked
        message = sentences.admitted(tracked.record.workload, admission)
        tracked.change(
            checks_pending=False, cleared_at=self.now, original=start.original, reason=ADMITTED, message=message
        )
        tracked.start_patch = start
        self.engine_events.append(WorkloadCleared(tracked.uid, self.now))
        self.write(message=f"{message} All admission checks are ready.")
        self.is_due = True

    def report_admitted(self) -> None:
        """Report its admission to the engine: when the state is loaded, or when the admission has changed."""
        record = self.tracked.record
        assert record.admission is not None, record
        at = record.admitted_at if record.admitted_at is not None else record.queued_at
        evicting = record.state is State.EVICTING
        cleared_at = record.cleared_at or 0.0
        self.engine_events.append(
            WorkloadAdmitted(record.workload, record.admission, at=at, evicting=evicting, cleared_at=cleared_at)
        )

    def note_pod_problem(self, text: str) -> None:
        """Store the message why pods of an admitted workload do not run; empty: they run, or the cause is not known."""
        record = self.tracked.record
        if record.state is not State.ADMITTED or record.admission is None:
            return
        if record.checks_pending:
            # Its checks are Ready, if there is no place for pods that wait for them; it keeps the reason QuotaReserved.
            if text and any(each.delayed and each.topology is None for each in record.admission.pod_sets):
                self.tracked.change(message=text)
                self.write_later()
            return
        if text and text != record.message:
            self.tracked.change(reason=PODS_UNSCHEDULED, message=text)
            self.write_later()
        elif not text and record.reason == PODS_UNSCHEDULED:
            self.tracked.change(reason=ADMITTED, message=sentences.admitted(record.workload, record.admission))
            self.write_later()

    def resize(self, admission: Admission, workload: Workload, *, why: str) -> None:
        """Change the size of its admission. `workload`: with the new pod counts. `why`: end reason of the old rows."""
        self.tracked.change(admission=admission, workload=workload)
        self.ledger.append(Resized(workload, admission, self.now, why))
        self.report_admitted()

    def queue_larger(self, larger: Workload) -> None:
        """Queue a larger version of an admitted workload, which keeps its quota meanwhile (see `scaling`)."""
        self.tracked.larger, self.tracked.larger_obstacle = larger, ""
        self.engine_events.append(WorkloadPending(larger))

    def withdraw_larger(self) -> None:
        """Withdraw the larger version: no more pods than it has quota for are requested, or it is being stopped."""
        if self.tracked.larger is not None:
            self.engine_events.append(WorkloadGone(self.tracked.larger.uid))
            self.tracked.larger, self.tracked.larger_obstacle = None, ""

    def report_larger(self, text: str) -> None:
        """Append to its message that it requests more pods than it has quota for; empty: remove that."""
        record = self.tracked.record
        if record.reason != ADMITTED or record.admission is None or not (text or sentences.ASKS in record.message):
            return
        message = " ".join(filter(None, [sentences.admitted(record.workload, record.admission), text]))
        if message != record.message:
            self.tracked.change(message=message)
            self.write_later()

    def amend(self, *, original: Object) -> None:
        """Replace the values to restore: the object was edited between admission and start."""
        self.tracked.change(original=original)
        self.write(reason="Edited")
        self.is_due = True

    # --- evicted

    def evict(
        self,
        *,
        reason: str,
        message: str,
        preemption: str = "",
        decided_by_engine: bool = False,
        to_queue_end: bool = False,
        **fields: Any,
    ) -> None:
        """Evict it; it holds its quota until its pods have terminated.

        `preemption`: Kueue's preemption reason, such as InCohortReclamation, if it is preempted.
        `decided_by_engine`: the engine knows of the eviction. `to_queue_end`: it queues again as if it were created
        now. `fields`: further fields of its record to change.
        """
        workload = self.tracked.record.workload
        if to_queue_end or workload.queued_at is not None:  # the position that it got by an earlier eviction
            fields = {"workload": replace(workload, queued_at=self.now if to_queue_end else None), **fields}
        admission = self.tracked.record.admission
        if admission is not None and admission.cluster:
            self.tracked.sent_to = admission.cluster
        eviction = LastEviction(reason, message, self.now, preemption)
        self.tracked.change(
            state=State.EVICTING, evict_reason=reason, eviction=eviction, reason=reason, message=message, **fields
        )
        self.tracked.start_patch, self.tracked.surplus_pod_sets = None, frozenset()
        self.write(message=message)
        self.withdraw_larger()
        self._reset_checks()
        if not decided_by_engine:
            self.engine_events.append(WorkloadEvicted(self.tracked.uid))
        self.is_due = True

    def note_stop_hindered(self, text: str) -> None:
        """Store the message why it is not stopped, or its object not restored; empty: nothing is in the way."""
        record = self.tracked.record
        if record.state is not State.EVICTING or record.eviction is None:
            return
        if (message := text or record.eviction.message) != record.message:
            self.tracked.change(message=message)
            self.write_later()

    def deactivate(self, *, cause: str, because: str) -> None:
        """Evict it and deactivate it: it does not queue again before it is activated.

        `cause`: as in Kueue's reason `DeactivatedDueTo<cause>`. `because`: clause for the message, after "because".
        """
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
        """Evict it, because the API server refuses to start it as it is; it is tried again when it is edited."""
        self.tracked.refused = (generation, message)
        self.evict(reason=MISCONFIGURED, message=message)

    def _reset_checks(self) -> None:
        """Reset its admission checks to Pending, as Kueue does after an eviction.

        Also those that are Pending here are written: another replica may have stored an answer that is not read yet.
        It is for the admission that ends, and must not let the next one start.
        """
        self.tracked.checks = tuple(self._reset(check) for check in self.tracked.checks)
        self.requested_checks += self.tracked.checks

    def _reset(self, check: CheckRecord) -> CheckRecord:
        if check.state == "Pending":
            return check
        return CheckRecord(
            uid=check.uid,
            name=check.name,
            state="Pending",
            at=self.now,
            message=f"Reset to Pending after eviction. Previously: {check.state}",
            requeue_after_seconds=check.requeue_after_seconds,
            retries=check.retries + (check.state == "Retry"),
        )

    def release(self, reading: Reading, *, on_hold: bool, reason: str, message: str) -> None:
        """Release the quota of an evicted workload, which is stopped and restored, and queue it again.

        Its `original` stays stored: a start patch of a former leader may still take effect.
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
        """Finish it: it has succeeded or failed, was deleted, or is not managed by Sluice any more."""
        tracked = self.tracked
        if tracked.holds_quota:
            self.frees_quota = True
            self.ledger.append(Closed(tracked.uid, self.now, outcome))
        tracked.change(
            state=State.FINISHED, admission=None, finished_at=self.now, outcome=outcome, reason=outcome, message=message
        )
        self.write(reason=outcome, message=message)
        self.withdraw_larger()
        self.engine_events.append(WorkloadGone(tracked.uid))
        self.is_finished = True
