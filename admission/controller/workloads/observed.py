"""Rules for observed objects: arrival, edits, holds, moves between queues, completion, deletion.

Pure functions on a change.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from admission.controller.state.context import Reading, read
from admission.controller.state.orders import with_order
from admission.controller.state.tracked import Tracked
from admission.controller.state.triggers import ContextChange
from admission.controller.state.workload_change import DEACTIVATED, WorkloadChange
from admission.controller.workloads import admitted, scaling
from admission.controller.workloads.admitted import evaluate
from admission.engine.vocabulary import (
    ADMISSION_GATED,
    BEING_DELETED,
    CLUSTER_UNAVAILABLE,
    MISCONFIGURED,
    ON_HOLD,
    PENDING_EVALUATION,
)
from admission.kinds.abilities import restored
from admission.kinds.dispatched import status_patch
from admission.model import sentences
from admission.model.errors import Misconfigured
from admission.store.records import DEQUEUED, FAILED, SUCCEEDED, State, WorkloadRecord

if TYPE_CHECKING:
    from admission.controller.state.triggers import (
        ClaimsChanged,
        DeadlineReached,
        LastPodEnded,
        ObjectDeleted,
        ObjectSeen,
        Ordered,
        Stopped,
    )
    from admission.controller.workloads.environment import Environment
    from admission.kinds.base import Kind, Object, Observed, Outcome
    from admission.kinds.limits import NamespaceContext
    from admission.model.workload import PodSet, Workload
    from admission.store.records import LastEviction, Order

OUT_OF_SYNC = "OutOfSync"
"""Reason of an eviction because a running object was edited."""
DELETED = "Deleted"
EVICTED = "Evicted"
"""Outcome of a workload whose object was stopped by deletion (a pod)."""
MOVED = "Moved"
PRIORITIZED = "Prioritized"


def arrival(event: ObjectSeen, environment: Environment, *, now: float) -> WorkloadChange:
    """Return the change for a new workload: an object with a queue that was not known before. `now`: Unix time (s)."""
    seen, obj = event.seen, event.object
    reading = read(environment.kinds, seen, obj, environment.context, now=now)
    on_hold, reason, message = hold_state(seen, reading, None)
    record = WorkloadRecord(reading.workload, State.PENDING, queued_at=now, reason=reason, message=message)
    tracked = Tracked(record, on_hold=on_hold, own_priority=reading.workload.priority)
    tracked.pod_class, tracked.deadline = seen.pod_priority_class, reading.until
    tracked.update_object(seen, obj)
    change = WorkloadChange(tracked, now=now, is_new=True)
    change.arrive()
    is_sent = seen.is_dispatched and environment.context.dispatch_rule(seen.namespace, seen.queue) is not None
    # Otherwise it is suspended already, and says so.
    change.is_due = not seen.suspended or seen.deleting or (is_sent and bool(status_patch(seen.kind, obj, None)))
    return change


def object_seen(change: WorkloadChange, event: ObjectSeen, environment: Environment) -> None:
    """Process a version of the object. Idempotent; versions may be skipped, but none is older than the known one."""
    tracked, seen = change.tracked, event.seen
    before = (tracked.object or event.object) if _may_be_edited(tracked, seen) else None
    if tracked.barred:
        tracked.barred = {name: bar for name, bar in tracked.barred.items() if bar[0] > change.now}
    tracked.update_object(seen, event.object)
    _update(change, seen, event.object, before, environment)
    # Otherwise it is pending and suspended, and no request is due.
    change.is_due = tracked.record.state is not State.PENDING or not seen.suspended or tracked.started_late


def object_deleted(change: WorkloadChange, event: ObjectDeleted, environment: Environment) -> None:
    """Process the deletion of the object. Its pods may still exist, unless the object was a pod itself."""
    tracked, last = change.tracked, event.last
    if tracked.record.admission is not None and tracked.record.admission.cluster:
        _original_deleted(change)
        return
    kind = environment.kinds.of(tracked.record.workload)
    is_pod = kind is not None and not kind.pods_label
    had_pods = not is_pod and (last is None or tracked.unsettled or last.active or not last.suspended)
    if last is None:
        tracked.unsettled = False  # not observed, so this process has not started it
    tracked.seen = tracked.object = None
    if is_pod and tracked.record.state is State.EVICTING:
        change.finish(outcome=EVICTED, message=tracked.record.message)
        return
    if is_pod and tracked.record.state is State.PENDING and last is not None and not last.suspended:
        change.finish(outcome=DELETED, message=sentences.POD_WITHOUT_QUOTA)
        return
    if is_pod and last is not None and (eviction := _was_evicted_for_good(tracked, last)) is not None:
        change.finish(outcome=EVICTED, message=eviction.message)
        return
    if tracked.finished_as is not None:
        change.waits_for_pods = True
        return
    if not (tracked.holds_quota and had_pods):
        change.finish(outcome=DELETED, message="")
        return
    if tracked.record.state is State.ADMITTED:
        change.evict(reason=DELETED, message=sentences.DELETED_WITH_PODS)
    tracked.wait_number = 0
    change.waits_for_pods = True


def _original_deleted(change: WorkloadChange) -> None:
    """Process the deletion of the object of a dispatched workload: it holds its quota until its copy is gone."""
    tracked = change.tracked
    tracked.seen = tracked.object = None
    if tracked.record.state is State.ADMITTED:
        change.evict(reason=DELETED, message=sentences.DELETED_WITH_PODS)
    elif tracked.record.evict_reason != DELETED:
        tracked.change(evict_reason=DELETED, message=sentences.DELETED_WITH_PODS)
        change.write(message=sentences.DELETED_WITH_PODS)


def _was_evicted_for_good(tracked: Tracked, last: Observed) -> LastEviction | None:
    """Return the workload's last eviction if its pods were not recreated after it, else None.

    The pods may have terminated some time before their objects were deleted.
    """
    record = tracked.record
    is_over = record.state is State.PENDING and not any(count.left for count in last.counts)
    return record.eviction if is_over else None


def last_pod_ended(change: WorkloadChange, event: LastPodEnded, environment: Environment) -> None:
    """Process that no unfinished pod is left: the object is deleted, or its status does not show that."""
    tracked = change.tracked
    if event.wait_number != tracked.wait_number:
        return
    tracked.wait_number, tracked.unsettled = 0, False
    if tracked.finished_as is not None:
        _finish_as(change, tracked.finished_as)
    elif tracked.seen is None:
        change.finish(outcome=DELETED, message="")
    elif (obj := tracked.object) is not None:
        change.is_due = True
        _update(change, tracked.seen, obj, None, environment)


def context_changed(change: WorkloadChange, _: ContextChange, environment: Environment) -> None:
    """Compute a pending workload's pod sets and priority again; hold one that was not observed in a closed cluster.

    An admitted one that asks for more pods may get them now, or not any more, where it was dispatched to.
    """
    tracked = change.tracked
    if tracked.record.state is not State.PENDING:
        if tracked.record.state is State.ADMITTED and tracked.runs_elsewhere and tracked.seen is not None:
            scaling.request_more(change, tracked.seen, environment)
        return
    if tracked.seen is not None and (obj := tracked.object) is not None:
        _update_pending(change, tracked.seen, obj, environment)
    elif (closed := environment.context.closed) and (not tracked.on_hold or tracked.record.message != closed):
        change.block_cluster_closed(closed)


def deadline_reached(change: WorkloadChange, event: DeadlineReached, environment: Environment) -> None:
    """Let a pending workload be dispatched to a further cluster; see `admitted.deadline_reached` for others."""
    if change.tracked.record.state is State.PENDING:
        context_changed(change, ContextChange(), environment)
    else:
        admitted.deadline_reached(change, event, environment)


def claims_changed(change: WorkloadChange, _: ClaimsChanged, environment: Environment) -> None:
    """Compute a pending workload's pod sets again; stop an admitted one whose pods would get more devices now."""
    tracked = change.tracked
    workload, admission = tracked.record.workload, tracked.record.admission
    if tracked.record.state is not State.ADMITTED or admission is None:
        context_changed(change, ContextChange(), environment)
    elif more := environment.context.devices.more(workload.pod_sets, workload.namespace, admission):
        change.evict(reason=OUT_OF_SYNC, message=sentences.claims_grown(more))


