"""Rules for workloads that hold quota: admission checks, readiness of pods, maximum execution time.

The rules, reasons and messages are Kueue's (`workload_controller.go`). Pure functions on a change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from admission.controller.state.tracked import StartPatch
from admission.engine.events import ChecksReady, PodAdditions
from admission.engine.vocabulary import DRAINED, NODE_FAILURES
from admission.model import sentences
from admission.model.errors import Misconfigured
from admission.model.workload import Toleration
from admission.store.records import NODE_REPLACED, RESIZED, CheckRecord, State

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from admission.controller.state.policy import WaitForPodsReady
    from admission.controller.state.tracked import Tracked
    from admission.controller.state.triggers import (
        CheckAnswered,
        CheckRulesChanged,
        DeadlineReached,
        DispatchFailed,
        Drained,
        NodesLost,
        QuotaReserved,
    )
    from admission.controller.state.workload_change import WorkloadChange
    from admission.controller.workloads.environment import Environment
    from admission.engine.events import Reassign
    from admission.kinds.base import Object, Observed
    from admission.model.checks import PodSetUpdate
    from admission.model.queues import AdmissionCheckRule
    from admission.model.workload import Admission
    from admission.store.records import WorkloadRecord

PODS_READY_TIMEOUT = "PodsReadyTimeout"
ADMISSION_CHECK = "AdmissionCheck"


def quota_reserved(change: WorkloadChange, event: QuotaReserved, environment: Environment) -> None:
    """Admit the workload: it may start, or its admission checks become pending if its ClusterQueue has any."""
    rules = environment.context.check_rules.get(event.admission.cluster_queue)
    needed = _required(rules, event.admission) if rules else ()
    change.admit(event.admission, event.start, checks=needed)
    if needed or change.tracked.checks:
        _require_checks(change, needed)
    evaluate(change, environment)


def check_rules_changed(change: WorkloadChange, _: CheckRulesChanged, environment: Environment) -> None:
    """Apply changed admission checks of the ClusterQueue to a workload that already holds its quota."""
    record = change.tracked.record
    assert record.admission is not None, record
    rules = environment.context.check_rules.get(record.cluster_queue, ())
    names = _required(rules, record.admission)
    if names or change.tracked.checks:
        _require_checks(change, names)
    evaluate(change, environment)


def check_answered(change: WorkloadChange, event: CheckAnswered, environment: Environment) -> None:
    """Store the new state of an admission check, and act on it."""
    tracked, check = change.tracked, event.check
    if tracked.record.state is not State.ADMITTED:
        return  # the state is of an earlier admission
    if check.name in (known.name for known in tracked.checks):
        tracked.checks = tuple(check if known.name == check.name else known for known in tracked.checks)
        evaluate(change, environment)


def deadline_reached(change: WorkloadChange, _: DeadlineReached, environment: Environment) -> None:
    """Evict or deactivate a workload whose time is up; set the next deadline if none is."""
    tracked = change.tracked
    tracked.deadline = None
    record, seen, now = tracked.record, tracked.seen, change.now
    if record.state is not State.ADMITTED or seen is None or seen.finished is not None:
        return
    policy = environment.pods_ready
    run_deadline, ready_deadline = _run_deadline(tracked), _ready_deadline(record, policy)
    if run_deadline is not None and run_deadline <= now:
        change.deactivate(cause="MaximumExecutionTimeExceeded", because=sentences.RAN_TOO_LONG)
    elif policy is not None and ready_deadline is not None and ready_deadline <= now:
        _readiness_timed_out(change, policy, environment)
    else:
        tracked.deadline = _deadline(tracked, policy)


def placed_again(change: WorkloadChange, event: Reassign, environment: Environment) -> None:
    """Replace the domains of the pods on a failed node by others; its other pods run on.

    A workload that had none, as its admission checks were not Ready, starts.
    """
    tracked = change.tracked
    record = tracked.record
    if record.state is not State.ADMITTED or record.admission is None:
        return
    if record.checks_pending:
        change.resize(event.admission, record.workload, why=RESIZED)
        if tracked.seen is not None and tracked.object is not None and _all_ready(tracked.checks):
            _clear(change, tracked.seen, tracked.object, environment)
        return
    before, after = _nodes(record.admission), _nodes(event.admission)
    message = sentences.placed_again(before - after, after - before)
    change.resize(event.admission, record.workload, why=NODE_REPLACED)
    change.write(reason=NODE_REPLACED, message=message)


def _nodes(admission: Admission) -> set[str]:
    domains = (pod_set.topology.domains for pod_set in admission.pod_sets if pod_set.topology is not None)
    return {values[-1] for each in domains for values, _ in each}


def nodes_lost(change: WorkloadChange, event: NodesLost, _: Environment) -> None:
    """Evict a workload several of whose nodes have failed."""
    if change.tracked.record.state is State.ADMITTED:
        change.evict(reason=NODE_FAILURES, message=event.message)


def dispatch_failed(change: WorkloadChange, event: DispatchFailed, _: Environment) -> None:
    """Evict a workload from the cluster that it was dispatched to; another one may take it."""
    tracked = change.tracked
    if event.barred:
        tracked.barred = {**tracked.barred, event.barred: (event.until, event.message)}
    if tracked.record.state is State.ADMITTED:
        change.evict(reason=event.reason, message=event.message)


def drained(change: WorkloadChange, event: Drained, _: Environment) -> None:
    """Evict a workload with pods on a node that has to be empty."""
    if change.tracked.record.state is State.ADMITTED:
        change.evict(reason=DRAINED, message=event.message)


def evaluate(change: WorkloadChange, environment: Environment) -> None:
    """Act on the checks and the readiness of an admitted workload, as last observed, and set its deadline."""
    change.was_evaluated = True
    tracked = change.tracked
    seen = tracked.seen
    if tracked.record.state is not State.ADMITTED or seen is None:
        return
    if tracked.checks or tracked.record.checks_pending:
        _evaluate_checks(change, seen, environment)
    record = tracked.record
    if record.state is State.ADMITTED and record.cleared_at is not None:
        if seen.ready or environment.pods_ready is not None:
            _note_readiness(change, seen, environment.pods_ready)
        has_deadline = environment.pods_ready is not None or tracked.max_seconds is not None
        tracked.deadline = _deadline(tracked, environment.pods_ready) if has_deadline else None


def _require_checks(change: WorkloadChange, names: Collection[str]) -> None:
    """Make exactly these admission checks the workload's; states of those that it already had are kept."""
    tracked = change.tracked
    known = {check.name: check for check in tracked.checks}
    change.dropped_checks += [check for name, check in known.items() if name not in names]
    required = []
    for name in names:
        if name not in known:
            known[name] = CheckRecord(uid=tracked.uid, name=name, state="Pending", at=change.now)
            change.requested_checks.append(known[name])
        required.append(known[name])
    tracked.checks = tuple(required)


