"""Kubernetes Events about workloads: which are written, and when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from admission.controller.state.workload_events import AGAIN_AFTER, LONG, MAX_REPEATED, WAIT_EVENT_DELAY, WorkloadEvents
from admission.model.workload import Workload
from admission.store.records import Changes, LastEviction, State, Transition, WorkloadRecord


class EventRecorder:
    """Records the Events (name, reason, whether it is a Warning) by a clock that the test advances."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.events = WorkloadEvents(self.emit, clock=lambda: self.now)
        self.told: list[tuple[str, str, bool]] = []
        self.occasions: list[str] = []

    def emit(self, record: WorkloadRecord, reason: str, note: str, warning: bool, occasion: str) -> None:
        assert note
        self.told.append((record.workload.name, reason, warning))
        self.occasions.append(occasion)

    def commit(self, *records: WorkloadRecord) -> None:
        story = tuple(Transition(each.workload.uid, self.now, each.state, each.reason) for each in records)
        self.events.committed(Changes(workloads=records, transitions=story))
        self.events.emit_due()

    def take(self, seconds: float = 0.0) -> list[tuple[str, str, bool]]:
        self.now += seconds
        self.events.emit_due()
        told, self.told = self.told, []
        return told


@pytest.fixture
def told() -> EventRecorder:
    return EventRecorder()


def waits(name: str = "w", reason: str = "WaitingForQuota") -> WorkloadRecord:
    workload = Workload(name, "ns", name, "lq", 0, 1000.0, ())
    return WorkloadRecord(workload, State.PENDING, queued_at=1000.0, reason=reason, message=f"{reason} it is.")


def test_jobs_admitted_within_the_delay_get_no_pending_event(told):
    """The Event `Admitted` is written elsewhere, when the start has succeeded."""
    jobs = [waits(f"w{number}", "PendingEvaluation") for number in range(1000)]
    told.commit(*jobs)
    told.now += WAIT_EVENT_DELAY - 1
    told.commit(*(replace(job, reason="WaitingForQuota", message="It waits.") for job in jobs))
    told.commit(*(replace(job, state=State.ADMITTED, reason="Admitted", message="It runs.") for job in jobs))
    assert told.take(10 * LONG) == []


def test_waiting_workload_gets_a_pending_event_and_later_repeated_warnings(told):
    told.commit(waits())
    assert told.take(WAIT_EVENT_DELAY - 1) == []
    assert told.take(1) == [("w", "Pending", False)]
    assert told.take(LONG - WAIT_EVENT_DELAY - 1) == []
    assert told.take(1) == [("w", "PendingForLong", True)]
    assert told.take(LONG - 1) == []
    assert told.take(1) == [("w", "PendingForLong", True)]


def test_new_lasting_reason_gets_an_event_at_once_and_a_repeated_reason_later(told):
    """A process that is killed within the minute has then written the Event."""
    told.commit(waits(reason="NoMatchingFlavor"))
    assert told.take() == [("w", "Pending", False)]
    for reason in ("OnHold", "Deactivated"):
        told.commit(waits(reason=reason))
        assert told.take() == [("w", "Pending", False)]
    told.commit(waits(reason="OnHold"))
    assert told.take() == []
    assert told.take(AGAIN_AFTER) == [("w", "Pending", False)]
    told.commit(waits(reason="WaitingForPreemptedWorkloads"))
    assert told.take(AGAIN_AFTER - 1) == []
    assert told.take(1) == [("w", "Pending", False)]
    assert len({*told.occasions, ""}) == 6, "none must be taken for another, or for the first of its reason"


def evicted(told: EventRecorder, cause: str) -> WorkloadRecord:
    eviction = LastEviction(cause, f"{cause} it is.", told.now)
    return replace(waits(), state=State.EVICTING, reason=cause, evict_reason=cause, eviction=eviction)