def stopped(change: WorkloadChange, _: Stopped, environment: Environment) -> None:
    """Requeue an evicted workload that is stopped and restored, with the pod sets that its object now requests."""
    tracked = change.tracked
    seen, obj = tracked.seen, tracked.object
    assert seen is not None, tracked
    assert obj is not None, tracked
    reading = _read(tracked, seen, obj, environment, now=change.now)
    tracked.deadline = reading.until
    on_hold, reason, message = hold_state(seen, reading, tracked)
    change.release(reading, on_hold=on_hold, reason=reason, message=message)
    if not seen.queue and not _is_held_by_admin(tracked):
        change.finish(outcome=DEQUEUED, message=sentences.UNLABELLED)


def ordered(change: WorkloadChange, event: Ordered, environment: Environment) -> None:
    """Apply an admin's order."""
    tracked = change.tracked
    change.apply_order(event.order)
    if tracked.seen is not None and (obj := tracked.object) is not None:  # else: when it is observed
        _update(change, tracked.seen, obj, None, environment)


def _update(
    change: WorkloadChange, seen: Observed, obj: Object, before: Object | None, environment: Environment
) -> None:
    """Apply the rules for the workload's state. `before`: the previous version, see `_is_edited`."""
    tracked = change.tracked
    if seen.finished is not None:
        _finish(change, seen, seen.finished)
        return
    tracked.finished_as = None
    match tracked.record.state:
        case State.PENDING if not seen.queue and seen.suspended and not _is_held_by_admin(tracked):
            text = sentences.UNLABELLED_POD if seen.kind.ends_by_deletion else sentences.UNLABELLED
            change.finish(outcome=DEQUEUED, message=text)
        case State.PENDING:
            _update_pending(change, seen, obj, environment)
        case State.ADMITTED:
            _update_admitted(change, seen, obj, before, environment)
            evaluate(change, environment)
        case _:
            evaluate(change, environment)