def _evaluate_checks(change: WorkloadChange, seen: Observed, environment: Environment) -> None:
    """Start the workload if all checks are Ready; deactivate it if one is Rejected; evict it if one says Retry."""
    tracked = change.tracked
    rejected = _in_state(tracked.checks, "Rejected")
    retrying = _in_state(tracked.checks, "Retry")
    if rejected:
        change.deactivate(cause=ADMISSION_CHECK, because=sentences.rejected(_names_and_messages(rejected)))
    elif retrying:
        later = _requeue_after(retrying)
        fields: dict[str, Any] = {} if later is None else {"not_before": later}
        change.evict(
            reason=ADMISSION_CHECK,
            message=sentences.retried(_names_and_messages(retrying)),
            to_queue_end=True,
            **fields,
        )
    elif tracked.record.checks_pending and _all_ready(tracked.checks) and (obj := tracked.object) is not None:
        if _is_unplaced(tracked.record):
            change.engine_events.append(ChecksReady(tracked.uid, _additions(tracked.updates)))
        else:
            _clear(change, seen, obj, environment)


def _is_unplaced(record: WorkloadRecord) -> bool:
    """Return whether pods get their place only when all admission checks are Ready, and have none yet."""
    return record.admission is not None and any(
        each.delayed and each.topology is None for each in record.admission.pod_sets
    )


