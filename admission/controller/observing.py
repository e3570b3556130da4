"""What an object's new state means for its workload: arrivals, edits, holds, moves, endings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from admission.controller.desk import MISCONFIGURED, ON_HOLD, PENDING_EVALUATION
from admission.controller.intake import Reading, read
from admission.store.records import State

if TYPE_CHECKING:
    from admission.controller.context import Context
    from admission.controller.desk import Desk
    from admission.controller.drain import Drain
    from admission.controller.tracked import Tracked
    from admission.kinds.base import Kind, Object, Observed

OUT_OF_SYNC = "OutOfSync"
DELETED = "Deleted"
DEQUEUED = "Dequeued"


class Observing:
    """Takes objects in as they are seen, in any order and any number of times."""

    def __init__(self, kind: Kind, context: Context, desk: Desk, drain: Drain) -> None:
        self._kind = kind
        self._context = context
        self._desk = desk
        self._drain = drain

    def see(self, obj: Object) -> None:
        """An object as it is now."""
        seen = self._kind.observe(obj)
        tracked = self._desk.registry.get(seen.uid)
        if tracked is None:
            before = self._desk.registry.named(self._kind.kind, seen.namespace, seen.name)
            if before is not None:
                self.gone(before)
            if seen.queue and seen.finished is None:
                self._arrive(seen, obj)
            return
        if tracked.seen is not None and _older(seen, tracked.seen):
            return
        tracked.seen, tracked.object = seen, obj
        self._update(tracked, seen, obj)
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
        reading = read(self._kind, seen, obj, self._context)
        held, reason, message = _bar(seen, reading, tracked.refused)
        self._desk.release(tracked, reading, held=held, reason=reason, message=message)

    def _arrive(self, seen: Observed, obj: Object) -> None:
        reading = read(self._kind, seen, obj, self._context)
        held, reason, message = _bar(seen, reading, None)
        tracked = self._desk.arrive(reading, held=held, reason=reason, message=message)
        tracked.seen, tracked.object = seen, obj
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
            case State.ADMITTED if seen.held:
                self._desk.evict(tracked, reason=ON_HOLD, message="it was put on hold")
            case State.ADMITTED if self._edited(tracked, seen, obj):
                self._desk.evict(tracked, reason=OUT_OF_SYNC, message="it was edited after it had been admitted")
            case _:
                pass

    def _wait(self, tracked: Tracked, seen: Observed, obj: Object) -> None:
        """A waiting workload was seen: does it wait for something else now?"""
        record = tracked.record
        reading = read(self._kind, seen, obj, self._context)
        if record.reason != MISCONFIGURED and seen.priority_class == record.workload.priority_class:
            # As in Kueue, another value of a priority class counts for workloads that come after it.
            reading = replace(reading, workload=replace(reading.workload, priority=record.workload.priority))
        held, reason, message = _bar(seen, reading, tracked.refused)
        if reading.workload == record.workload and held == tracked.held and (not held or message == record.message):
            return
        self._desk.requeue(tracked, reading, held=held, reason=reason, message=message)

    def _edited(self, tracked: Tracked, seen: Observed, obj: Object) -> bool:
        """Whether an admitted object is not any more what it was admitted as."""
        record = tracked.record
        assert record.admission is not None, record
        if seen.suspended:  # not started yet
            return read(self._kind, seen, obj, self._context).workload.pod_sets != record.workload.pod_sets
        # While it runs, only the number of its pods can change.
        return seen.pods != sum(assignment.count for assignment in record.admission.pod_sets)


def _bar(seen: Observed, reading: Reading, refused: tuple[int, str] | None) -> tuple[bool, str, str]:
    """(held, reason, message): what keeps a waiting workload out of the cycles, whatever quota there is."""
    if reading.fault:
        return True, MISCONFIGURED, reading.fault
    if refused is not None and refused[0] == seen.generation:
        return True, MISCONFIGURED, refused[1]
    if seen.held:
        return True, ON_HOLD, "its user holds it: remove sluice.dev/hold to let it queue"
    if seen.deleting:
        return True, ON_HOLD, "it is being deleted"
    if not seen.suspended or seen.active:
        return True, PENDING_EVALUATION, "it runs without quota and is being stopped first"
    return False, PENDING_EVALUATION, ""


def _older(seen: Observed, known: Observed) -> bool:
    """Whether a version is older than the known one: versions are numbers that grow (promised since 1.35)."""
    try:
        return int(seen.resource_version) < int(known.resource_version)
    except ValueError:
        return False