def _finish(change: WorkloadChange, seen: Observed, outcome: Outcome) -> None:
    """Finish the workload of a finished object, or wait for its pods: its controller may leave some of them running.

    A pod that was stopped by deletion reports a failure, which is none.
    """
    tracked = change.tracked
    if tracked.holds_quota and not seen.kind.reports_pods:
        if tracked.finished_as is None:
            tracked.change(message=sentences.FINISHED_WITH_PODS)
            change.write_later()
        tracked.finished_as = outcome
        change.waits_for_pods = True
    elif outcome.succeeded or not (seen.kind.ends_by_deletion and seen.deleting):
        _finish_as(change, outcome)
    elif tracked.record.state is State.EVICTING:
        change.finish(outcome=EVICTED, message=tracked.record.message)
    else:
        change.finish(outcome=DELETED, message="")


def _finish_as(change: WorkloadChange, outcome: Outcome) -> None:
    change.finish(outcome=SUCCEEDED if outcome.succeeded else FAILED, message=outcome.message)


def _update_pending(change: WorkloadChange, seen: Observed, obj: Object, environment: Environment) -> None:
    """Requeue a pending workload if its pod sets, queue or hold state have changed."""
    tracked, record = change.tracked, change.tracked.record
    reading = _read(tracked, seen, obj, environment, now=change.now)
    tracked.deadline = reading.until
    on_hold, reason, message = hold_state(seen, reading, tracked)
    has_late_start = _has_late_start(tracked, seen, obj)
    if has_late_start:
        on_hold, reason, message = True, PENDING_EVALUATION, sentences.START_CAME_LATE
    before, now = record.workload, reading.workload
    if (before.clusters, before.passed_over) != (now.clusters, now.passed_over) and on_hold == tracked.on_hold:
        _update_destinations(change, now)
        record = tracked.record
    is_same = (
        reading.workload == record.workload and on_hold == tracked.on_hold and has_late_start == tracked.started_late
    )
    if is_same and (not on_hold or message == record.message):
        return
    tracked.note_late_start(has_late_start)
    change.requeue(reading, on_hold=on_hold, reason=reason, message=message)


