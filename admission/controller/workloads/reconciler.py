"""The one place where workloads change: computes what follows from what happens to one, and has it take effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.controller.state.deadlines import Deadlines
from admission.controller.state.tracked import is_older
from admission.controller.workloads.readiness import Readiness
from admission.controller.workloads.transition import arrival, transition
from admission.controller.workloads.triggers import DeadlineReached, ObjectGone, ObjectSeen
from admission.kinds.base import POD_OWNER
from admission.store.records import DEQUEUED

if TYPE_CHECKING:
    from admission.controller.state.isolation import Isolation
    from admission.controller.state.leader_state import LeaderState
    from admission.controller.state.tracked import Tracked
    from admission.controller.state.workload_change import WorkloadChange
    from admission.controller.workloads.environment import Environment
    from admission.controller.workloads.pod_waiter import PodWaiter
    from admission.controller.workloads.triggers import Trigger
    from admission.kinds.base import Kind, Object


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
        self._apply(transition(tracked, trigger, self.environment, now=self.state.now()), tracked.deadline)

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
            self._apply(arrival(ObjectSeen(seen, obj), self.environment, now=self.state.now()), None)

    def _note_end(self, tracked: Tracked) -> None:
        record, seen = tracked.record, tracked.seen
        # A group of pods is told of as the latest that is known of its pods; what left the queue unseen may be there.
        if not self.environment.kinds.is_composed(record.workload) and (seen or record.outcome != DEQUEUED):
            self.state.ended.add(tracked.uid, "" if seen is None else seen.resource_version)

    def pass_time(self) -> None:
        """Do what is due by now."""
        for tracked in self.deadlines.due(self.state.now()):
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
