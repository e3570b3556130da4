"""What happens to workloads that hold quota: checks are asked and answer, pods become ready or do not, time runs out.

Kueue's rules (`workload_controller.go`), with its reasons and sentences. Nothing here does I/O.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from admission.controller.state import checks
from admission.controller.state.deadlines import Deadlines
from admission.model import sentences
from admission.model.errors import Misconfigured
from admission.store.records import CheckRecord, State

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from contextlib import AbstractContextManager

    from admission.controller.state.context import Context
    from admission.controller.state.policy import WaitForPodsReady
    from admission.controller.state.tracked import Tracked
    from admission.controller.state.workload_state import Desk
    from admission.engine.events import Admit
    from admission.kinds.base import Object, Observed
    from admission.store.records import WorkloadRecord

PODS_READY_TIMEOUT = "PodsReadyTimeout"
ADMISSION_CHECK = "AdmissionCheck"


class Upkeep:
    """Looks at workloads whenever something may have changed for them; may be asked any number of times."""

    def __init__(
        self,
        *,
        context: Context,
        desk: Desk,
        pods_ready: WaitForPodsReady | None,
        clock: Callable[[], float],
        isolated: Callable[[str], AbstractContextManager[None]],
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`isolated`: within it, what is raised is the fault of the workload with this uid (see `Isolation`)."""
        self._isolated = isolated
        self._context = context
        self._desk = desk
        self._policy = pods_ready
        self.one_at_a_time = pods_ready is not None and pods_ready.block_admission
        """Whether those that are not ready keep others out."""
        self._clock = clock
        self._chance = chance
        self._deadlines = Deadlines(desk.registry)
        self._starting: dict[str, None] = {}
        """Uids of those that may run and were last seen with pods that are not ready."""
        self._unready: set[str] = set()
        """Those that do, if they still hold quota."""

    def restored(self) -> None:
        """All that is on record was put into the registry: who keeps others out until it is seen again?"""
        if self.one_at_a_time:
            self._unready = {tracked.uid for tracked in self._desk.registry if _is_unready(tracked.record)}

    def admit(self, tracked: Tracked, decision: Admit, *, original: Object) -> None:
        """The engine gave it quota: its checks are asked, or it may run."""
        needed = checks.required(self._context.check_rules(decision.admission.cluster_queue), decision.admission)
        self._desk.admit(tracked, decision, original=original, checks=needed)
        self._ask(tracked, needed)
        self.look(tracked)

    def rules_changed(self, cluster_queue: str) -> None:
        """A ClusterQueue asks for other checks now, of those too that hold its quota."""
        rules = self._context.check_rules(cluster_queue)
        for tracked in list(self._desk.registry):
            record = tracked.record
            if record.state is State.ADMITTED and record.admission and record.cluster_queue == cluster_queue:
                with self._isolated(tracked.uid):
                    self._ask(tracked, checks.required(rules, record.admission))
                    self.look(tracked)

    def said(self, check: CheckRecord) -> None:
        """A check has answered."""
        tracked = self._desk.registry.get(check.uid)
        if tracked is None or tracked.record.state is not State.ADMITTED:
            return  # what it said was for an admission that is over
        if check.name in (known.name for known in tracked.checks):
            tracked.checks = tuple(check if known.name == check.name else known for known in tracked.checks)
            self.look(tracked)

    def _ask(self, tracked: Tracked, names: Collection[str]) -> None:
        """Exactly these checks count; what those say that counted before stays."""
        known = {check.name: check for check in tracked.checks}
        for name, check in known.items():
            if name not in names:
                self._desk.batch.drop_check(check)
        asked = []
        for name in names:
            if name not in known:
                known[name] = CheckRecord(uid=tracked.uid, name=name, state="Pending", at=self._clock())
                self._desk.batch.ask(known[name])
            asked.append(known[name])
        tracked.checks = tuple(asked)

    def look(self, tracked: Tracked) -> None:
        """What follows for it, if it holds quota, from what was last seen and said of it."""
        record, seen = tracked.record, tracked.seen
        if record.state is State.EVICTING and self.one_at_a_time:
            self._unready.add(tracked.uid)  # its pods are going
        if record.state is not State.ADMITTED or seen is None:
            return
        self._judge(tracked, seen)
        record = tracked.record
        if record.state is State.ADMITTED and record.cleared_at is not None:
            self._follow_readiness(tracked, seen)
            self._deadlines.set(tracked, self._deadline(tracked.record, seen))

    def _judge(self, tracked: Tracked, seen: Observed) -> None:
        """By what its checks say: start it, take its quota back, or go on waiting."""
        rejected = checks.in_state(tracked.checks, "Rejected")
        retrying = checks.in_state(tracked.checks, "Retry")
        if rejected:
            self._desk.deactivate(tracked, cause=ADMISSION_CHECK, because=sentences.rejected(checks.said(rejected)))
        elif retrying:
            later = checks.not_before(retrying)
            self._evict_to_the_end(
                tracked,
                reason=ADMISSION_CHECK,
                message=sentences.retried(checks.said(retrying)),
                **({} if later is None else {"not_before": later}),
            )
        elif tracked.record.checks_pending and tracked.object is not None and checks.all_ready(tracked.checks):
            self._clear(tracked, seen, tracked.object)

    def _clear(self, tracked: Tracked, seen: Observed, obj: Object) -> None:
        admission = tracked.record.admission
        assert admission is not None, tracked
        try:
            _, original = seen.kind.start_patch(obj, admission, self._context.flavors, tracked.updates)
        except Misconfigured as error:
            self._desk.refuse(tracked, generation=obj["metadata"]["generation"], message=str(error))
        else:
            self._desk.clear(tracked, original=original)

    def _evict_to_the_end(self, tracked: Tracked, *, reason: str, message: str, **fields: Any) -> None:
        """Evict it; afterwards it waits as if it had come now."""
        later = replace(tracked.record.workload, queued_at=self._clock())
        self._desk.evict(tracked, reason=reason, message=message, **{"workload": later, **fields})

    # --- readiness and time

    @property
    def blocked(self) -> bool:
        """Whether nothing may be admitted now, because pods of an admitted workload are not ready."""
        for uid in list(self._unready):
            tracked = self._desk.registry.get(uid)
            if tracked is not None and tracked.holds_quota:
                return True
            self._unready.discard(uid)
        return False

    def wake_at(self) -> float | None:
        """When the next deadline is."""
        return self._deadlines.next()

    def pass_time(self) -> None:
        """Do what is due by now."""
        now = self._clock()
        for tracked in self._deadlines.due(now):
            if tracked.record.state is State.ADMITTED and tracked.seen is not None:
                with self._isolated(tracked.uid):
                    self._expire(tracked, tracked.seen, now)

    def unready(self) -> list[Tracked]:
        """The admitted workloads that may run and whose pods are not all ready."""
        registry = self._desk.registry
        found = []
        for uid in list(self._starting):
            tracked = registry.get(uid)
            if tracked is not None and tracked.record.state is State.ADMITTED:
                found.append(tracked)
            else:
                del self._starting[uid]
        return found

    def _follow_readiness(self, tracked: Tracked, seen: Observed) -> None:
        if seen.ready and not seen.suspended:
            self._starting.pop(tracked.uid, None)
            self._desk.note_pod_problem(tracked, "")
        elif not seen.suspended:
            self._starting[tracked.uid] = None
        if self._policy is None:
            return
        record = tracked.record
        if seen.ready and not seen.suspended:
            self._unready.discard(tracked.uid)
            if record.ready_at is None or record.unready_at is not None:
                self._desk.batch.note(tracked.change(ready_at=self._clock(), unready_at=None))
            return
        if self.one_at_a_time:
            self._unready.add(tracked.uid)
        if record.ready_at is not None and record.unready_at is None:
            self._desk.batch.note(tracked.change(unready_at=self._clock()))

    def _deadline(self, record: WorkloadRecord, seen: Observed) -> float | None:
        times = [time for time in (self._ready_by(record), _run_until(record, seen)) if time is not None]
        return min(times, default=None)

    def _ready_by(self, record: WorkloadRecord) -> float | None:
        if self._policy is None or record.cleared_at is None:
            return None
        if record.ready_at is None:
            return record.cleared_at + self._policy.timeout
        if record.unready_at is None or self._policy.recovery_timeout is None:
            return None
        return record.unready_at + self._policy.recovery_timeout

    def _expire(self, tracked: Tracked, seen: Observed, now: float) -> None:
        record = tracked.record
        until, ready_by = _run_until(record, seen), self._ready_by(record)
        if until is not None and until <= now:
            self._desk.deactivate(tracked, cause="MaximumExecutionTimeExceeded", because=sentences.RAN_TOO_LONG)
        elif ready_by is not None and ready_by <= now:
            self._time_out(tracked, now)
        else:
            self._deadlines.set(tracked, self._deadline(record, seen))

    def _time_out(self, tracked: Tracked, now: float) -> None:
        policy, record = self._policy, tracked.record
        assert policy is not None
        requeues = record.requeues + 1
        if policy.backoff_limit is not None and requeues > policy.backoff_limit:
            self._desk.deactivate(tracked, cause="RequeuingLimitExceeded", because=sentences.TOO_MANY_REQUEUES)
            return
        recovering = record.ready_at is not None
        seconds = policy.recovery_timeout if recovering else policy.timeout
        evict = self._evict_to_the_end if policy.count_from_eviction else self._desk.evict
        evict(
            tracked,
            reason=PODS_READY_TIMEOUT,
            message=sentences.pods_not_ready(seconds or policy.timeout, recovering=recovering),
            requeues=requeues,
            not_before=now + policy.pause(requeues, self._chance()),
        )


def _run_until(record: WorkloadRecord, seen: Observed) -> float | None:
    """When its time is over, of which it may have used some in former admissions."""
    if seen.max_seconds is None or record.cleared_at is None:
        return None
    return record.cleared_at + max(seen.max_seconds - record.past_seconds, 0.0)


def _is_unready(record: WorkloadRecord) -> bool:
    """Whether it holds quota, and was not known to have all its pods ready."""
    if record.state is State.ADMITTED:
        return record.cleared_at is not None and (record.ready_at is None or record.unready_at is not None)
    return record.state is State.EVICTING
