"""Reconciler: applies triggers to workloads. It is the only writer of workload state.

Also keeps the deadlines of workloads, and the set of admitted workloads whose pods are not ready.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from admission.controller.state.tracked import is_older
from admission.controller.state.triggers import DeadlineReached, ObjectDeleted, ObjectSeen, RequestsMeasured
from admission.controller.workloads.learning import Samples
from admission.controller.workloads.observed import arrival
from admission.controller.workloads.transition import transition
from admission.kinds.base import POD_OWNER, WORKLOAD_UID
from admission.kinds.dispatched import is_dispatched
from admission.model.names import is_label_value
from admission.store.records import DEQUEUED, State

if TYPE_CHECKING:
    from admission.controller.state.isolation import Isolation
    from admission.controller.state.leader_state import LeaderState, WorkloadRegistry
    from admission.controller.state.tracked import Tracked
    from admission.controller.state.triggers import Trigger
    from admission.controller.state.workload_change import WorkloadChange
    from admission.controller.workloads.dispatching import Dispatching, DispatchTarget
    from admission.controller.workloads.environment import Environment
    from admission.controller.workloads.pod_waiter import PodWaiter
    from admission.kinds.base import Kind, Object
    from admission.store.records import WorkloadRecord


_RECENT: Final = 600.0
"""Seconds from a start until which its pods' requests are still read if they were not, as after a restart."""


class Reconciler:
    """Applies triggers to the workloads of one leader's state.

    An exception that it raises for a workload has left that workload unchanged (see `Isolation`).
    """

    def __init__(
        self,
        state: LeaderState,
        environment: Environment,
        pod_waiter: PodWaiter,
        isolation: Isolation,
        dispatching: Dispatching | None = None,
    ) -> None:
        """`dispatching`: the workloads that run as copies elsewhere; None: this cluster is not the hub."""
        self.state = state
        self.environment = environment
        self.isolation = isolation
        self.dispatching = dispatching
        policy = environment.pods_ready
        one_at_a_time = policy is not None and policy.block_admission
        self.readiness = Readiness(state.registry, one_at_a_time=one_at_a_time)
        self.deadlines = Deadlines(state.registry)
        self._pod_waiter = pod_waiter
        self._samples = Samples()

    def handle(self, tracked: Tracked, trigger: Trigger) -> None:
        """Compute the transition of a workload for a trigger, and apply it."""
        change = transition(tracked, trigger, self.environment, now=self.state.now)
        self._apply(change, tracked)
        if isinstance(trigger, RequestsMeasured):
            self._note_sample(change.tracked)

    def process(self, kind: Kind, obj: Object) -> None:
        """Process a version of an object that is not part of another workload (see `Children`)."""
        seen = kind.observe(obj)
        registry = self.state.registry
        tracked = registry.get(seen.uid)
        is_elsewhere = is_dispatched(kind, obj) or (tracked is not None and tracked.runs_elsewhere)
        is_group = tracked is not None and self.environment.kinds.is_composed(tracked.record.workload)
        if self.dispatching is not None and is_elsewhere and not is_group:  # a group is observed as its pods' copies
            seen = self.dispatching.observe(kind, obj, seen)
        if tracked is not None:
            if tracked.seen is None or not is_older(seen.resource_version, tracked.seen.resource_version):
                self.handle(tracked, ObjectSeen(seen, obj))
            return
        if (former := registry.named(kind, seen.namespace, seen.name)) is not None:  # deleted and recreated
            self.handle(former, ObjectDeleted(former.seen))
        if seen.queue and seen.finished is None and not self.state.ended.has(seen.uid, seen.resource_version):
            self._apply(arrival(ObjectSeen(seen, obj), self.environment, now=self.state.now), None)

    def _note_finished(self, tracked: Tracked) -> None:
        record, seen = tracked.record, tracked.seen
        # The version of a pod group is the latest of its pods, which may be observed again. An object that left the
        # queue without being observed may still exist, and may be queued again.
        if not self.environment.kinds.is_composed(record.workload) and (seen or record.outcome != DEQUEUED):
            self.state.ended.add(tracked.uid, "" if seen is None else seen.resource_version)

    def handle_deadlines(self) -> None:
        """Handle the deadlines that have passed."""
        if not self.deadlines.heap or self.deadlines.heap[0][0] > self.state.now:
            return
        for tracked in self.deadlines.due(self.state.now):
            with self.isolation.of(tracked.uid):
                self.handle(tracked, DeadlineReached())

    def wait_for_pods(self, tracked: Tracked) -> None:
        """Have `LastPodEnded` put into the inbox when no unfinished pod of the workload is left. Idempotent."""
        if not tracked.wait_number:
            workload = tracked.record.workload
            kind = self.environment.kinds.of(workload)
            target = self._runs_in(tracked)
            label = WORKLOAD_UID if target is not None else POD_OWNER if kind is None else kind.pods_label
            may_start = tracked.unsettled and tracked.finished_as is None and target is None
            waiter = self._pod_waiter if target is None or target.given_up else target.pod_waiter
            tracked.wait_number = waiter.add(workload.uid, workload.namespace, label=label, may_start=may_start)

    def _runs_in(self, tracked: Tracked) -> DispatchTarget | None:
        """Return the cluster in which the pods of a workload are; None: its own, or one that has left."""
        return None if self.dispatching is None or not tracked.runs_elsewhere else self.dispatching.target(tracked)

    def _apply(self, change: WorkloadChange, former: Tracked | None) -> None:
        """Apply a change to state, deadlines, readiness and pod queries. `former`: the workload before; None: new."""
        tracked = change.tracked
        uid = tracked.record.workload.uid
        self.state.apply(change)
        if change.is_finished:
            self._note_finished(tracked)
        if tracked.deadline != (None if former is None else former.deadline):
            self.deadlines.note(tracked)
        if change.was_evaluated:
            self.readiness.follow(tracked)
        if change.waits_for_pods:
            self.wait_for_pods(tracked)
        self._measure(tracked, finished=change.is_finished)
        target = self._runs_in(former or tracked)
        counter = self._pod_waiter if target is None else target.pod_waiter
        if tracked.surplus_pod_sets and tracked.seen is not None and not change.is_finished:
            label = tracked.seen.kind.pods_label
            counter.count(uid, tracked.record.workload.namespace, label=label)
        elif uid in counter.counting:
            counter.stop_counting(uid)

    def _measure(self, tracked: Tracked, *, finished: bool) -> None:
        """Have the requests of its first pods read after each start, unless that was long ago: of Jobs, of samples."""
        seen, record = tracked.seen, tracked.record
        if seen is None or tracked.runs_elsewhere or seen.kind.pods_label not in (WORKLOAD_UID, POD_OWNER):
            return
        began = record.cleared_at
        if finished or record.state is not State.ADMITTED or began is None or record.admission is None:
            self._pod_waiter.stop_measuring(tracked.uid)
        elif (
            not seen.suspended
            and tracked.measured != began
            and (self.state.now - began < _RECENT or any(count.unwatched for count in seen.counts))
        ):
            tracked.measured = began
            label = seen.kind.pods_label
            if label == POD_OWNER and not ((obj := tracked.object) and self._samples.takes(obj, self.state.now)):
                return
            names = {each.name for each in record.admission.pod_sets if each.count and is_label_value(each.name)}
            unwatched = frozenset(count.name for count in seen.counts if count.unwatched)
            self._pod_waiter.measure(tracked.uid, seen.namespace, names, label=label, unwatched=unwatched)

    def _note_sample(self, tracked: Tracked) -> None:
        is_job = tracked.seen is not None and tracked.seen.kind.pods_label == POD_OWNER
        if is_job and any(each.learned for each in tracked.record.workload.pod_sets) and (obj := tracked.object):
            self._samples.requests_more(obj)


