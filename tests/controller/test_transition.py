"""Transitions are values without side effects before they are applied, and each start patch is computed once."""

from __future__ import annotations

import pytest
from job_examples import job

from admission.controller.state.context import Context
from admission.controller.state.tracked import StartPatch, Tracked
from admission.controller.state.triggers import (
    EditedBeforeStart,
    ObjectDeleted,
    ObjectSeen,
    QuotaReserved,
    StartImpossible,
)
from admission.controller.workloads.environment import Environment
from admission.controller.workloads.observed import arrival
from admission.controller.workloads.transition import transition
from admission.engine.events import WorkloadEvicted, WorkloadGone, WorkloadPending
from admission.kinds import all_kinds
from admission.model.queues import ResourceFlavor
from admission.model.workload import Admission, PodSetAssignment
from admission.store.records import Closed, Opened, State
from tests.benchmarks.bench_trace import traces

ADMISSION = Admission("cq", (PodSetAssignment("main", {"cpu": "default"}, {"cpu": 1000}, 1),))


@pytest.fixture
def environment() -> Environment:
    context = Context()
    context.flavors["default"] = ResourceFlavor.model_validate({"metadata": {"name": "default"}})
    return Environment(all_kinds(), context, None)


def seen(environment: Environment) -> ObjectSeen:
    obj = job("a")
    obj["metadata"] |= {
        "uid": "u",
        "resourceVersion": "1",
        "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    kind = next(kind for kind in environment.kinds if kind.kind == "Job" and kind.group == "batch")
    return ObjectSeen(kind.observe(obj), obj)


def admitted(environment: Environment) -> Tracked:
    tracked = arrival(seen(environment), environment, now=1.0).tracked
    start = _start(environment)
    return transition(tracked, QuotaReserved(ADMISSION, start), environment, now=2.0).tracked


def _start(environment: Environment) -> StartPatch:
    event = seen(environment)
    return StartPatch.of(event.seen, event.object, ADMISSION, environment.context.flavors)


def test_arriving_job_is_written_as_queued_and_needs_no_request(environment):
    change = arrival(seen(environment), environment, now=1.0)
    (event,) = change.engine_events
    assert isinstance(event, WorkloadPending)
    assert [(line.at, line.state, line.reason) for line in change.transitions] == [(1.0, State.PENDING, "Queued")]
    assert (change.is_written, change.is_due, change.ledger) == (True, False, [])


def test_quota_reservation_does_not_modify_the_tracked_workload(environment):
    tracked = arrival(seen(environment), environment, now=1.0).tracked
    change = transition(tracked, QuotaReserved(ADMISSION, _start(environment)), environment, now=2.0)
    assert (tracked.record.state, tracked.start_patch) == (State.PENDING, None)
    assert (change.tracked.record.state, change.is_due) == (State.ADMITTED, True)
    assert [type(entry) for entry in change.ledger] == [Opened]
    assert change.tracked.start_patch is not None


def test_deleted_admitted_job_without_pods_releases_quota_immediately(environment):
    tracked = admitted(environment)
    change = transition(tracked, ObjectDeleted(tracked.seen), environment, now=3.0)
    assert [type(entry) for entry in change.ledger] == [Closed]
    assert [type(event) for event in change.engine_events] == [WorkloadGone]
    assert (change.is_finished, change.frees_quota) == (True, True)


def test_impossible_start_evicts_admitted_job_and_puts_pending_job_on_hold(environment):
    holds = transition(admitted(environment), StartImpossible(1, "no"), environment, now=3.0)
    assert holds.tracked.record.state is State.EVICTING
    assert [type(event) for event in holds.engine_events] == [WorkloadEvicted]
    tracked = arrival(seen(environment), environment, now=1.0).tracked
    waits = transition(tracked, StartImpossible(1, "no"), environment, now=3.0)
    assert (waits.tracked.record.state, waits.tracked.on_hold) == (State.PENDING, True)
    assert waits.tracked.record.message == "no"


def test_edit_before_the_start_is_written_before_the_request(environment):
    change = transition(admitted(environment), EditedBeforeStart({"nodeSelector": {"a": "b"}}), environment, now=3.0)
    assert change.tracked.record.original == {"nodeSelector": {"a": "b"}}
    assert (change.is_written, change.is_due) == (True, True)


@pytest.mark.costly
async def test_admitted_job_is_decoded_once_and_its_start_patch_computed_once():
    # A trace may include other work of the controller at the time; the shortest one does not.
    trace = min(await traces(jobs=5), key=lambda trace: len(trace.calls))
    assert trace.decoded == 1
    assert trace.count(lambda name: name == "start_patch") == 1
    assert trace.count(lambda name: name in ("verdict_of", "explain_waiting")) == 0, "it is admitted, not explained"
