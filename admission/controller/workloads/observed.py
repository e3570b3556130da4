"""What an object's new state means for its workload: edits, holds, moves, endings. Pure functions on a change."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from admission.controller.state.context import Reading, read
from admission.controller.state.orders import with_order
from admission.controller.state.tracked import Tracked
from admission.controller.state.workload_change import DEACTIVATED, WorkloadChange
from admission.controller.workloads import scaling
from admission.controller.workloads.admitted import look
from admission.engine.vocabulary import ADMISSION_GATED, BEING_DELETED, MISCONFIGURED, ON_HOLD, PENDING_EVALUATION
from admission.model import sentences
from admission.model.errors import Misconfigured
from admission.store.records import DEQUEUED, State, WorkloadRecord

if TYPE_CHECKING:
    from admission.controller.workloads.environment import Environment
    from admission.controller.workloads.triggers import (
        ContextChange,
        LastPodEnded,
        ObjectGone,
        ObjectSeen,
        Ordered,
        Stopped,
    )
    from admission.kinds.base import Kind, Object, Observed, Outcome
    from admission.kinds.limits import NamespaceContext
    from admission.model.workload import PodSet
    from admission.store.records import Eviction, Order

OUT_OF_SYNC = "OutOfSync"
DELETED = "Deleted"
EVICTED = "Evicted"
"""The outcome of what was stopped by deleting it."""
MOVED = "Moved"
PRIORITIZED = "Prioritized"


def arrival(event: ObjectSeen, environment: Environment, *, now: float) -> WorkloadChange:
    """What follows from an object that is queued and was not known before, at `now` (Unix time, s)."""
    seen, obj = event.seen, event.object
    reading = read(environment.kinds, seen, obj, environment.context)
    on_hold, reason, message = barred(seen, reading, None)
    record = WorkloadRecord(reading.workload, State.PENDING, queued_at=now, reason=reason, message=message)
    tracked = Tracked(record, on_hold=on_hold, own_priority=reading.workload.priority)
    tracked.pod_class = seen.pod_priority_class
    tracked.saw(seen, obj)
    change = WorkloadChange(tracked, now=now, is_new=True)
    change.arrive()
    change.is_due = not seen.suspended or seen.deleting  # else it waits as it is
    return change


def object_seen(change: WorkloadChange, event: ObjectSeen, environment: Environment) -> None:
    """Its object is as it is now; any version of it, any number of times, but none older than the one known."""
    tracked, seen = change.tracked, event.seen
    before = (tracked.object or event.object) if _may_be_edited(tracked, seen) else None
    tracked.saw(seen, event.object)
    _update(change, seen, event.object, before, environment)
    # Else nothing is due: it waits, suspended.
    change.is_due = tracked.record.state is not State.PENDING or not seen.suspended or tracked.came_late


def object_gone(change: WorkloadChange, event: ObjectGone, environment: Environment) -> None:
    """Its object does not exist any more. Its pods may, unless it was one itself."""
    tracked, last = change.tracked, event.last
    kind = environment.kinds.of(tracked.record.workload)
    is_pod = kind is not None and not kind.pods_label
    had_pods = not is_pod and (last is None or tracked.unsettled or last.active or not last.suspended)
    if last is None:
        tracked.unsettled = False  # it was not started by this process
    tracked.seen = tracked.object = tracked.in_flight = None
    if is_pod and tracked.record.state is State.EVICTING:
        change.finish(outcome=EVICTED, message=tracked.record.message)
        return
    if is_pod and tracked.record.state is State.PENDING and last is not None and not last.suspended:
        change.finish(outcome=DELETED, message=sentences.POD_WITHOUT_QUOTA)
        return
    if is_pod and last is not None and (eviction := _was_evicted_for_good(tracked, last)) is not None:
        change.finish(outcome=EVICTED, message=eviction.message)
        return
    if not (tracked.holds_quota and had_pods):
        change.finish(outcome=DELETED, message="")
        return
    if tracked.record.state is State.ADMITTED:
        change.evict(reason=DELETED, message=sentences.DELETED_WITH_PODS)
    tracked.wait = 0
    change.waits_for_pods = True


def _was_evicted_for_good(tracked: Tracked, last: Observed) -> Eviction | None:
    """The eviction after which none of its pods was made again; they may have ended a while before they were gone."""
    record = tracked.record
    waits = record.state is State.PENDING and not any(count.left for count in last.counts)
    return record.eviction if waits else None


def last_pod_ended(change: WorkloadChange, _: LastPodEnded, environment: Environment) -> None:
    """No pod of it is left, though its object is gone, or does not say so."""
    tracked = change.tracked
    tracked.wait, tracked.unsettled = 0, False
    if tracked.seen is None:
        change.finish(outcome=DELETED, message="")
    elif (obj := tracked.object) is not None:
        change.is_due = True
        _update(change, tracked.seen, obj, None, environment)


def context_changed(change: WorkloadChange, _: ContextChange, environment: Environment) -> None:
    """Something has changed that its pod sets or its priority are computed from."""
    tracked = change.tracked
    if tracked.record.state is State.PENDING and tracked.seen is not None and (obj := tracked.object) is not None:
        _wait(change, tracked.seen, obj, environment)


def stopped(change: WorkloadChange, _: Stopped, environment: Environment) -> None:
    """An evicted workload has stopped and is as it was: it waits again, as its object now asks."""
    tracked = change.tracked
    seen, obj = tracked.seen, tracked.object
    assert seen is not None, tracked
    assert obj is not None, tracked
    reading = _read(tracked, seen, obj, environment)
    on_hold, reason, message = barred(seen, reading, tracked)
    change.release(reading, on_hold=on_hold, reason=reason, message=message)
    if not seen.queue and not _held_by_admin(tracked):
        change.finish(outcome=DEQUEUED, message=sentences.UNLABELLED)


def ordered(change: WorkloadChange, event: Ordered, environment: Environment) -> None:
    """An admin has ordered something about it."""
    tracked = change.tracked
    change.take_order(event.order)
    if tracked.seen is not None and (obj := tracked.object) is not None:  # else it counts as soon as it is seen
        _update(change, tracked.seen, obj, None, environment)


def _update(
    change: WorkloadChange, seen: Observed, obj: Object, before: Object | None, environment: Environment
) -> None:
    tracked = change.tracked
    if seen.finished is not None:
        _end(change, seen, seen.finished)
        return
    match tracked.record.state:
        case State.PENDING if not seen.queue and seen.suspended and not _held_by_admin(tracked):
            text = sentences.UNLABELLED_POD if seen.kind.ends_by_deletion else sentences.UNLABELLED
            change.finish(outcome=DEQUEUED, message=text)
        case State.PENDING:
            _wait(change, seen, obj, environment)
        case State.ADMITTED:
            _hold(change, seen, obj, before, environment)
            look(change, environment)
        case _:
            look(change, environment)


def _end(change: WorkloadChange, seen: Observed, outcome: Outcome) -> None:
    """It is over: by itself, or because it was told to end by deleting it, which a pod calls a failure."""
    if outcome.succeeded or not (seen.kind.ends_by_deletion and seen.deleting):
        change.finish(outcome="Succeeded" if outcome.succeeded else "Failed", message=outcome.message)
    elif change.tracked.record.state is State.EVICTING:
        change.finish(outcome=EVICTED, message=change.tracked.record.message)
    else:
        change.finish(outcome=DELETED, message="")


def _wait(change: WorkloadChange, seen: Observed, obj: Object, environment: Environment) -> None:
    """A waiting workload was seen: does it wait for something else now?"""
    tracked, record = change.tracked, change.tracked.record
    reading = _read(tracked, seen, obj, environment)
    on_hold, reason, message = barred(seen, reading, tracked)
    came_late = _came_late(tracked, seen, obj)
    if came_late:
        on_hold, reason, message = True, PENDING_EVALUATION, sentences.START_CAME_LATE
    same = reading.workload == record.workload and on_hold == tracked.on_hold and came_late == tracked.came_late
    if same and (not on_hold or message == record.message):
        return
    tracked.note_late_start(came_late)
    change.requeue(reading, on_hold=on_hold, reason=reason, message=message)


def _came_late(tracked: Tracked, seen: Observed, obj: Object) -> bool:
    """Whether it carries what a start put in that came through after its eviction.

    Only such a start puts that in and unsuspends at once; a user may add the same while it waits.
    """
    original = tracked.record.original
    return original is not None and (not seen.suspended or tracked.came_late) and seen.kind.carries(obj, original)


def _read(tracked: Tracked, seen: Observed, obj: Object, environment: Environment) -> Reading:
    """The workload as its object asks for it now, of the age that it has, as an admin will have it."""
    record = tracked.record
    if not seen.queue or (record.workload.user and seen.user != record.workload.user):
        # Its gate stays until it is seen suspended without the label; and who submitted it does not change.
        queue, user = seen.queue or record.workload.queue, record.workload.user or seen.user
        seen = replace(seen, queue=queue, user=user)
    unordered = record.workload if tracked.order is None else None
    reading = read(environment.kinds, seen, obj, environment.context, known=unordered)
    if tracked.own_priority is None or record.reason == MISCONFIGURED or _has_other_class(tracked, seen):
        tracked.own_priority = reading.workload.priority
    tracked.pod_class = seen.pod_priority_class
    # As in Kueue, another value of a priority class counts for workloads that come after it.
    workload, queued_at = reading.workload, record.workload.queued_at
    if (workload.priority, workload.queued_at) != (tracked.own_priority, queued_at):
        workload = replace(workload, priority=tracked.own_priority, queued_at=queued_at)
    if workload is record.workload:
        return reading
    return Reading(with_order(workload, tracked.order), reading.fault)


def _hold(change: WorkloadChange, seen: Observed, obj: Object, before: Object | None, environment: Environment) -> None:
    """An admitted workload was seen: may it keep what it holds?"""
    tracked = change.tracked
    order, queue = tracked.order, tracked.record.workload.queue
    if not tracked.record.active:
        change.evict(reason=DEACTIVATED, message=_deactivated(tracked)[2])
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
    elif _edited(tracked, seen, obj, before, environment):
        change.evict(reason=OUT_OF_SYNC, message=sentences.EDITED)
    else:
        _prioritize(change, seen, environment)
        scaling.follow(change, seen)


def _has_other_class(tracked: Tracked, seen: Observed) -> bool:
    """Whether another class is named than the one that its priority is from, by a label or for its pods."""
    by_label = seen.priority_class != tracked.record.workload.priority_class
    return by_label or tracked.pod_class not in (None, seen.pod_priority_class)


def _prioritize(change: WorkloadChange, seen: Observed, environment: Environment) -> None:
    """Another priority counts for an admitted workload, too: it decides for whom it may be evicted."""
    tracked = change.tracked
    workload, order = tracked.record.workload, tracked.order
    if tracked.own_priority is None or _has_other_class(tracked, seen):
        try:
            tracked.own_priority = environment.context.priority(
                workload_class=seen.priority_class, pod_class=seen.pod_priority_class
            )
        except Misconfigured:
            return  # while it runs it keeps what it was admitted with
    tracked.pod_class = seen.pod_priority_class
    priority = tracked.own_priority if order is None or order.priority is None else order.priority
    if (priority, seen.priority_class) != (workload.priority, workload.priority_class):
        tracked.change(workload=replace(workload, priority=priority, priority_class=seen.priority_class))
        change.write(reason=PRIORITIZED, message=f"priority {priority}")
        change.tell_admitted()


def _edited(tracked: Tracked, seen: Observed, obj: Object, before: Object | None, environment: Environment) -> bool:
    """Whether an admitted object is not any more what it was admitted as.

    `before`: the version before, if it runs and was perhaps changed by others.
    """
    original = tracked.record.original or {}
    if not seen.suspended:
        more = scaling.has_more(tracked, seen)
        if before is None or tracked.record.checks_pending:  # the latter is stopped, and not yet what it will be
            return more
        return more or not _is_same(seen.kind, before, obj, original, environment)
    restored = seen.kind.restored(obj, original)
    if restored is not obj and scaling.exceeds(tracked, seen):  # what carries its start is resumed with its numbers
        return True
    now = read(environment.kinds, seen, restored, environment.context)
    whole = restored is obj or seen.kind.is_as_started(obj, original)
    return now.fault != "" or not whole or not _same(tracked.record.workload.pod_sets, now.workload.pod_sets)


def _is_same(kind: Kind, before: Object, obj: Object, original: Object, environment: Environment) -> bool:
    """Whether something that runs has still the pods that it had, and all that its start put in.

    Limits of its namespace that have changed since do not count: they would stop what runs.
    """
    if not kind.is_as_started(obj, original):
        return False
    context = environment.context.of_namespace(obj["metadata"]["namespace"])
    had, has = (_pods(kind, each, original, context) for each in (before, obj))
    if has is None:  # where its pods are another object's, that may be made anew
        return had is None or kind.rendered_by is not None
    # What the start of a pod has put in is not taken out again: where it may run has changed.
    started = kind.ends_by_deletion and kind.observe(before).suspended

    def is_same(old: PodSet, new: PodSet) -> bool:
        if started:
            new = replace(new, node_selector=old.node_selector, tolerations=old.tolerations, affinity=old.affinity)
        return replace(new, count=old.count, min_count=old.min_count) == old

    return had is None or (len(had) == len(has) and all(map(is_same, had, has)))


def _pods(kind: Kind, obj: Object, original: Object, context: NamespaceContext) -> tuple[PodSet, ...] | None:
    """Without what its start put in; None: nobody can tell."""
    try:
        return kind.pod_sets(kind.restored(obj, original), context)
    except Misconfigured:
        return None


def _may_be_edited(tracked: Tracked, seen: Observed) -> bool:
    """Whether what runs has another spec than the last time, that is not of Sluice's making; or was not seen yet."""
    return (
        tracked.record.state is State.ADMITTED
        and not seen.suspended
        and seen.generation != tracked.in_sync
        and (tracked.seen is None or seen.generation != tracked.seen.generation)
    )


