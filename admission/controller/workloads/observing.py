"""What an object's new state means for its workload: arrivals, edits, holds, moves, endings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from admission.controller.state.tracked import is_older
from admission.controller.state.workload_reader import Reading, ordered, read
from admission.controller.state.workload_state import DEACTIVATED
from admission.engine.vocabulary import BEING_DELETED, MISCONFIGURED, ON_HOLD, PENDING_EVALUATION
from admission.kinds.base import POD_OWNER
from admission.model import sentences
from admission.model.errors import Misconfigured
from admission.store.records import DEQUEUED, State

if TYPE_CHECKING:
    from admission.controller.state.context import Context
    from admission.controller.state.tracked import Tracked
    from admission.controller.state.workload_state import Desk
    from admission.controller.workloads.admitted import Upkeep
    from admission.controller.workloads.children import Children
    from admission.controller.workloads.pod_waiter import PodWaiter
    from admission.kinds.base import Kind, Object, Observed
    from admission.kinds.limits import NamespaceContext
    from admission.kinds.registry import Kinds
    from admission.model.workload import PodSet
    from admission.store.records import Order, WorkloadRecord

OUT_OF_SYNC = "OutOfSync"
DELETED = "Deleted"
MOVED = "Moved"
PRIORITIZED = "Prioritized"


class Observing:
    """Takes objects in as they are seen, in any order and any number of times."""

    def __init__(
        self, kinds: Kinds, context: Context, desk: Desk, pod_waiter: PodWaiter, upkeep: Upkeep, children: Children
    ) -> None:
        self._kinds = kinds
        self._context = context
        self._desk = desk
        self._pod_waiter = pod_waiter
        self._upkeep = upkeep
        self._children = children

    def see(self, kind: Kind, obj: Object) -> None:
        """An object of a kind, as it is now."""
        if not self._children.take(kind, obj):
            self._see(kind, obj)
        self._children.owner_changed(kind, obj)

    def _see(self, kind: Kind, obj: Object) -> None:
        seen = kind.observe(obj)
        tracked = self._desk.registry.get(seen.uid)
        if tracked is None:
            before = self._desk.registry.named(kind, seen.namespace, seen.name)
            if before is not None:
                self.gone(before)
            if seen.queue and seen.finished is None and seen.uid not in self._desk.ended:
                self._arrive(seen, obj)
            return
        if tracked.seen is not None and is_older(seen.resource_version, tracked.seen.resource_version):
            return
        former = (tracked.object or obj) if _may_be_edited(tracked, seen) else None
        tracked.saw(seen, obj)
        self._update(tracked, seen, obj, former)
        if tracked.record.state is not State.PENDING or not seen.suspended or tracked.came_late:  # else nothing is due
            self._desk.dirty[seen.uid] = None

    def gone(self, tracked: Tracked) -> None:
        """An object does not exist any more. Its pods may."""
        had_pods = tracked.seen is None or tracked.unsettled or tracked.seen.active or not tracked.seen.suspended
        if tracked.seen is None:
            tracked.unsettled = False  # it was not started by this process
        tracked.seen = tracked.object = tracked.in_flight = None
        if not (tracked.holds_quota and had_pods):
            self._desk.finish(tracked, outcome=DELETED, message="")
            return
        if tracked.record.state is State.ADMITTED:
            self._desk.evict(tracked, reason=DELETED, message=sentences.DELETED_WITH_PODS)
        tracked.wait = 0
        self.wait_for_pods(tracked)

    def wait_for_pods(self, tracked: Tracked) -> None:
        """Have `pods_gone` called when it has none; may be asked again."""
        if not tracked.wait:
            workload = tracked.record.workload
            kind = self._kinds.of(workload)
            label = POD_OWNER if kind is None else kind.pods_label
            tracked.wait = self._pod_waiter.add(
                workload.uid, workload.namespace, label=label, may_begin=tracked.unsettled
            )

    def pods_gone(self, tracked: Tracked) -> None:
        """Its last pod has ended, though its object is gone, or does not say so."""
        tracked.wait, tracked.unsettled = 0, False
        if tracked.seen is None:
            self._desk.finish(tracked, outcome=DELETED, message="")
        elif tracked.object is not None:
            self._desk.dirty[tracked.uid] = None
            self._update(tracked, tracked.seen, tracked.object, None)

    def look_again(self, tracked: Tracked) -> None:
        """Something has changed that its pod sets or its priority are computed from."""
        if tracked.record.state is State.PENDING and tracked.seen is not None and tracked.object is not None:
            self._wait(tracked, tracked.seen, tracked.object)

    def release(self, tracked: Tracked, seen: Observed, obj: Object) -> None:
        """An evicted workload has stopped and is as it was: it waits again, as its object now asks."""
        reading = self._read(tracked, seen, obj)
        on_hold, reason, message = _bar(seen, reading, tracked)
        self._desk.release(tracked, reading, on_hold=on_hold, reason=reason, message=message)
        if not seen.queue and not _held_by_admin(tracked):
            self._desk.finish(tracked, outcome=DEQUEUED, message=sentences.UNLABELLED)

    def ordered(self, order: Order) -> None:
        """An admin has ordered something about a workload."""
        tracked = self._desk.registry.get(order.uid)
        if tracked is None:
            return
        self._desk.order(tracked, order)
        if tracked.seen is not None and tracked.object is not None:  # else it counts as soon as it is seen
            self._update(tracked, tracked.seen, tracked.object, None)

    def _arrive(self, seen: Observed, obj: Object) -> None:
        reading = read(self._kinds, seen, obj, self._context)
        on_hold, reason, message = _bar(seen, reading, None)
        tracked = self._desk.arrive(reading, on_hold=on_hold, reason=reason, message=message)
        tracked.saw(seen, obj)
        tracked.own_priority = reading.workload.priority
        self._desk.dirty[seen.uid] = None

    def _update(self, tracked: Tracked, seen: Observed, obj: Object, before: Object | None) -> None:
        if seen.finished is not None:
            outcome = "Succeeded" if seen.finished.succeeded else "Failed"
            self._desk.finish(tracked, outcome=outcome, message=seen.finished.message)
            return
        match tracked.record.state:
            case State.PENDING if not seen.queue and seen.suspended and not _held_by_admin(tracked):
                self._desk.finish(tracked, outcome=DEQUEUED, message=sentences.UNLABELLED)
            case State.PENDING:
                self._wait(tracked, seen, obj)
            case State.ADMITTED:
                self._hold(tracked, seen, obj, before)
                self._upkeep.look(tracked)
            case _:
                self._upkeep.look(tracked)

    def _wait(self, tracked: Tracked, seen: Observed, obj: Object) -> None:
        """A waiting workload was seen: does it wait for something else now?"""
        record = tracked.record
        reading = self._read(tracked, seen, obj)
        on_hold, reason, message = _bar(seen, reading, tracked)
        came_late = self._came_late(tracked, seen, obj)
        if came_late:
            on_hold, reason, message = True, PENDING_EVALUATION, sentences.START_CAME_LATE
        same = reading.workload == record.workload and on_hold == tracked.on_hold and came_late == tracked.came_late
        if same and (not on_hold or message == record.message):
            return
        tracked.note_late_start(came_late)
        self._desk.requeue(tracked, reading, on_hold=on_hold, reason=reason, message=message)

    def _came_late(self, tracked: Tracked, seen: Observed, obj: Object) -> bool:
        """Whether it carries what a start put in that came through after its eviction.

        Only such a start puts that in and unsuspends at once; a user may add the same while it waits.
        """
        original = tracked.record.original
        return original is not None and (not seen.suspended or tracked.came_late) and seen.kind.carries(obj, original)

    def _read(self, tracked: Tracked, seen: Observed, obj: Object) -> Reading:
        """The workload as its object asks for it now, of the age that it has, as an admin will have it."""
        record = tracked.record
        if not seen.queue or (record.workload.user and seen.user != record.workload.user):
            # Its gate stays until it is seen suspended without the label; and who submitted it does not change.
            queue, user = seen.queue or record.workload.queue, record.workload.user or seen.user
            seen = replace(seen, queue=queue, user=user)
        unordered = record.workload if tracked.order is None else None
        reading = read(self._kinds, seen, obj, self._context, known=unordered)
        known = record.reason != MISCONFIGURED and seen.priority_class == record.workload.priority_class
        if not known or tracked.own_priority is None:
            tracked.own_priority = reading.workload.priority
        # As in Kueue, another value of a priority class counts for workloads that come after it.
        workload, queued_at = reading.workload, record.workload.queued_at
        if (workload.priority, workload.queued_at) != (tracked.own_priority, queued_at):
            workload = replace(workload, priority=tracked.own_priority, queued_at=queued_at)
        if workload is record.workload:
            return reading
        return Reading(ordered(workload, tracked.order), reading.fault)

    def _hold(self, tracked: Tracked, seen: Observed, obj: Object, before: Object | None) -> None:
        """An admitted workload was seen: may it keep what it holds?"""
        order, queue = tracked.order, tracked.record.workload.queue
        if not tracked.record.active:
            self._desk.evict(tracked, reason=DEACTIVATED, message=sentences.deactivated())
        elif seen.on_hold or (order is not None and order.held):
            self._desk.evict(tracked, reason=ON_HOLD, message=sentences.HELD)
        elif order is not None and order.local_queue not in (None, queue):
            self._desk.evict(tracked, reason=MOVED, message=sentences.moved(order.local_queue or queue))
        elif seen.deleting and not seen.active and not tracked.unsettled:
            self._desk.evict(tracked, reason=DELETED, message=sentences.DELETED_WITHOUT_PODS)
        elif order is None and seen.queue not in ("", queue):
            self._desk.evict(tracked, reason=MOVED, message=sentences.moved(seen.queue))
        elif self._edited(tracked, seen, obj, before):
            self._desk.evict(tracked, reason=OUT_OF_SYNC, message=sentences.EDITED)
        else:
            self._prioritize(tracked, seen)
            self._reclaim(tracked, seen)

    def _prioritize(self, tracked: Tracked, seen: Observed) -> None:
        """Another priority counts for an admitted workload, too: it decides for whom it may be evicted."""
        workload, order = tracked.record.workload, tracked.order
        if tracked.own_priority is None or seen.priority_class != workload.priority_class:
            try:
                tracked.own_priority = self._context.priority(
                    workload_class=seen.priority_class, pod_class=seen.pod_priority_class
                )
            except Misconfigured:
                return  # while it runs it keeps what it was admitted with
        priority = tracked.own_priority if order is None or order.priority is None else order.priority
        if (priority, seen.priority_class) != (workload.priority, workload.priority_class):
            changed = replace(workload, priority=priority, priority_class=seen.priority_class)
            self._desk.write(tracked.change(workload=changed), reason=PRIORITIZED, message=f"priority {priority}")
            self._desk.tell_admitted(tracked)

    def _reclaim(self, tracked: Tracked, seen: Observed) -> None:
        """Give back the quota of pods that are not needed any more, or not wanted, once they are gone."""
        counted = seen.kind.tells_of_pods
        if seen.suspended or (counted and tracked.unsettled) or not any(count.needed for count in seen.counts):
            return
        held = _held_pods(tracked)
        smaller = {}
        for count in seen.counts:
            had = held.get(count.name, 0)
            pods = max(count.needed, min(count.present, had))
            if pods < had:
                smaller[count.name] = pods
        if smaller:
            self._desk.shrink(tracked, smaller)

    def _edited(self, tracked: Tracked, seen: Observed, obj: Object, before: Object | None) -> bool:
        """Whether an admitted object is not any more what it was admitted as.

        `before`: the version before, if it runs and was perhaps changed by others.
        """
        original = tracked.record.original or {}
        if not seen.suspended:
            more = _wants_more(tracked, seen)
            if before is None or tracked.record.checks_pending:  # the latter is stopped, and not yet what it will be
                return more
            return more or not self._is_same(seen.kind, before, obj, original)
        restored = seen.kind.restored(obj, original)
        now = read(self._kinds, seen, restored, self._context)
        whole = restored is obj or seen.kind.is_as_started(obj, original)
        return now.fault != "" or not whole or not _same(tracked.record.workload.pod_sets, now.workload.pod_sets)

    def _is_same(self, kind: Kind, before: Object, obj: Object, original: Object) -> bool:
        """Whether something that runs has still the pods that it had, and all that its start put in.

        Limits of its namespace that have changed since do not count: they would stop what runs.
        """
        if not kind.is_as_started(obj, original):
            return False
        context = self._context.of_namespace(obj["metadata"]["namespace"])
        had, has = (_pods(kind, each, original, context) for each in (before, obj))
        return (
            had is None
            or has is None
            or (
                len(had) == len(has)
                and all(
                    replace(new, count=old.count, min_count=old.min_count) == old
                    for old, new in zip(had, has, strict=True)
                )
            )
        )


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


def _held_pods(tracked: Tracked) -> dict[str, int]:
    """By pod set."""
    admission = tracked.record.admission
    assert admission is not None, tracked.record
    return {assignment.name: assignment.count for assignment in admission.pod_sets}


def _wants_more(tracked: Tracked, seen: Observed) -> bool:
    """Whether something that runs asks for more pods than it holds quota for, or for none though it has work left."""
    held = _held_pods(tracked)
    if any(count.needed > held.get(count.name, 0) for count in seen.counts):
        return True
    return not any(count.needed for count in seen.counts) and any(count.left for count in seen.counts)


def _same(admitted: tuple[PodSet, ...], now: tuple[PodSet, ...]) -> bool:
    """Whether pod sets are those that were admitted, of which by now fewer pods may be needed."""
    return len(admitted) == len(now) and all(
        replace(new, count=old.count, min_count=old.min_count) == old and new.count <= old.count
        for old, new in zip(admitted, now, strict=True)
    )


def _bar(seen: Observed, reading: Reading, tracked: Tracked | None) -> tuple[bool, str, str]:
    """(on_hold, reason, message): what keeps a waiting workload out of the cycles, whatever quota there is."""
    if tracked is not None and not tracked.record.active:
        return _deactivated(tracked.record)
    if reading.fault:
        return True, MISCONFIGURED, reading.fault
    if tracked is not None and tracked.refused is not None and tracked.refused[0] == seen.generation:
        return True, MISCONFIGURED, tracked.refused[1]
    if tracked is not None and tracked.order is not None and tracked.order.held:
        return True, ON_HOLD, sentences.held_by_admin(tracked.order.author, tracked.order.reason)
    if seen.on_hold:
        return True, ON_HOLD, sentences.HELD_BY_USER
    if seen.deleting:
        return True, BEING_DELETED, sentences.BEING_DELETED
    if not seen.suspended or seen.active:
        return True, PENDING_EVALUATION, sentences.RUNS_WITHOUT_QUOTA
    return False, PENDING_EVALUATION, ""


def _deactivated(record: WorkloadRecord) -> tuple[bool, str, str]:
    if record.reason.startswith(DEACTIVATED):
        return True, record.reason, record.message
    return True, DEACTIVATED, sentences.deactivated()
