"""What to do next about one workload: a pure function of what is committed and what was last seen of its object.

    pending ──admit──> admitted ──finish──> finished
       ^                   │ evict
       └────release──── evicting

A workload holds quota while it is `admitted` or `evicting`. The table is level-based: it may be asked again at any
moment, after any crash, and gives the same step until the step has had its effect.

| committed | object seen                   | step    | why                                                       |
| --------- | ----------------------------- | ------- | --------------------------------------------------------- |
| pending   | runs                          | STOP    | nobody gave it quota: the gate was missed or taken away    |
| pending   | stopped, still changed by us  | RESTORE | a start came through after its eviction                    |
| admitted  | gated, pods remain            | WAIT    | somebody else has suspended it: no new pods beside the old |
| admitted  | gated                         | START   | its quota is committed, so it may run                      |
| admitted  | some of its pods are gated    | START   | a start was cut off, or a pod was made anew               |
| admitted  | pods beyond its quota run     | START   | some have let themselves run, or have grown: they end      |
| admitted  | gated, checks not all ready   | WAIT    | admission checks say when it may run                       |
| admitted  | runs, checks not all ready    | STOP    | somebody took the gate away                                |
| evicting  | runs                          | STOP    | its quota is wanted back                                   |
| evicting  | gated, pods remain            | WAIT    | quota is free when the pods are gone, not earlier          |
| evicting  | stopped, still changed by us  | RESTORE | it is given back as it was before it queues again          |
| evicting  | stopped, as it was            | RELEASE |                                                            |
| any       | otherwise                     | WAIT    |                                                            |

The controller of what is being deleted, but kept by a finalizer, makes no pods for it and minds no suspension:

| committed | object seen                   | step    | why                                                       |
| --------- | ----------------------------- | ------- | --------------------------------------------------------- |
| pending   | pods remain                   | STOP    | its pods have no quota                                     |
| evicting  | pods remain                   | STOP    | its quota is wanted back                                   |
| evicting  | no pods                       | RELEASE | as it was or not, it does not run again                    |
| any       | otherwise                     | WAIT    |                                                            |
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from admission.store.records import State

if TYPE_CHECKING:
    from admission.kinds.base import Observed


class Step(Enum):
    """The one thing to do about a workload's object."""

    WAIT = "wait"
    START = "start"
    STOP = "stop"
    RESTORE = "restore"
    RELEASE = "release"


def next_step(
    state: State, seen: Observed, *, changed_by_us: bool, checks_pending: bool = False, settled: bool = True
) -> Step:
    """The step for a workload committed as `state` whose object was last seen as `seen`.

    `changed_by_us`: the object still carries something that admission put in.
    `checks_pending`: admission checks have not all said yet that it may run.
    `settled`: of a gated object, that `seen.active` takes in all pods that came of its last start.
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
    # Of a custom kind nobody knows whether its controller makes pods while it is being deleted.
    may_go_on = not seen.suspended and not seen.kind.tells_of_pods
    if state in (State.PENDING, State.EVICTING) and (seen.active or may_go_on) and not seen.ending:
        return Step.STOP
    if state is State.EVICTING and settled and not seen.active:
        return Step.RELEASE
    return Step.WAIT
