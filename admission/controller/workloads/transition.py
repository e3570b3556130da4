"""State transitions of workloads: a pure function from a workload and a trigger to a WorkloadChange.

Being pure, an exception raised for one workload leaves no partial change behind, and each rule can be tested with
plain values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from admission.controller.state.triggers import (
    CheckAnswered,
    CheckRulesChanged,
    ClaimsChanged,
    ContextChange,
    DeadlineReached,
    DispatchFailed,
    Drained,
    EditedBeforeStart,
    KindUnlisted,
    LargerAdmitted,
    LastPodEnded,
    LeftQueue,
    NodesLost,
    Noted,
    ObjectDeleted,
    ObjectSeen,
    Ordered,
    PlacesGivenUp,
    PodProblem,
    PodsCounted,
    QuotaReserved,
    RequestsMeasured,
    StartImpossible,
    StopHindered,
    Stopped,
)
from admission.controller.state.workload_change import WorkloadChange
from admission.controller.workloads import admitted, learning, observed, scaling
from admission.engine.events import Evict, Park, Reassign
from admission.engine.vocabulary import BUDGET_EXHAUSTED, OVER_QUOTA, PREEMPTED, RESERVATION_STARTED
from admission.model import sentences
from admission.store.records import DEQUEUED, State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from admission.controller.state.tracked import Tracked
    from admission.controller.state.triggers import Trigger
    from admission.controller.workloads.environment import Environment


def transition(tracked: Tracked, trigger: Trigger, environment: Environment, *, now: float) -> WorkloadChange:
    """Return the change that a trigger causes at `now` (Unix time, s); `tracked` is not modified."""
    change = WorkloadChange(tracked, now=now)
    _RULES[type(trigger)](change, trigger, environment)
    return change


def _impossible(change: WorkloadChange, trigger: StartImpossible, _: Environment) -> None:
    if trigger.begun:  # it would be tried again without end
        change.deactivate(cause="StartImpossible", because=trigger.message)
        return
    # A workload that holds quota is evicted; a pending one is put on hold.
    (change.refuse if change.tracked.holds_quota else change.block)(
        generation=trigger.generation, message=trigger.message
    )


def _evicted(change: WorkloadChange, decision: Evict, _: Environment) -> None:
    if change.tracked.record.state is State.ADMITTED:
        quota_is_taken = decision.reason in (PREEMPTED, OVER_QUOTA, RESERVATION_STARTED, BUDGET_EXHAUSTED)
        change.evict(
            reason=decision.reason,
            message=sentences.taken_back(decision.message) if quota_is_taken else decision.message,
            preemption=decision.preemption_reason,
            decided_by_engine=True,
            to_queue_end=decision.to_queue_end,
        )


def _parked(change: WorkloadChange, decision: Park, _: Environment) -> None:
    if decision.workload.replaces:
        scaling.larger_parked(change, decision)
    else:
        change.set_waiting_reason(decision.reason, decision.message)


_RULES: Mapping[type, Callable[[WorkloadChange, Any, Environment], None]] = {
    # Trigger type -> rule: a function that is called with the change, the trigger and the environment.
    ObjectSeen: observed.object_seen,
    ObjectDeleted: observed.object_deleted,
    LastPodEnded: observed.last_pod_ended,
    ContextChange: observed.context_changed,
    ClaimsChanged: observed.claims_changed,
    Ordered: observed.ordered,
    Stopped: observed.stopped,
    CheckAnswered: admitted.check_answered,
    CheckRulesChanged: admitted.check_rules_changed,
    QuotaReserved: admitted.quota_reserved,
    LargerAdmitted: scaling.larger_admitted,
    PodsCounted: scaling.pods_counted,
    PlacesGivenUp: scaling.places_given_up,
    RequestsMeasured: learning.requests_measured,
    DeadlineReached: observed.deadline_reached,
    DispatchFailed: admitted.dispatch_failed,
    Evict: _evicted,
    Park: _parked,
    Reassign: admitted.placed_again,
    NodesLost: admitted.nodes_lost,
    Drained: admitted.drained,
    StartImpossible: _impossible,
    EditedBeforeStart: lambda change, trigger, _: change.amend(original=trigger.original),
    KindUnlisted: lambda change, _trigger, _: change.block_kind_unlisted(),
    LeftQueue: lambda change, trigger, _: change.finish(outcome=DEQUEUED, message=trigger.message),
    StopHindered: lambda change, trigger, _: change.note_stop_hindered(trigger.text),
    PodProblem: lambda change, trigger, _: change.note_pod_problem(trigger.text),
    Noted: lambda change, trigger, _: change.write(reason=trigger.reason, message=trigger.text),
}