def _additions(updates: Iterable[PodSetUpdate]) -> dict[str, PodAdditions]:
    """Return what checks add to the pods of each pod set that decides where they may run."""
    found: dict[str, PodAdditions] = {}
    for update in updates:
        before = found.get(update.name, PodAdditions({}))
        added = (Toleration(**each.model_dump()) for each in update.tolerations)
        selector = {**before.node_selector, **update.node_selector}
        found[update.name] = PodAdditions(selector, (*before.tolerations, *added))
    return found


def _clear(change: WorkloadChange, seen: Observed, obj: Object, environment: Environment) -> None:
    """Start a workload whose admission checks are all Ready."""
    admission = change.tracked.record.admission
    assert admission is not None, change.tracked
    try:
        start = StartPatch.of(seen, obj, admission, environment.context.flavors, updates=change.tracked.updates)
    except Misconfigured as error:
        change.refuse(generation=seen.generation, message=str(error))
    else:
        change.clear(start)


def _required(rules: Iterable[AdmissionCheckRule], admission: Admission) -> tuple[str, ...]:
    """Return the names of the checks of an admission: those for all flavors, and those for one of its flavors."""
    flavors = {flavor for pod_set in admission.pod_sets for flavor in pod_set.flavors.values()}
    needed = {rule.name for rule in rules if not rule.on_flavors or not flavors.isdisjoint(rule.on_flavors)}
    return tuple(sorted(needed))


def _in_state(checks: Iterable[CheckRecord], state: str) -> list[CheckRecord]:
    """Return the checks in this state."""
    return [check for check in checks if check.state == state]


def _all_ready(checks: Iterable[CheckRecord]) -> bool:
    """Return whether all checks are Ready."""
    return all(check.state == "Ready" for check in checks)


def _requeue_after(retrying: Iterable[CheckRecord]) -> float | None:
    """Return when the workload may be requeued, by `requeueAfterSeconds` of its Retry checks; None: none has it."""
    times = [check.at + check.requeue_after_seconds for check in retrying if check.requeue_after_seconds is not None]
    return max(times, default=None)


def _names_and_messages(checks: Iterable[CheckRecord]) -> list[tuple[str, str]]:
    """Return (name, message) of each check."""
    return [(check.name, check.message) for check in checks]


def _note_readiness(change: WorkloadChange, seen: Observed, policy: WaitForPodsReady | None) -> None:
    """Record when the pods became ready or unready; times are kept only with `waitForPodsReady`."""
    is_ready = seen.ready and not seen.suspended
    if is_ready:
        generation, refusal = change.tracked.not_scaled
        change.note_pod_problem(refusal if generation == seen.generation else "")
    if policy is None:
        return
    record = change.tracked.record
    if is_ready:
        if record.ready_at is None or record.unready_at is not None:
            change.tracked.change(ready_at=change.now, unready_at=None)
            change.write_later()
    elif record.ready_at is not None and record.unready_at is None:
        change.tracked.change(unready_at=change.now)
        change.write_later()


def _deadline(tracked: Tracked, policy: WaitForPodsReady | None) -> float | None:
    """Return the earlier of the readiness and the run deadline (Unix time, s); None: there is none."""
    times = [time for time in (_ready_deadline(tracked.record, policy), _run_deadline(tracked)) if time is not None]
    return min(times, default=None)


def _ready_deadline(record: WorkloadRecord, policy: WaitForPodsReady | None) -> float | None:
    """Return when the workload's pods have to be ready, or ready again (Unix time, s); None: no limit."""
    if policy is None or record.cleared_at is None:
        return None
    if record.ready_at is None:
        return record.cleared_at + policy.timeout
    if record.unready_at is None or policy.recovery_timeout is None:
        return None
    return record.unready_at + policy.recovery_timeout


def _run_deadline(tracked: Tracked) -> float | None:
    """Return when the maximum execution time is over (Unix time, s), counting earlier admissions; None: no limit."""
    record, limit = tracked.record, tracked.max_seconds
    if limit is None or record.cleared_at is None:
        return None
    return record.cleared_at + max(limit - record.past_seconds, 0.0)


def _readiness_timed_out(change: WorkloadChange, policy: WaitForPodsReady, environment: Environment) -> None:
    """Evict a workload whose pods are not ready in time, with backoff; deactivate it after `backoffLimitCount`."""
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
    change.evict(**fields, to_queue_end=policy.count_from_eviction)
