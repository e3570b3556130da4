"""The one place where workloads change: computes what follows from what happens to one, and has it take effect.

Also what has to be looked at although nothing happens: deadlines, and pods that are not ready.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from admission.controller.state.tracked import is_older
from admission.controller.workloads.observed import arrival
from admission.controller.workloads.transition import transition
from admission.controller.workloads.triggers import DeadlineReached, ObjectGone, ObjectSeen
from admission.kinds.base import POD_OWNER
from admission.store.records import DEQUEUED, State

if TYPE_CHECKING:
    from admission.controller.state.isolation import Isolation
    from admission.controller.state.leader_state import LeaderState, Registry
    from admission.controller.state.tracked import Tracked
    from admission.controller.state.workload_change import WorkloadChange
    from admission.controller.workloads.environment import Environment
    from admission.controller.workloads.pod_waiter import PodWaiter
    from admission.controller.workloads.triggers import Trigger
    from admission.kinds.base import Kind, Object
    from admission.store.records import WorkloadRecord


class Reconciler:
    """Works on the state of one leader. What it raises for a workload has changed nothing of it (see `Isolation`)."""

    def __init__(
        self, state: LeaderState, environment: Environment, pod_waiter: PodWaiter, isolation: Isolation
    ) -> None:
        self.state = state
        self.environment = environment
        self.isolation = isolation
        policy = environment.pods_ready
        one_at_a_time = policy is not None and policy.block_admission
        self.readiness = Readiness(state.registry, one_at_a_time=one_at_a_time)
        self.deadlines = Deadlines(state.registry)
        self._pod_waiter = pod_waiter

    def handle(self, tracked: Tracked, trigger: Trigger) -> None:
        """Have all take effect that follows from what happens to a workload."""
        self._apply(transition(tracked, trigger, self.environment, now=self.state.now), tracked.deadline)

    def see(self, kind: Kind, obj: Object) -> None:
        """Take in an object of a kind as it is now, unless it is part of another one (see `Children`)."""
        seen = kind.observe(obj)
        registry = self.state.registry
        tracked = registry.get(seen.uid)
        if tracked is not None:
            if tracked.seen is None or not is_older(seen.resource_version, tracked.seen.resource_version):
                self.handle(tracked, ObjectSeen(seen, obj))
            return
        if (former := registry.named(kind, seen.namespace, seen.name)) is not None:
            self.handle(former, ObjectGone(former.seen))
        if seen.queue and seen.finished is None and not self.state.ended.has(seen.uid, seen.resource_version):
            self._apply(arrival(ObjectSeen(seen, obj), self.environment, now=self.state.now), None)

    def _note_end(self, tracked: Tracked) -> None:
        record, seen = tracked.record, tracked.seen
        # A group of pods is told of as the latest that is known of its pods; what left the queue unseen may be there.
        if not self.environment.kinds.is_composed(record.workload) and (seen or record.outcome != DEQUEUED):
            self.state.ended.add(tracked.uid, "" if seen is None else seen.resource_version)

    def pass_time(self) -> None:
        """Do what is due by now."""
        if not self.deadlines.heap or self.deadlines.heap[0][0] > self.state.now:
            return
        for tracked in self.deadlines.due(self.state.now):
            with self.isolation.of(tracked.uid):
                self.handle(tracked, DeadlineReached())

    def wait_for_pods(self, tracked: Tracked) -> None:
        """Have `PodsGone` put into the inbox when it has none; may be asked again."""
        if not tracked.wait:
            workload = tracked.record.workload
            kind = self.environment.kinds.of(workload)
            label = POD_OWNER if kind is None else kind.pods_label
            may_begin = tracked.unsettled
            tracked.wait = self._pod_waiter.add(workload.uid, workload.namespace, label=label, may_begin=may_begin)

    def _apply(self, change: WorkloadChange, deadline: float | None) -> None:
        tracked = change.tracked
        uid = tracked.record.workload.uid
        self.state.apply(change)
        if change.is_over:
            self._note_end(tracked)
        if tracked.deadline != deadline:
            self.deadlines.note(tracked)
        if change.was_looked_at:
            self.readiness.follow(tracked)
        if change.waits_for_pods:
            self.wait_for_pods(tracked)
        if tracked.surplus and tracked.seen is not None and not change.is_over:
            label = tracked.seen.kind.pods_label
            self._pod_waiter.count(uid, tracked.record.workload.namespace, label=label)
        elif uid in self._pod_waiter.counting:
            self._pod_waiter.count_no_more(uid)


class Deadlines:
    """When something has to be done about a workload although nothing happens: one timer for the earliest is enough.

    The times are those of `Tracked.deadline`; entries of the heap that do not agree with it mean nothing.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.heap: list[tuple[float, str]] = []

    def note(self, tracked: Tracked) -> None:
        """Its deadline is another one now."""
        if tracked.deadline is not None:
            heappush(self.heap, (tracked.deadline, tracked.uid))

    def next(self) -> float | None:
        """The earliest; None: there is none."""
        while self.heap and self._meant(*self.heap[0]) is None:
            heappop(self.heap)
        return self.heap[0][0] if self.heap else None

    def due(self, now: float) -> list[Tracked]:
        """Those whose time has come; they have no deadline any more."""
        found = []
        while (at := self.next()) is not None and at <= now:
            tracked = self._registry.get(heappop(self.heap)[1])
            assert tracked is not None
            tracked.deadline = None
            found.append(tracked)
        return found

    def _meant(self, at: float, uid: str) -> Tracked | None:
        tracked = self._registry.get(uid)
        return tracked if tracked is not None and tracked.deadline == at else None


