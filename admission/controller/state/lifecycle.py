"""Next step for one workload: a pure function of its committed state and its object as last seen.

    pending ──admit──> admitted ──finish──> finished
       ^                   │ evict
       └────release──── evicting

A workload holds quota while it is `admitted` or `evicting`. The table is level-based: it may be evaluated again at any
time, after any crash, and gives the same step until that step has taken effect.

| committed | object seen                  | step    | why                                                           |
| --------- | ---------------------------- | ------- | ------------------------------------------------------------- |
| pending   | runs                         | STOP    | it has no quota: it was never gated, or was ungated by others |
| pending   | stopped, still changed by us | RESTORE | a start patch took effect after its eviction                  |
| admitted  | gated, pods remain           | WAIT    | suspended by others: no new pods beside the old ones          |
| admitted  | gated                        | START   | its quota is committed, so it may run                         |
| admitted  | some of its pods are gated   | START   | a start was interrupted, or a pod was recreated               |
| admitted  | pods beyond its quota run    | START   | ungated by others, or scaled up: these pods are stopped       |
| admitted  | gated, checks not all Ready  | WAIT    | it may run when all admission checks are Ready                |
| admitted  | runs, checks not all Ready   | STOP    | ungated by others                                             |
| evicting  | runs                         | STOP    | its quota is to be released                                   |
| evicting  | gated, pods remain           | WAIT    | quota is free when the pods have terminated, not earlier      |
| evicting  | stopped, still changed by us | RESTORE | its object is restored before it is queued again              |
| evicting  | stopped, restored            | RELEASE |                                                               |
| any       | otherwise                    | WAIT    |                                                               |

The controller of an object that is being deleted, but kept by a finalizer, creates no pods and ignores suspension:

| committed | object seen | step    | why                                    |
| --------- | ----------- | ------- | -------------------------------------- |
| pending   | pods remain | STOP    | its pods have no quota                 |
| evicting  | pods remain | STOP    | its quota is to be released            |
| evicting  | no pods     | RELEASE | restored or not, it does not run again |
| any       | otherwise   | WAIT    |                                        |
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from admission.store.records import State

if TYPE_CHECKING:
    from admission.kinds.base import Observed


class Step(Enum):
    """The next step for a workload: a request about its object, or the release of its quota."""

    WAIT = "wait"
    START = "start"
    STOP = "stop"
    RESTORE = "restore"
    RELEASE = "release"


def next_step(
    state: State, seen: Observed, *, changed_by_us: bool, checks_pending: bool = False, settled: bool = True
) -> Step:
    """Return the step for a workload committed as `state` whose object was last seen as `seen`.

    `changed_by_us`: the object still carries fields that a start patch injected.
    `checks_pending`: not all of its admission checks are Ready.
    `settled`: for a gated object, whether `seen.active` accounts for all pods of its last start.
    """
    pods_remain = seen.active or not settled
    if seen.finished is not None:
        return Step.WAIT
    if seen.deleting:
        return _step_of_deleted(state, seen, settled=settled)
    match state:
        case State.FINISHED:
            return Step.WAIT
        case State.ADMITTED if checks_pending:
            return Step.WAIT if seen.suspended else Step.STOP
        case State.ADMITTED if seen.is_uneven:
            return Step.START
        case State.ADMITTED:
            return Step.START if seen.suspended and not pods_remain else Step.WAIT
        case State.PENDING if not seen.suspended:
            return Step.STOP
        case State.PENDING:
            return Step.RESTORE if changed_by_us else Step.WAIT
        case State.EVICTING if not seen.suspended:
            return Step.STOP
        case State.EVICTING if pods_remain:
            return Step.WAIT
        case State.EVICTING:
            return Step.RESTORE if changed_by_us else Step.RELEASE


def _step_of_deleted(state: State, seen: Observed, *, settled: bool) -> Step:
    """Return the step for a workload whose object is being deleted (second table)."""
    # The controller of a user-defined kind may create pods even while the object is being deleted.
    may_go_on = not seen.suspended and not seen.kind.reports_pods
    if state in (State.PENDING, State.EVICTING) and (seen.active or may_go_on) and not seen.ending:
        return Step.STOP
    if state is State.EVICTING and settled and not seen.active:
        return Step.RELEASE
    return Step.WAIT
