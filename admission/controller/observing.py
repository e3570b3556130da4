"""What an object's new state means for its workload: arrivals, edits, holds, moves, endings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from admission.controller.desk import DEACTIVATED, MISCONFIGURED, ON_HOLD, PENDING_EVALUATION
from admission.controller.intake import Reading, ordered, read
from admission.kinds.patches import merged
from admission.model.errors import Misconfigured
from admission.store.records import DEQUEUED, State

if TYPE_CHECKING:
    from admission.controller.context import Context
    from admission.controller.desk import Desk
    from admission.controller.drain import Drain
    from admission.controller.tracked import Tracked
    from admission.controller.upkeep import Upkeep
    from admission.kinds.base import Kind, Object, Observed
    from admission.model.workload import PodSet
    from admission.store.records import Order, WorkloadRecord

OUT_OF_SYNC = "OutOfSync"
DELETED = "Deleted"
MOVED = "Moved"
PRIORITIZED = "Prioritized"
_CAME_LATE = "a start came through after its eviction: it is stopped, and given back as it was"


class Observing:
    """Takes objects in as they are seen, in any order and any number of times."""

    def __init__(self, kind: Kind, context: Context, desk: Desk, drain: Drain, upkeep: Upkeep) -> None:
        self._kind = kind
        self._context = context
        self._desk = desk
        self._drain = drain
        self._upkeep = upkeep

    def see(self, obj: Object) -> None:
        """An object as it is now."""
        seen = self._kind.observe(obj)
        tracked = self._desk.registry.get(seen.uid)
        if tracked is None:
            before = self._desk.registry.named(self._kind.kind, seen.namespace, seen.name)
            if before is not None:
                self.gone(before)
            if seen.queue and seen.finished is None and seen.uid not in self._desk.ended:
                self._arrive(seen, obj)
            return
        if tracked.seen is not None and _older(seen, tracked.seen):
            return
        tracked.seen, tracked.object = seen, obj
        self._update(tracked, seen, obj)
        if tracked.record.state is not State.PENDING or not seen.suspended or tracked.came_late:  # else nothing is due
            self._desk.dirty[seen.uid] = None

    def gone(self, tracked: Tracked) -> None:
        """An object does not exist any more. Its pods may."""
        had_pods = tracked.seen is None or tracked.seen.active or not tracked.seen.suspended
        tracked.seen = tracked.object = tracked.in_flight = None
        if not (tracked.holds_quota and had_pods):
            self._desk.finish(tracked, outcome=DELETED, message="")
            return
        if tracked.record.state is State.ADMITTED:
            self._desk.evict(tracked, reason=DELETED, message="it was deleted; its pods still hold the quota")
        self._drain.add(tracked.uid, tracked.record.workload.namespace)

    def pods_gone(self, tracked: Tracked) -> None:
        """The last pod of a deleted object has ended."""
        if tracked.seen is None:
            self._desk.finish(tracked, outcome=DELETED, message="")

    def look_again(self, tracked: Tracked) -> None:
        """Something has changed that its pod sets or its priority are computed from."""
        if tracked.record.state is State.PENDING and tracked.seen is not None and tracked.object is not None:
            self._wait(tracked, tracked.seen, tracked.object)

    def release(self, tracked: Tracked, seen: Observed, obj: Object) -> None:
        """An evicted workload has stopped and is as it was: it waits again, as its object now asks."""
        reading = self._read(tracked, seen, obj)
        held, reason, message = _bar(seen, reading, tracked)
        self._desk.release(tracked, reading, held=held, reason=reason, message=message)

    def ordered(self, order: Order) -> None:
        """An admin has ordered something about a workload."""
        tracked = self._desk.registry.get(order.uid)
        if tracked is None:
            return
        self._desk.order(tracked, order)
        if tracked.seen is not None and tracked.object is not None:  # else it counts as soon as it is seen
            self._update(tracked, tracked.seen, tracked.object)

    def _arrive(self, seen: Observed, obj: Object) -> None:
        reading = read(self._kind, seen, obj, self._context)
        held, reason, message = _bar(seen, reading, None)
        tracked = self._desk.arrive(reading, held=held, reason=reason, message=message)
        tracked.seen, tracked.object = seen, obj
        tracked.own_priority = reading.workload.priority
        self._desk.dirty[seen.uid] = None

    def _update(self, tracked: Tracked, seen: Observed, obj: Object) -> None:
        if seen.finished is not None:
            outcome = "Succeeded" if seen.finished.succeeded else "Failed"
            self._desk.finish(tracked, outcome=outcome, message=seen.finished.message)
            return
        match tracked.record.state:
            case State.PENDING if not seen.queue:
                self._desk.finish(tracked, outcome=DEQUEUED, message="its queue label was removed")
            case State.PENDING:
                self._wait(tracked, seen, obj)
            case State.ADMITTED:
                self._hold(tracked, seen, obj)
                self._upkeep.look(tracked)
            case _:
                self._upkeep.look(tracked)

    def _wait(self, tracked: Tracked, seen: Observed, obj: Object) -> None:
        """A waiting workload was seen: does it wait for something else now?"""
        record = tracked.record
        reading = self._read(tracked, seen, obj)
        held, reason, message = _bar(seen, reading, tracked)
        came_late = self._came_late(tracked, seen, obj)
        if came_late:
            held, reason, message = True, PENDING_EVALUATION, _CAME_LATE
        same = reading.workload == record.workload and held == tracked.held and came_late == tracked.came_late
        if same and (not held or message == record.message):
            return
        tracked.note_late_start(came_late)
        self._desk.requeue(tracked, reading, held=held, reason=reason, message=message)

    def _came_late(self, tracked: Tracked, seen: Observed, obj: Object) -> bool:
        """Whether it carries what a start put in that came through after its eviction.

        Only such a start puts that in and unsuspends at once; a user may add the same while it waits.
        """
        original = tracked.record.original
        return original is not None and (not seen.suspended or tracked.came_late) and self._kind.carries(obj, original)

    def _read(self, tracked: Tracked, seen: Observed, obj: Object) -> Reading:
        """The workload as its object asks for it now, of the age that it has, as an admin will have it."""
        record = tracked.record
        unordered = record.workload if tracked.order is None else None
        reading = read(self._kind, seen, obj, self._context, known=unordered)
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

    def _hold(self, tracked: Tracked, seen: Observed, obj: Object) -> None:
        """An admitted workload was seen: may it keep what it holds?"""
        order, queue = tracked.order, tracked.record.workload.queue
        if not tracked.record.active:
            self._desk.evict(tracked, reason=DEACTIVATED, message="The workload is deactivated")
        elif seen.held or (order is not None and order.held):
            self._desk.evict(tracked, reason=ON_HOLD, message="it was put on hold")
        elif order is not None and order.local_queue not in (None, queue):
            self._desk.evict(tracked, reason=MOVED, message=f"it was moved to LocalQueue {order.local_queue}")
        elif self._edited(tracked, seen, obj):
            self._desk.evict(tracked, reason=OUT_OF_SYNC, message="it was edited after it had been admitted")
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
        """Give back the quota of pods that will not be needed any more, once they are gone."""
        held = _held_pods(tracked)
        if seen.suspended or not seen.left or seen.left >= held:
            return
        count = max(seen.left, min(seen.busy, held))
        if count < held:
            self._desk.shrink(tracked, count)

    def _edited(self, tracked: Tracked, seen: Observed, obj: Object) -> bool:
        """Whether an admitted object is not any more what it was admitted as."""
        if not seen.suspended:  # while it runs, only the number of its pods can change
            held = _held_pods(tracked)
            return seen.needed > held or (seen.needed < held and seen.needed != seen.left)
        original = tracked.record.original
        restored = None if original is None else self._kind.restore_patch(obj, original)
        now = read(self._kind, seen, obj if restored is None else merged(obj, restored), self._context)
        return now.fault != "" or not _same(tracked.record.workload.pod_sets, now.workload.pod_sets)


def _held_pods(tracked: Tracked) -> int:
    admission = tracked.record.admission
    assert admission is not None, tracked.record
    return sum(assignment.count for assignment in admission.pod_sets)


def _same(admitted: tuple[PodSet, ...], now: tuple[PodSet, ...]) -> bool:
    """Whether pod sets are those that were admitted, of which by now fewer pods may be needed."""
    return len(admitted) == len(now) and all(
        replace(new, count=old.count, min_count=old.min_count) == old and new.count <= old.count
        for old, new in zip(admitted, now, strict=True)
    )


def _bar(seen: Observed, reading: Reading, tracked: Tracked | None) -> tuple[bool, str, str]:
    """(held, reason, message): what keeps a waiting workload out of the cycles, whatever quota there is."""
    if tracked is not None and not tracked.record.active:
        return _deactivated(tracked.record)
    if reading.fault:
        return True, MISCONFIGURED, reading.fault
    if tracked is not None and tracked.refused is not None and tracked.refused[0] == seen.generation:
        return True, MISCONFIGURED, tracked.refused[1]
    if tracked is not None and tracked.order is not None and tracked.order.held:
        return True, ON_HOLD, f"{tracked.order.author} holds it"
    if seen.held:
        return True, ON_HOLD, "its user holds it: remove sluice.dev/hold to let it queue"
    if seen.deleting:
        return True, ON_HOLD, "it is being deleted"
    if not seen.suspended or seen.active:
        return True, PENDING_EVALUATION, "it runs without quota and is being stopped first"
    return False, PENDING_EVALUATION, ""


def _deactivated(record: WorkloadRecord) -> tuple[bool, str, str]:
    if record.reason.startswith(DEACTIVATED):
        return True, record.reason, record.message
    return True, DEACTIVATED, "The workload is deactivated"


def _older(seen: Observed, known: Observed) -> bool:
    """Whether a version is older than the known one: versions are numbers that grow (promised since 1.35)."""
    try:
        return int(seen.resource_version) < int(known.resource_version)
    except ValueError:
        return False
