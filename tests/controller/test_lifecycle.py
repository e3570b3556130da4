"""The table of what to do next, row by row."""

from __future__ import annotations

from dataclasses import replace

import pytest

from admission.controller.state.lifecycle import Step, next_step
from admission.kinds import Observed, Outcome, all_kinds
from admission.store.records import State

GATED = Observed(
    kind=all_kinds().get("batch", "Job"),
    uid="u",
    namespace="n",
    name="j",
    resource_version="1",
    generation=1,
    created=0.0,
    queue="q",
    priority_class="",
    pod_priority_class="",
    user="",
    on_hold=False,
    suspended=True,
    active=False,
    started=False,
    counts=(),
    deleting=False,
    finished=None,
)
RUNNING = replace(GATED, suspended=False, active=True, started=True)
STOPPING = replace(GATED, active=True)
DONE = replace(GATED, suspended=False, finished=Outcome(True, "", ""))


@pytest.mark.parametrize(
    ("state", "seen", "changed", "step"),
    [
        (State.PENDING, GATED, False, Step.WAIT),
        (State.PENDING, RUNNING, False, Step.STOP),
        (State.PENDING, STOPPING, False, Step.WAIT),
        (State.PENDING, GATED, True, Step.RESTORE),
        (State.ADMITTED, GATED, False, Step.START),
        (State.ADMITTED, STOPPING, True, Step.WAIT),
        (State.ADMITTED, RUNNING, True, Step.WAIT),
        (State.EVICTING, RUNNING, True, Step.STOP),
        (State.EVICTING, STOPPING, True, Step.WAIT),
        (State.EVICTING, GATED, True, Step.RESTORE),
        (State.EVICTING, GATED, False, Step.RELEASE),
        (State.FINISHED, GATED, False, Step.WAIT),
        *((state, DONE, False, Step.WAIT) for state in State),
    ],
)
def test_the_step_that_is_due(state, seen, changed, step):
    assert next_step(state, seen, changed_by_us=changed) is step


@pytest.mark.parametrize("state", [State.ADMITTED, State.EVICTING])
def test_nothing_is_resumed_or_given_back_whose_pods_nobody_has_counted_yet(state):
    assert next_step(state, GATED, changed_by_us=True, settled=False) is Step.WAIT


DELETING = replace(GATED, suspended=False, deleting=True)


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
def test_what_is_being_deleted_only_ends(state, seen, settled, step):
    assert next_step(state, seen, changed_by_us=True, settled=settled) is step