class Readiness:
    """Which admitted workloads have pods that are not ready, and which of them keep others from being admitted.

    `one_at_a_time`: Kueue's `waitForPodsReady.blockAdmission`.
    """

    def __init__(self, registry: Registry, *, one_at_a_time: bool) -> None:
        self.one_at_a_time = one_at_a_time
        """Whether those that are not ready keep others out."""
        self._registry = registry
        self._starting: dict[str, None] = {}
        """Uids of those that may run and were last seen with pods that are not ready."""
        self._blocking: set[str] = set()
        """Those that keep others out, if they still hold quota."""

    def restored(self) -> None:
        """All that is on record was put into the registry: who keeps others out until it is seen again?"""
        if self.one_at_a_time:
            self._blocking = {tracked.uid for tracked in self._registry if _is_unready(tracked.record)}

    def follow(self, tracked: Tracked) -> None:
        """A workload was looked at."""
        record, seen = tracked.record, tracked.seen
        uid = record.workload.uid
        if record.state is State.EVICTING and self.one_at_a_time:
            self._blocking.add(uid)  # its pods are going
        if record.state is not State.ADMITTED or record.cleared_at is None or seen is None:
            return
        if seen.ready and not seen.suspended:
            self._starting.pop(uid, None)
            self._blocking.discard(uid)
            return
        if not seen.suspended:
            self._starting[uid] = None
        if self.one_at_a_time:
            self._blocking.add(uid)

    @property
    def blocked(self) -> bool:
        """Whether nothing may be admitted now, because pods of an admitted workload are not ready."""
        for uid in list(self._blocking):
            tracked = self._registry.get(uid)
            if tracked is not None and tracked.holds_quota:
                return True
            self._blocking.discard(uid)
        return False

    def unready(self) -> list[Tracked]:
        """The admitted workloads that may run and whose pods are not all ready."""
        found = []
        for uid in list(self._starting):
            tracked = self._registry.get(uid)
            if tracked is not None and tracked.record.state is State.ADMITTED:
                found.append(tracked)
            else:
                del self._starting[uid]
        return found


def _is_unready(record: WorkloadRecord) -> bool:
    """Whether it holds quota, and was not known to have all its pods ready."""
    if record.state is State.ADMITTED:
        return record.cleared_at is not None and (record.ready_at is None or record.unready_at is not None)
    return record.state is State.EVICTING