def _update_destinations(change: WorkloadChange, now: Workload) -> None:
    """Note to which clusters a pending workload may be dispatched now; nothing of that is stored."""
    tracked = change.tracked
    clusters, passed_over = now.clusters, now.passed_over
    tracked.change(workload=replace(tracked.record.workload, clusters=clusters, passed_over=passed_over))
    change.report_pending()


def _has_late_start(tracked: Tracked, seen: Observed, obj: Object) -> bool:
    """Return whether the object carries what a start injected whose PATCH was applied after the eviction.

    Only a start injects and unsuspends in one request; a user may add the same fields to a suspended object.
    """
    original, suspension = tracked.record.original, seen.kind.suspension
    if original is None or suspension is None:
        return False
    return (not seen.suspended or tracked.started_late) and suspension.carries_start(obj, original)


def _read(tracked: Tracked, seen: Observed, obj: Object, environment: Environment, *, now: float) -> Reading:
    """Return the workload as the object now requests it, with its position in the queue and the admin's order."""
    record = tracked.record
    if not seen.queue or (record.workload.user and (seen.user, seen.groups) != _submitter(record.workload)):
        # Without the label it stays queued until it is seen suspended. The user who submitted it does not change.
        user, groups = _submitter(record.workload if record.workload.user else seen)
        seen = replace(seen, queue=seen.queue or record.workload.queue, user=user, groups=groups)
    unordered = record.workload if tracked.order is None else None
    moved_to = None if tracked.order is None else tracked.order.local_queue
    reading = read(
        environment.kinds, seen, obj, environment.context,
        former=record.workload, known=unordered, moved_to=moved_to, barred=tracked.barred,
        sent_to=tracked.sent_to, now=now,
    )  # fmt: skip
    if tracked.own_priority is None or record.reason == MISCONFIGURED or _has_other_class(tracked, seen):
        tracked.own_priority = reading.workload.priority
    tracked.pod_class = seen.pod_priority_class
    # As in Kueue, a changed value of a priority class applies to workloads that are created after the change.
    workload, queued_at = reading.workload, record.workload.queued_at
    if (workload.priority, workload.queued_at) != (tracked.own_priority, queued_at):
        workload = replace(workload, priority=tracked.own_priority, queued_at=queued_at)
    if workload is record.workload:
        return reading
    return replace(reading, workload=with_order(workload, tracked.order))


def _submitter(source: Workload | Observed) -> tuple[str, tuple[str, ...]]:
    return source.user, source.groups