@pytest.mark.parametrize("state", [State.EVICTING, State.PENDING])
def test_recent_eviction_event_is_repeated_by_next_leader_with_same_occasion(told, state):
    record = evicted(told, "Preempted")
    told.commit(record)
    assert told.take() == [("w", "Preempted", True)]
    successor = EventRecorder()
    successor.now = told.now + 5
    successor.events.begin([replace(record, state=state)], {"w": told.now})
    assert successor.take()[0] == ("w", "Preempted", True)
    assert successor.occasions[0] == told.occasions[0] != ""
    late = EventRecorder()
    late.now = told.now + 1000
    late.events.begin([replace(record, state=state)], {})
    assert ("w", "Preempted", True) not in late.take()


@pytest.mark.parametrize(
    ("cause", "event"),
    [
        ("Preempted", "Preempted"),
        ("PodsReadyTimeout", "EvictedDueToPodsReadyTimeout"),
        ("DeactivatedDueToAdmissionCheck", "DeactivatedDueToAdmissionCheck"),
    ],
)
def test_eviction_event_is_a_warning(told, cause, event):
    told.commit(evicted(told, cause))
    assert told.take() == [("w", event, True)]


def test_unwritten_changes_get_no_event(told):
    told.events.committed(Changes(workloads=(waits(reason="OnHold"),)), unwritten={"w"})
    assert told.take(LONG) == []


def test_long_waiting_workload_gets_no_warning_for_each_new_reason(told):
    told.commit(waits())
    assert told.take(LONG) == [("w", "PendingForLong", True)]
    told.commit(waits(reason="WaitingForPreemptedWorkloads"))
    told.commit(waits())
    assert told.take(AGAIN_AFTER) == [], "it was told so already"
    told.commit(waits(reason="ExceedsMaxQuota"))
    assert told.take(AGAIN_AFTER) == [("w", "Pending", False)]
    assert told.take(LONG) == [("w", "PendingForLong", True)]


def test_next_leader_does_not_repeat_old_events(told):
    """The previous leader has written Events of pending workloads; later Events are as if it still led."""
    told.now += 1.5 * LONG
    told.events.begin([waits(), replace(waits("runs"), state=State.ADMITTED)], {})
    assert told.take() == []
    told.commit(waits(reason="ExceedsMaxQuota"))
    assert told.take() == [("w", "Pending", False)]
    assert told.take(LONG / 2) == [("w", "PendingForLong", True)]


def test_event_due_at_leader_change_has_the_same_occasion_in_both_leaders(told):
    told.commit(waits())
    assert told.take(WAIT_EVENT_DELAY) == [("w", "Pending", False)]
    successor = EventRecorder()
    successor.now = told.now + 5
    successor.events.begin([waits()], {"w": 1000.0})
    assert successor.take() == [("w", "Pending", False)]
    assert successor.occasions == told.occasions != [""]
    assert successor.take(LONG - 1000) == []


@pytest.mark.parametrize("down", [5.0, 3 * LONG])
def test_next_leader_reports_recently_changed_reason_after_any_downtime(told, down):
    told.commit(waits())
    told.take(LONG + 600)
    changed = waits(reason="ExceedsMaxQuota")
    told.commit(changed)
    assert told.take() == [("w", "Pending", False)]
    successor = EventRecorder()
    successor.now = told.now + down
    successor.events.begin([waits("other"), changed], {"w": told.now, "other": 1000.0})
    first = successor.take()
    if down < LONG:
        assert first == [("w", "Pending", False)]
        assert successor.occasions == told.occasions[-1:] != [""]
    else:
        assert first == [("w", "PendingForLong", True)], "it says the reason, too"
    assert successor.take(60) == []


def test_startup_repeats_events_of_the_most_recently_written_workloads_only(told):
    told.now += 2 * LONG
    names = [f"w{number}" for number in range(MAX_REPEATED + 1)]
    written = {name: told.now - number / 100 for number, name in enumerate(reversed(names))}
    told.events.begin([waits(name) for name in names], written)
    assert {name for name, _, _ in told.take()} == set(names[1:])