class Deadlines:
    """Queue of the deadlines of workloads (`Tracked.deadline`), earliest first, for one timer."""

    def __init__(self, registry: WorkloadRegistry) -> None:
        self._registry = registry
        self.heap: list[tuple[float, str]] = []
        """(deadline, uid); an entry is stale, and ignored, if it differs from the workload's `Tracked.deadline`."""

    def note(self, tracked: Tracked) -> None:
        """Add the changed deadline of a workload."""
        if tracked.deadline is not None:
            heappush(self.heap, (tracked.deadline, tracked.uid))

    def next(self) -> float | None:
        """Return the earliest deadline (Unix time, s); None: there is none."""
        while self.heap and self._current(*self.heap[0]) is None:
            heappop(self.heap)
        return self.heap[0][0] if self.heap else None

    def due(self, now: float) -> list[Tracked]:
        """Remove the deadlines up to `now`; return their workloads."""
        found = []
        while (at := self.next()) is not None and at <= now:
            tracked = self._registry.get(heappop(self.heap)[1])
            assert tracked is not None
            tracked.deadline = None
            found.append(tracked)
        return found

    def _current(self, at: float, uid: str) -> Tracked | None:
        """Return the workload of an entry of the heap; None: the entry is stale."""
        tracked = self._registry.get(uid)
        return tracked if tracked is not None and tracked.deadline == at else None


class Readiness:
    """The admitted workloads whose pods are not all ready, and whether they block the admission of others."""

    def __init__(self, registry: WorkloadRegistry, *, one_at_a_time: bool) -> None:
        self.one_at_a_time = one_at_a_time
        """Whether workloads that are not ready block admission (Kueue's `waitForPodsReady.blockAdmission`)."""
        self._registry = registry
        self._starting: dict[str, None] = {}
        """Uids of unsuspended workloads whose pods were not all ready when last observed, in order of that."""
        self._blocking: set[str] = set()
        """Uids of workloads that block admission while they hold quota (empty unless `one_at_a_time`)."""

    def restored(self) -> None:
        """Rebuild the set of blocking workloads from their records, after the state was loaded from the database."""
        if self.one_at_a_time:
            self._blocking = {tracked.uid for tracked in self._registry if _is_blocking(tracked.record)}

    def follow(self, tracked: Tracked) -> None:
        """Update readiness after a workload was evaluated."""
        record, seen = tracked.record, tracked.seen
        uid = record.workload.uid
        if record.state is State.EVICTING and self.one_at_a_time:
            self._blocking.add(uid)  # until its pods have terminated
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
        """Whether admission is blocked, because pods of an admitted workload are not ready."""
        for uid in list(self._blocking):
            tracked = self._registry.get(uid)
            if tracked is not None and tracked.holds_quota:
                return True
            self._blocking.discard(uid)
        return False

    def unready(self) -> list[Tracked]:
        """Return the admitted, started workloads whose pods are not all ready."""
        found = []
        for uid in list(self._starting):
            tracked = self._registry.get(uid)
            if tracked is not None and tracked.record.state is State.ADMITTED:
                found.append(tracked)
            else:
                del self._starting[uid]
        return found


def _is_blocking(record: WorkloadRecord) -> bool:
    """Return whether a workload holds quota and its record does not show all pods ready."""
    if record.state is State.ADMITTED:
        return record.cleared_at is not None and (record.ready_at is None or record.unready_at is not None)
    return record.state is State.EVICTING