def _update_admitted(
    change: WorkloadChange, seen: Observed, obj: Object, before: Object | None, environment: Environment
) -> None:
    """Evict an admitted workload if it may not keep its quota; else follow its priority and its number of pods."""
    tracked = change.tracked
    order, queue = tracked.order, tracked.record.workload.queue
    if not tracked.record.active:
        change.evict(reason=DEACTIVATED, message=_deactivation(tracked)[2])
    elif order is not None and order.held:
        change.evict(reason=ON_HOLD, message=sentences.put_on_hold(order.author, order.reason))
    elif seen.on_hold:
        change.evict(reason=ON_HOLD, message=sentences.HELD)
    elif order is not None and order.local_queue not in (None, queue):
        change.evict(reason=MOVED, message=sentences.moved(order.local_queue or queue))
    elif seen.deleting and not seen.active and not tracked.unsettled:
        change.evict(reason=DELETED, message=sentences.DELETED_WITHOUT_PODS)
    elif order is None and seen.queue not in ("", queue):
        change.evict(reason=MOVED, message=sentences.moved(seen.queue))
    elif _is_edited(tracked, seen, obj, before, environment):
        change.evict(reason=OUT_OF_SYNC, message=sentences.EDITED)
    else:
        _update_priority(change, seen, environment)
        scaling.follow_pod_counts(change, seen, environment)


def _has_other_class(tracked: Tracked, seen: Observed) -> bool:
    """Return whether the object names another priority class than before, by label or in its pod template."""
    by_label = seen.priority_class != tracked.record.workload.priority_class
    return by_label or tracked.pod_class not in (None, seen.pod_priority_class)


def _update_priority(change: WorkloadChange, seen: Observed, environment: Environment) -> None:
    """Apply a changed priority to an admitted workload: it decides which workloads may preempt it."""
    tracked = change.tracked
    workload, order = tracked.record.workload, tracked.order
    if tracked.own_priority is None or _has_other_class(tracked, seen):
        try:
            tracked.own_priority = environment.context.priority(
                workload_class=seen.priority_class, pod_class=seen.pod_priority_class
            )
        except Misconfigured:
            return  # the class does not exist: a running workload keeps the priority that it was admitted with
    tracked.pod_class = seen.pod_priority_class
    priority = tracked.own_priority if order is None or order.priority is None else order.priority
    if (priority, seen.priority_class) != (workload.priority, workload.priority_class):
        tracked.change(workload=replace(workload, priority=priority, priority_class=seen.priority_class))
        change.write(reason=PRIORITIZED, message=f"priority {priority}")
        change.report_admitted()


def _is_held_by_admin(tracked: Tracked) -> bool:
    return not tracked.record.active or (tracked.order is not None and tracked.order.held)


def hold_state(seen: Observed, reading: Reading, tracked: Tracked | None) -> tuple[bool, str, str]:
    """Return (on_hold, reason, message) of a pending workload: why it takes no part in scheduling cycles.

    (False, PendingEvaluation, "") if it does. `tracked`: None for a new workload.
    """
    if tracked is not None and not tracked.record.active:
        return _deactivation(tracked)
    if reading.fault:
        return True, MISCONFIGURED, reading.fault
    if tracked is not None and tracked.refused is not None and tracked.refused[0] == seen.generation:
        return True, MISCONFIGURED, tracked.refused[1]
    if tracked is not None and tracked.order is not None and tracked.order.held:
        return True, ON_HOLD, _held_message(tracked.record, tracked.order)
    if seen.on_hold:
        return True, ON_HOLD, sentences.HELD_BY_USER
    if seen.gated_by:
        return True, ADMISSION_GATED, sentences.gated_by(seen.gated_by)
    if seen.deleting:
        return True, BEING_DELETED, sentences.BEING_DELETED
    if reading.closed:
        return True, CLUSTER_UNAVAILABLE, reading.closed
    if seen.waits_for and seen.suspended:
        return True, PENDING_EVALUATION, seen.waits_for
    if not seen.suspended or seen.active:
        return True, PENDING_EVALUATION, sentences.RUNS_WITHOUT_QUOTA
    return False, PENDING_EVALUATION, ""


def _held_message(record: WorkloadRecord, order: Order) -> str:
    """Return the message that names who has put it on hold and why.

    Once given it is kept: the order names the author of its last change, which may concern something else.
    """
    is_held = record.state is State.PENDING and record.reason == ON_HOLD
    if is_held and not record.message.startswith(sentences.HELD_BY_LABEL):
        return record.message
    return sentences.held_by_admin(order.author, order.reason)


