"""Each kind of difference that the audit reports, by stored state and observed object, and the cases it ignores."""

from __future__ import annotations

from dataclasses import replace

import pytest
from observed_examples import SUSPENDED

from admission.controller.auditing.comparison import Owner, Problem, Repair, View, differences
from admission.kinds.base import Observed, Outcome
from admission.model.workload import Admission, PodSet, PodSetAssignment, Workload
from admission.store.records import State, WorkloadRecord

WORKLOAD = Workload("u", "team-a", "one", "lq", 0, 0.0, (PodSet("main", 1, {}),))
HELD = Admission("cq", (PodSetAssignment("main", {"cpu": "default"}, {"cpu": 1000}, 1),))
RUNNING = replace(SUSPENDED, suspended=False, active=True)
ENDED = replace(RUNNING, finished=Outcome(True, "", ""))
STOPPING = replace(SUSPENDED, active=True)
FOREIGN = replace(SUSPENDED, queue="")
POT = {("cq", "default", "cpu"): 1000}


def view(
    state: State | None, seen: Observed | None, *, pods: int = 0, ending: int = 0, checks: bool = False, **fields
) -> View:
    admission = HELD if state in (State.ADMITTED, State.EVICTING) else None
    record = state and WorkloadRecord(WORKLOAD, state, 0.0, admission=admission, checks_pending=checks)
    known = View(
        records={"u": record} if record else {},
        objects={"u": seen} if seen else {},
        owners={"u": Owner("team-a/one", pods - ending, True)} if pods else {},
        tracked={"u": record} if record else {},
        engine=POT if admission else {},
    )
    return replace(known, **fields)


@pytest.mark.parametrize(
    "fine",
    [
        view(None, None),
        view(None, ENDED, pods=1),
        view(None, FOREIGN, pods=1),
        view(State.PENDING, SUSPENDED),
        view(State.PENDING, STOPPING),
        view(State.PENDING, replace(RUNNING, active=False, deleting=True)),
        view(State.ADMITTED, RUNNING, pods=1),
        view(State.ADMITTED, STOPPING, pods=1),
        view(State.EVICTING, replace(RUNNING, deleting=True, ending=True), pods=1),
        view(State.ADMITTED, SUSPENDED, checks=True),
        view(State.ADMITTED, replace(RUNNING, queue="")),
        view(State.EVICTING, STOPPING),
        view(State.EVICTING, SUSPENDED, pods=1),
        view(State.EVICTING, None, pods=1),
        view(State.EVICTING, None, pods=2, ending=2),
        view(State.EVICTING, SUSPENDED, pods=2, ending=2),
        view(State.PENDING, SUSPENDED, pods=2, ending=2),
        view(None, None, pods=2, ending=2),
    ],
)
def test_consistent_state_yields_no_difference(fine):
    assert differences(fine) == []


@pytest.mark.parametrize("fields", [{"reason": "OnHold"}, {"active": False}])
def test_on_hold_or_deactivated_workload_without_queue_label_is_consistent(fields):
    record = WorkloadRecord(WORKLOAD, State.PENDING, 0.0, **fields)
    held = View(records={"u": record}, objects={"u": FOREIGN}, owners={}, tracked={"u": record})
    assert differences(held) == []


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (view(State.PENDING, RUNNING), Problem.RUNS_WITHOUT_ADMISSION),
        (view(None, SUSPENDED), Problem.NOT_ON_RECORD),
        (view(None, RUNNING), Problem.NOT_ON_RECORD),
        (view(State.ADMITTED, SUSPENDED), Problem.NOT_STARTED),
        (view(State.ADMITTED, RUNNING, checks=True), Problem.NOT_STOPPED),
        (view(State.EVICTING, RUNNING), Problem.NOT_STOPPED),
        (view(State.EVICTING, SUSPENDED), Problem.NOT_RELEASED),
        (view(State.PENDING, ENDED), Problem.NOT_FINISHED),
        (view(State.ADMITTED, ENDED), Problem.NOT_FINISHED),
        (view(State.PENDING, FOREIGN), Problem.NOT_FINISHED),
        (view(State.PENDING, None), Problem.RECORD_OF_GONE),
        (view(State.ADMITTED, None), Problem.ADMISSION_OF_GONE),
        (view(State.PENDING, SUSPENDED, pods=2), Problem.PODS_WITHOUT_ADMISSION),
        (view(None, None, pods=2), Problem.PODS_WITHOUT_ADMISSION),
        (view(State.ADMITTED, RUNNING, misplaced={"u"}), Problem.FLAVORS_DIFFER),
        (view(State.ADMITTED, RUNNING, tracked={}, engine={}), Problem.MEMORY_DIFFERS),
        (view(None, None, tracked={"u": WorkloadRecord(WORKLOAD, State.PENDING, 0.0)}), Problem.MEMORY_DIFFERS),
        (
            view(State.ADMITTED, RUNNING, tracked={"u": WorkloadRecord(WORKLOAD, State.EVICTING, 0.0, admission=HELD)}),
            Problem.MEMORY_DIFFERS,
        ),
        (view(State.ADMITTED, RUNNING, engine={}), Problem.USAGE_DIFFERS),
    ],
)
def test_inconsistent_state_yields_one_difference(wrong, problem):
    (difference,) = differences(wrong)
    assert difference.problem is problem
    assert difference.found != difference.expected
    assert (problem.repair is Repair.NONE) == problem.remedy.startswith("nothing;")