def _held_by_admin(tracked: Tracked) -> bool:
    return not tracked.record.active or (tracked.order is not None and tracked.order.held)


def _same(admitted: tuple[PodSet, ...], now: tuple[PodSet, ...]) -> bool:
    """Whether pod sets are those that were admitted, of which by now fewer pods may be needed."""
    return len(admitted) == len(now) and all(
        replace(new, count=old.count, min_count=old.min_count) == old and new.count <= old.count
        for old, new in zip(admitted, now, strict=True)
    )


def barred(seen: Observed, reading: Reading, tracked: Tracked | None) -> tuple[bool, str, str]:
    """(on_hold, reason, message): what keeps a waiting workload out of the cycles, whatever quota there is."""
    if tracked is not None and not tracked.record.active:
        return _deactivated(tracked)
    if reading.fault:
        return True, MISCONFIGURED, reading.fault
    if tracked is not None and tracked.refused is not None and tracked.refused[0] == seen.generation:
        return True, MISCONFIGURED, tracked.refused[1]
    if tracked is not None and tracked.order is not None and tracked.order.held:
        return True, ON_HOLD, _held(tracked.record, tracked.order)
    if seen.on_hold:
        return True, ON_HOLD, sentences.HELD_BY_USER
    if seen.gated_by:
        return True, ADMISSION_GATED, sentences.gated_by(seen.gated_by)
    if seen.deleting:
        return True, BEING_DELETED, sentences.BEING_DELETED
    if seen.waits_for and seen.suspended:
        return True, PENDING_EVALUATION, seen.waits_for
    if not seen.suspended or seen.active:
        return True, PENDING_EVALUATION, sentences.RUNS_WITHOUT_QUOTA
    return False, PENDING_EVALUATION, ""


def _held(record: WorkloadRecord, order: Order) -> str:
    """By whom and why it was held: the order itself tells who has changed it last, perhaps something else of it."""
    is_held = record.state is State.PENDING and record.reason == ON_HOLD
    if is_held and not record.message.startswith(sentences.HELD_BY_LABEL):
        return record.message
    return sentences.held_by_admin(order.author, order.reason)


def _deactivated(tracked: Tracked) -> tuple[bool, str, str]:
    record, order = tracked.record, tracked.order
    if record.reason.startswith(DEACTIVATED):
        return True, record.reason, record.message
    if order is None or order.active is not False:
        return True, DEACTIVATED, sentences.deactivated()
    return True, DEACTIVATED, sentences.deactivated(author=order.author, reason=order.reason)
