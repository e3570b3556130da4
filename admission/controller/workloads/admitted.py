"""What follows for workloads that hold quota: checks are asked and answer, pods become ready or do not, time runs out.

Kueue's rules (`workload_controller.go`), with its reasons and sentences. Pure functions on a change.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from admission.controller.state.tracked import StartPatch
from admission.model import sentences
from admission.model.errors import Misconfigured
from admission.store.records import CheckRecord, State

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from admission.controller.state.policy import WaitForPodsReady
    from admission.controller.state.workload_change import WorkloadChange
    from admission.controller.workloads.environment import Environment
    from admission.controller.workloads.triggers import CheckAnswered, CheckRulesChanged, DeadlineReached, QuotaGiven
    from admission.kinds.base import Object, Observed
    from admission.model.queues import AdmissionCheckRule
    from admission.model.workload import Admission
    from admission.store.records import WorkloadRecord

PODS_READY_TIMEOUT = "PodsReadyTimeout"
ADMISSION_CHECK = "AdmissionCheck"


def quota_given(change: WorkloadChange, event: QuotaGiven, environment: Environment) -> None:
    """The engine gave it quota: its checks are asked, or it may run."""
    rules = environment.context.check_rules.get(event.admission.cluster_queue)
    needed = _required(rules, event.admission) if rules else ()
    change.admit(event.admission, event.start, checks=needed)
    if needed or change.tracked.checks:
        _ask(change, needed)
    look(change, environment)


def check_rules_changed(change: WorkloadChange, _: CheckRulesChanged, environment: Environment) -> None:
    """Its ClusterQueue asks for other checks now, of those too that hold its quota."""
    record = change.tracked.record
    assert record.admission is not None, record
    rules = environment.context.check_rules.get(record.cluster_queue, ())
    names = _required(rules, record.admission)
    if names or change.tracked.checks:
        _ask(change, names)
    look(change, environment)


def check_answered(change: WorkloadChange, event: CheckAnswered, environment: Environment) -> None:
    """A check has answered."""
    tracked, check = change.tracked, event.check
    if tracked.record.state is not State.ADMITTED:
        return  # what it said was for an admission that is over
    if check.name in (known.name for known in tracked.checks):
        tracked.checks = tuple(check if known.name == check.name else known for known in tracked.checks)
        look(change, environment)


def deadline_reached(change: WorkloadChange, _: DeadlineReached, environment: Environment) -> None:
    """The time has come that was set for it."""
    tracked = change.tracked
    tracked.deadline = None
    record, seen, now = tracked.record, tracked.seen, change.now
    if record.state is not State.ADMITTED or seen is None:
        return
    policy = environment.pods_ready
    until, ready_by = _run_until(record, seen), _ready_by(record, policy)
    if until is not None and until <= now:
        change.deactivate(cause="MaximumExecutionTimeExceeded", because=sentences.RAN_TOO_LONG)
    elif policy is not None and ready_by is not None and ready_by <= now:
        _time_out(change, policy, environment)
    else:
        tracked.deadline = _deadline(record, seen, policy)


def look(change: WorkloadChange, environment: Environment) -> None:
    """What follows for it, if it holds quota, from what was last seen and said of it."""
    change.was_looked_at = True
    tracked = change.tracked
    seen = tracked.seen
    if tracked.record.state is not State.ADMITTED or seen is None:
        return
    if tracked.checks or tracked.record.checks_pending:
        _judge(change, seen, environment)
    record = tracked.record
    if record.state is State.ADMITTED and record.cleared_at is not None:
        if seen.ready or environment.pods_ready is not None:
            _note_readiness(change, seen, environment.pods_ready)
        has_deadline = environment.pods_ready is not None or seen.max_seconds is not None
        tracked.deadline = _deadline(tracked.record, seen, environment.pods_ready) if has_deadline else None


def _ask(change: WorkloadChange, names: Collection[str]) -> None:
    """Exactly these checks count; what those say that counted before stays."""
    tracked = change.tracked
    known = {check.name: check for check in tracked.checks}
    change.dropped_checks += [check for name, check in known.items() if name not in names]
    asked = []
    for name in names:
        if name not in known:
            known[name] = CheckRecord(uid=tracked.uid, name=name, state="Pending", at=change.now)
            change.asked_checks.append(known[name])
        asked.append(known[name])
    tracked.checks = tuple(asked)


def _judge(change: WorkloadChange, seen: Observed, environment: Environment) -> None:
    """By what its checks say: start it, take its quota back, or go on waiting."""
    tracked = change.tracked
    rejected = _in_state(tracked.checks, "Rejected")
    retrying = _in_state(tracked.checks, "Retry")
    if rejected:
        change.deactivate(cause=ADMISSION_CHECK, because=sentences.rejected(_said(rejected)))
    elif retrying:
        later = _not_before(retrying)
        _evict_to_the_end(
            change,
            reason=ADMISSION_CHECK,
            message=sentences.retried(_said(retrying)),
            **({} if later is None else {"not_before": later}),
        )
    elif tracked.record.checks_pending and _all_ready(tracked.checks) and (obj := tracked.object) is not None:
        _clear(change, seen, obj, environment)


def _clear(change: WorkloadChange, seen: Observed, obj: Object, environment: Environment) -> None:
    admission = change.tracked.record.admission
    assert admission is not None, change.tracked
    try:
        start = StartPatch.of(seen, obj, admission, environment.context.flavors, updates=change.tracked.updates)
    except Misconfigured as error:
        change.refuse(generation=seen.generation, message=str(error))
    else:
        change.clear(start)


def _required(rules: Iterable[AdmissionCheckRule], admission: Admission) -> tuple[str, ...]:
    """The names of the checks that an admission needs: those for all flavors, and those for one that it got."""
    flavors = {flavor for pod_set in admission.pod_sets for flavor in pod_set.flavors.values()}
    needed = {rule.name for rule in rules if not rule.on_flavors or not flavors.isdisjoint(rule.on_flavors)}
    return tuple(sorted(needed))


def _in_state(checks: Iterable[CheckRecord], state: str) -> list[CheckRecord]:
    """Those that say this."""
    return [check for check in checks if check.state == state]


def _all_ready(checks: Iterable[CheckRecord]) -> bool:
    """Whether nothing is left to wait for."""
    return all(check.state == "Ready" for check in checks)


def _not_before(retrying: Iterable[CheckRecord]) -> float | None:
    """Until when the checks that say Retry want to be left alone; None: they do not say."""
    times = [check.at + check.requeue_after_seconds for check in retrying if check.requeue_after_seconds is not None]
    return max(times, default=None)


def _said(checks: Iterable[CheckRecord]) -> list[tuple[str, str]]:
    """(name, message) of each."""
    return [(check.name, check.message) for check in checks]


def _evict_to_the_end(change: WorkloadChange, *, reason: str, message: str, **fields: Any) -> None:
    """Evict it; afterwards it waits as if it had come now."""
    later = replace(change.tracked.record.workload, queued_at=change.now)
    change.evict(reason=reason, message=message, **{"workload": later, **fields})


def _note_readiness(change: WorkloadChange, seen: Observed, policy: WaitForPodsReady | None) -> None:
    is_ready = seen.ready and not seen.suspended
    if is_ready:
        change.note_pod_problem("")
    if policy is None:
        return
    record = change.tracked.record
    if is_ready:
        if record.ready_at is None or record.unready_at is not None:
            change.tracked.change(ready_at=change.now, unready_at=None)
            change.note()
    elif record.ready_at is not None and record.unready_at is None:
        change.tracked.change(unready_at=change.now)
        change.note()


def _deadline(record: WorkloadRecord, seen: Observed, policy: WaitForPodsReady | None) -> float | None:
    times = [time for time in (_ready_by(record, policy), _run_until(record, seen)) if time is not None]
    return min(times, default=None)


def _ready_by(record: WorkloadRecord, policy: WaitForPodsReady | None) -> float | None:
    """When its pods have to be ready."""
    if policy is None or record.cleared_at is None:
        return None
    if record.ready_at is None:
        return record.cleared_at + policy.timeout
    if record.unready_at is None or policy.recovery_timeout is None:
        return None
    return record.unready_at + policy.recovery_timeout


def _run_until(record: WorkloadRecord, seen: Observed) -> float | None:
    """When its time is over, of which it may have used some in former admissions."""
    if seen.max_seconds is None or record.cleared_at is None:
        return None
    return record.cleared_at + max(seen.max_seconds - record.past_seconds, 0.0)


def _time_out(change: WorkloadChange, policy: WaitForPodsReady, environment: Environment) -> None:
    record = change.tracked.record
    requeues = record.requeues + 1
    if policy.backoff_limit is not None and requeues > policy.backoff_limit:
        change.deactivate(cause="RequeuingLimitExceeded", because=sentences.TOO_MANY_REQUEUES)
        return
    recovering = record.ready_at is not None
    seconds = (policy.recovery_timeout if recovering else None) or policy.timeout
    fields: dict[str, Any] = {
        "reason": PODS_READY_TIMEOUT,
        "message": sentences.pods_not_ready(seconds, recovering=recovering),
        "requeues": requeues,
        "not_before": change.now + policy.pause(requeues, environment.chance()),
    }
    if policy.count_from_eviction:
        _evict_to_the_end(change, **fields)
    else:
        change.evict(**fields)