def _deactivation(tracked: Tracked) -> tuple[bool, str, str]:
    """Return (on_hold, reason, message) of a deactivated workload."""
    record, order = tracked.record, tracked.order
    if record.reason.startswith(DEACTIVATED):
        return True, record.reason, record.message
    if order is None or order.active is not False:
        return True, DEACTIVATED, sentences.deactivated()
    return True, DEACTIVATED, sentences.deactivated(author=order.author, reason=order.reason)


# --- edits of admitted objects


def _may_be_edited(tracked: Tracked, seen: Observed) -> bool:
    """Return whether a running object has a generation not caused by Sluice, or is observed for the first time."""
    return (
        tracked.record.state is State.ADMITTED
        and not seen.suspended
        and seen.generation != tracked.in_sync
        and (tracked.seen is None or seen.generation != tracked.seen.generation)
    )


def _is_edited(tracked: Tracked, seen: Observed, obj: Object, before: Object | None, environment: Environment) -> bool:
    """Return whether an admitted object no longer matches its admission.

    `before`: the previous version of a running object that others may have changed; None: nothing to compare with.
    """
    original, suspension = tracked.record.original or {}, seen.kind.suspension
    if not seen.suspended:
        is_violated = scaling.violates_admission(tracked, seen)
        if before is None or tracked.record.checks_pending:  # with pending checks it is stopped, and not started yet
            return is_violated
        has_start = tracked.runs_elsewhere or suspension is None or suspension.is_as_started(obj, original)
        return is_violated or not has_start or not _is_unchanged(seen.kind, before, obj, original, environment)
    without = restored(seen.kind, obj, original)
    # An object that still carries its start is resumed with the number of pods that it has.
    if without is not obj and scaling.exceeds(tracked, seen):
        return True
    now = read(environment.kinds, seen, without, environment.context, former=tracked.record.workload)
    is_complete = without is obj or suspension is None or suspension.is_as_started(obj, original)
    return (
        now.fault != ""
        or not is_complete
        or not _are_as_admitted(tracked.record.workload.pod_sets, now.workload.pod_sets)
    )


def _is_unchanged(kind: Kind, before: Object, obj: Object, original: Object, environment: Environment) -> bool:
    """Return whether a running object still has its pod sets.

    Both versions are read with the present limits of the namespace: a changed LimitRange must not stop running objects.
    """
    context = environment.context.of_namespace(obj["metadata"]["namespace"])
    had, has = (_pods(kind, each, original, context) for each in (before, obj))
    if has is None:  # pod sets read from a rendered child: it may be about to be recreated
        return had is None or kind.rendered_by is not None
    # A pod that was just ungated has got node selector, tolerations and affinity by its start, and cannot be restored.
    started = kind.ends_by_deletion and kind.observe(before).suspended

    def is_same(old: PodSet, new: PodSet) -> bool:
        if started:
            new = replace(new, node_selector=old.node_selector, tolerations=old.tolerations, affinity=old.affinity)
        return replace(new, count=old.count, min_count=old.min_count) == old

    return had is None or (len(had) == len(has) and all(map(is_same, had, has)))


def _pods(kind: Kind, obj: Object, original: Object, context: NamespaceContext) -> tuple[PodSet, ...] | None:
    """Return the object's pod sets without what its start injected; None: they cannot be read."""
    try:
        return kind.pod_sets(restored(kind, obj, original), context)
    except Misconfigured:
        return None


def _are_as_admitted(admitted: tuple[PodSet, ...], now: tuple[PodSet, ...]) -> bool:
    """Return whether pod sets equal the admitted ones, except that they may have fewer pods."""
    return len(admitted) == len(now) and all(
        replace(new, count=old.count, min_count=old.min_count) == old and new.count <= old.count
        for old, new in zip(admitted, now, strict=True)
    )
