"""Reasons for waiting in a workload's history: an entry for each new reason; their times add up to the wait."""

from __future__ import annotations

import pytest
from job_examples import job, runs

from admission.api.resources.history import waiting_times
from admission.controller.state.context import Context
from admission.controller.state.leader_state import Batch
from admission.controller.state.tracked import Tracked
from admission.controller.state.workload_change import MAX_REASON_CHANGES, WorkloadChange
from admission.controller.workloads.environment import Environment
from admission.controller.workloads.transition import transition
from admission.engine.events import Park
from admission.kinds import all_kinds
from admission.model.workload import Workload
from admission.store.records import State, Transition, WorkloadRecord


@pytest.mark.costly
async def test_waiting_times_by_reason_add_up_to_the_total_wait(world):
    await world.begin()
    await world.submit(job("full", cpu="4"))
    await world.job("full", runs)
    await world.submit(job("later", cpu="4"))
    await world.record("later", "pending", reason="WaitingForQuota")
    await world.order("later", held=True)
    await world.record("later", "pending", reason="OnHold")
    await world.order("later", held=False)
    await world.record("later", "pending", reason="WaitingForQuota")
    await world.user.delete("jobs", "team-a", "full", propagation="Background")
    record = await world.record("later", "admitted")
    story = await world.store.workloads.history(record.workload.uid)
    assert [line.at for line in story] == sorted(line.at for line in story)
    times = waiting_times(story, until=record.admitted_at + 1000)
    assert {"Queued", "WaitingForQuota", "OnHold"} <= times.keys()
    admitted = next(one.at for one in story if one.state is State.ADMITTED)
    assert story[0].at == pytest.approx(record.queued_at, abs=1e-6)
    assert sum(times.values()) == pytest.approx(admitted - story[0].at, abs=1e-6)


def line(at: float, reason: str, state: State = State.PENDING) -> Transition:
    return Transition("u", at, state, reason)


def test_waiting_times_include_each_wait_and_skip_admin_orders():
    story = [
        line(0, "Queued"), line(1, "WaitingForQuota"), line(4, "Ordered"), line(6, "Admitted", State.ADMITTED),
        line(20, "Preempted", State.EVICTING), line(25, "Requeued"), line(26, "WaitingForQuota"),
    ]  # fmt: skip
    assert waiting_times(story, until=30) == {"Queued": 1, "WaitingForQuota": 5 + 4, "Requeued": 1}
    assert waiting_times([], until=30) == {}


def record(name: str) -> WorkloadRecord:
    return WorkloadRecord(Workload(name, "ns", name, "lq", 0, 0.0, ()), State.PENDING, queued_at=0.0)


def change(name: str, at: float) -> WorkloadChange:
    return WorkloadChange(Tracked(record=record(name)), now=at)


def test_batch_with_reasons_alone_is_not_urgent_and_keeps_their_order():
    batch = Batch()
    waits = change("u", 2)
    waits.set_waiting_reason("WaitingForQuota", "")
    batch.add(waits)
    assert not batch.urgent
    assert not batch.empty
    admitted = change("u", 3)
    admitted.write(reason="Admitted")
    batch.add(admitted)
    other = change("b", 1)
    other.set_waiting_reason("WaitingForQuota", "")
    batch.add(other)
    batch.forget("b")
    assert [one.reason for one in batch.take().transitions] == ["WaitingForQuota", "Admitted"]


def test_history_of_alternating_reasons_is_limited():
    batch, tracked = Batch(), Tracked(record=record("u"))
    environment = Environment(all_kinds(), Context(), None)
    for number in range(3 * MAX_REASON_CHANGES):
        reason = Park(tracked.record.workload, f"Reason{number % 2}", f"message {number}")
        waits = transition(tracked, reason, environment, now=1.0)
        assert waits.tracked is not tracked, "what was known before stays as it was"
        batch.add(waits)
        tracked = waits.tracked
    changes = batch.take()
    assert len(changes.transitions) == MAX_REASON_CHANGES
    (written,) = changes.workloads
    assert written.message == f"message {3 * MAX_REASON_CHANGES - 1}", "the record has the last one all the same"
