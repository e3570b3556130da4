"""The table of `next_step`, row by row."""

from __future__ import annotations

from dataclasses import replace

import pytest
from observed_examples import SUSPENDED

from admission.controller.state.lifecycle import Step, next_step
from admission.kinds import Outcome
from admission.store.records import State

RUNNING = replace(SUSPENDED, suspended=False, active=True, started=True)
STOPPING = replace(SUSPENDED, active=True)
DONE = replace(SUSPENDED, suspended=False, finished=Outcome(True, "", ""))


@pytest.mark.parametrize(
    ("state", "seen", "changed", "step"),
    [
        (State.PENDING, SUSPENDED, False, Step.WAIT),
        (State.PENDING, RUNNING, False, Step.STOP),
        (State.PENDING, STOPPING, False, Step.WAIT),
        (State.PENDING, SUSPENDED, True, Step.RESTORE),
        (State.ADMITTED, SUSPENDED, False, Step.START),
        (State.ADMITTED, STOPPING, True, Step.WAIT),
        (State.ADMITTED, RUNNING, True, Step.WAIT),
        (State.EVICTING, RUNNING, True, Step.STOP),
        (State.EVICTING, STOPPING, True, Step.WAIT),
        (State.EVICTING, SUSPENDED, True, Step.RESTORE),
        (State.EVICTING, SUSPENDED, False, Step.RELEASE),
        (State.FINISHED, SUSPENDED, False, Step.WAIT),
        *((state, DONE, False, Step.WAIT) for state in State),
    ],
)
def test_next_step_for_each_state_and_observed_job(state, seen, changed, step):
    assert next_step(state, seen, changed_by_us=changed) is step


@pytest.mark.parametrize("state", [State.ADMITTED, State.EVICTING])
def test_next_step_is_wait_until_all_pods_are_counted(state):
    assert next_step(state, SUSPENDED, changed_by_us=True, settled=False) is Step.WAIT


DELETING = replace(SUSPENDED, suspended=False, deleting=True)


@pytest.mark.parametrize(
    ("state", "seen", "settled", "step"),
    [
        (State.PENDING, replace(DELETING, active=True), True, Step.STOP),
        (State.PENDING, DELETING, True, Step.WAIT),
        (State.ADMITTED, replace(DELETING, active=True), True, Step.WAIT),
        (State.ADMITTED, replace(DELETING, suspended=True), True, Step.WAIT),
        (State.EVICTING, replace(DELETING, active=True), True, Step.STOP),
        (State.EVICTING, replace(DELETING, active=True, suspended=True), True, Step.STOP),
        (State.EVICTING, replace(DELETING, active=True, ending=True), True, Step.WAIT),
        (State.EVICTING, DELETING, True, Step.RELEASE),
        (State.EVICTING, DELETING, False, Step.WAIT),
    ],
)
def test_next_step_never_starts_or_restores_a_job_being_deleted(state, seen, settled, step):
    assert next_step(state, seen, changed_by_us=True, settled=settled) is step
