"""Replays of the past: they agree with what happened, and show what other quota would have changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
import queue_objects
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.engine import Budgets, PastAdmission, Policy
from admission.model.errors import InvalidObject
from admission.model.manifests import parse_manifest
from admission.model.queues import QueueObject
from admission.model.workload import Admission, PodSet, PodSetAssignment, Workload
from admission.simulate.what_if import CourseSummary, Goal, Replay, Timeline, quota_needed, what_if
from admission.store.records import QueueObjectVersion, State, WorkloadRecord
from admission.store.workloads.past import Past, PastWorkload, Spell

HOUR = 3600.0
START, END = 1_760_000_000.0, 1_760_000_000.0 + 24 * HOUR
NAMESPACES: dict[str, dict[str, str]] = {"ns-a": {}, "ns-b": {}}


def cluster_queue(name: str, gpus: int, **spec: Any) -> QueueObject:
    quotas = {"a100": {"nvidia.com/gpu": str(gpus)}}
    return parse_manifest(queue_objects.cluster_queue(name, quotas=quotas, **{"cohortName": "all", **spec}))


def local_queue(namespace: str, leads_to: str) -> QueueObject:
    return parse_manifest(queue_objects.local_queue("lq", namespace, leads_to))


FLAVOR = parse_manifest(queue_objects.flavor("a100"))
QUEUES = (
    FLAVOR,
    cluster_queue("a", 4, preemption={"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}),
    cluster_queue("b", 4),
    local_queue("ns-a", "a"),
    local_queue("ns-b", "b"),
)


def versions(objects: Sequence[QueueObject], at: float = START - HOUR) -> tuple[QueueObjectVersion, ...]:
    return tuple(QueueObjectVersion(obj, "create", "ada", "", at, number) for number, obj in enumerate(objects))


def job(name: str, at: float, *, gpus: int = 4, namespace: str = "ns-a", **fields: Any) -> Workload:
    pod_sets = (PodSet("main", 1, {"nvidia.com/gpu": gpus}),)
    return Workload(name, namespace, name, "lq", fields.pop("priority", 0), START + at, pod_sets, **fields)


def ran(workload: Workload, seconds: float) -> PastWorkload:
    """Return a workload that ran for so long; when it did is not important."""
    began = END + 1
    record = WorkloadRecord(
        workload, State.FINISHED, workload.created, outcome="Succeeded", finished_at=began + seconds
    )
    return PastWorkload(record, (Spell(None, began, began, began + seconds, "Succeeded"),))  # type: ignore[arg-type]


def recorded(
    workloads: Sequence[PastWorkload], objects: Sequence[QueueObject] = QUEUES, policy: Policy | None = None
) -> Past:
    """Return the period as it is recorded if the workloads arrive and run in it as given."""
    given_past = Past(START, END, workloads, versions(objects), (), 0)
    replay = Replay(
        given_past, policy or Policy(), Timeline(given_past.versions, (), START, given_past.end), NAMESPACES
    )
    replay.run()
    happened = []
    for course in replay.courses.values():
        record, spells = course.past.record, tuple(course.spells)
        ended = spells[-1].ends if spells else None
        if ended is None and record.outcome == "Succeeded":
            record = replace(record, state=State.PENDING, outcome="", finished_at=None)
        elif record.outcome == "Succeeded":
            record = replace(record, finished_at=ended)
        happened.append(PastWorkload(record, spells))
    return replace(given_past, workloads=happened)


def test_replay_agrees_with_what_happened_and_more_quota_shortens_waits():
    past = recorded([ran(job(f"j{n}", 60.0 * n + 1), 2 * HOUR) for n in range(6)])
    found = what_if(past, Policy(), [cluster_queue("a", 8)], NAMESPACES)
    assert found.replayed == found.happened
    assert (found.agreement.started, found.agreement.agree) == (6, 6)
    # Two run at a time, with the quota that b lends; then three, of 4 GPUs each.
    assert found.happened.all.longest == pytest.approx(4 * HOUR - 4 * 60, abs=10)
    assert found.changed is not None
    assert found.changed.all.longest == pytest.approx(2 * HOUR - 3 * 60, abs=10)
    (use,) = found.happened.resources
    assert use.used == 6 * 4 * 2 * HOUR
    assert use.quota == 8 * 24 * HOUR
    assert use.borrowed == pytest.approx(3 * 4 * 2 * HOUR, rel=0.05)


def test_proposed_calendar_gives_quota_at_its_times():
    past = recorded([ran(job(f"j{n}", 60.0 * n + 1), 2 * HOUR) for n in range(4)])
    start = datetime.fromtimestamp(START + 3 * HOUR, UTC).isoformat()[:19]
    quotas = [{"flavor": "a100", "resource": "nvidia.com/gpu", "nominalQuota": "12"}]
    entry = {"name": "more", "start": start, "end": "2026-01-01T00:00", "quotas": quotas}
    found = what_if(past, Policy(), [cluster_queue("a", 0, calendar={"entries": [entry]})], NAMESPACES)
    assert found.changed is not None
    # One runs at a time, with the quota that b lends; after three hours the two others.
    assert found.changed.all.longest == pytest.approx(3 * HOUR - 2 * 60, abs=10)


def budget(name: str, resource: dict[str, Any], **spec: Any) -> QueueObject:
    scope = {"namespaces": ["ns-a"]}
    return parse_manifest(queue_objects.budget(name, 0, **{"resources": [resource], "scope": scope, **spec}))


def price_book(per_hour: float) -> QueueObject:
    return parse_manifest(queue_objects.price_book("prices", {"resource": "nvidia.com/gpu", "perHour": per_hour}))


def spent(summary: CourseSummary | None) -> dict[str, str]:
    assert summary is not None
    sums = {use.budget: use.sums[0] for use in summary.budgets}
    return {name: f"{one.resource.text(one.spent)} of {one.resource.text(one.limit)}" for name, one in sums.items()}


def test_budgets_say_what_was_spent_and_what_other_quota_limits_and_prices_would_have_changed():
    hours, money = {"name": "nvidia.com/gpu", "hours": 100}, {"name": "EUR", "priceBook": "prices", "amount": 500}
    objects = [*QUEUES, price_book(2), budget("hours", hours), budget("money", money, parent="all")]
    objects.append(budget("all", hours, scope={}, enforcement="Charge", action="Warn"))
    jobs = [ran(job(f"j{n}", 60.0 * n + 1), 2 * HOUR) for n in range(6)]
    jobs += [ran(job("b", 1.0, gpus=1, namespace="ns-b"), 48 * HOUR)]  # it runs on after the period
    policy = Policy(policies=(Budgets(),))
    past = recorded(jobs, objects, policy)
    found = what_if(past, policy, (), NAMESPACES)
    assert spent(found.happened) == spent(found.replayed)
    # The Job of b begins a second after the period.
    assert spent(found.happened) == {"hours": "48 of 100", "money": "96 of 500", "all": "71.99 of 100"}

    # Eight hours are one Job, at half the price; the other five wait.
    found = what_if(past, policy, [budget("hours", {**hours, "hours": 8}), price_book(1)], NAMESPACES)
    assert spent(found.happened)["hours"] == "48 of 100"
    assert spent(found.changed) == {"hours": "8 of 8", "money": "8 of 500", "all": "31.99 of 100"}
    assert found.changed is not None
    assert found.changed.all.waiting == 5


def test_replay_begins_with_what_budgets_had_spent_before_it():
    earlier = PastAdmission("x", "", "ns-a", "lq", "a", "a100", "nvidia.com/gpu", 4, START - 20 * HOUR, START, False)
    limited = budget("hours", {"name": "nvidia.com/gpu", "hours": 81})
    past = recorded([ran(job(f"j{n}", 60.0 * n + 1), 2 * HOUR) for n in range(6)])
    policy = Policy(policies=(Budgets(),))
    found = what_if(replace(past, earlier=[earlier]), policy, [limited], NAMESPACES)
    assert found.changed is not None
    assert found.changed.all.waiting == 4  # two start before its last hour is spent


@settings(max_examples=30, deadline=None)
@given(data=st.data(), fair_sharing=st.booleans())
def test_replay_of_any_period_agrees_with_it(data, fair_sharing):
    jobs = [
        ran(
            job(
                f"j{number}",
                data.draw(st.integers(0, 20_000)),
                gpus=data.draw(st.integers(1, 6)),
                namespace=data.draw(st.sampled_from(["ns-a", "ns-b"])),
                priority=data.draw(st.sampled_from([0, 5])),
            ),
            data.draw(st.integers(60, 20_000)),
        )
        for number in range(data.draw(st.integers(1, 12)))
    ]
    policy = Policy(fair_sharing=fair_sharing)
    past = recorded(sorted(jobs, key=lambda one: one.record.workload.created), policy=policy)
    found = what_if(past, policy, (), NAMESPACES)
    assert found.agreement.agree == found.agreement.started
    assert found.changed is None
    assert found.replayed.all.preemptions == found.happened.all.preemptions


def test_workload_that_its_user_deleted_leaves_when_it_did_whether_or_not_it_runs():
    waited = job("waited", 60.0, namespace="ns-b")
    left = WorkloadRecord(waited, State.FINISHED, START + 60, outcome="Deleted", finished_at=START + HOUR)
    jobs = [ran(job("first", 0.0, gpus=8), 3 * HOUR), PastWorkload(left, ())]
    past = recorded(jobs)
    found = what_if(past, Policy(), [cluster_queue("b", 8)], NAMESPACES)
    assert found.happened.users[""].waiting == 1
    assert found.changed is not None
    assert found.changed.all.waiting == 0
    (before,), (use,) = found.happened.resources, found.changed.resources
    assert use.used - before.used == pytest.approx(4 * (HOUR - 60), abs=20)  # it ran until it was deleted


def test_run_time_of_a_workload_that_never_started_is_that_of_similar_ones():
    jobs = [
        ran(job(f"j{n}", n * 1.0, gpus=8), 7 * HOUR) for n in range(5)
    ]  # the last one does not start within the day
    past = recorded(jobs)
    assert [len(one.spells) for one in past.workloads] == [1, 1, 1, 1, 0]
    found = what_if(past, Policy(), [cluster_queue("a", 28)], NAMESPACES)
    assert found.changed is not None
    assert found.changed.all.waiting == 0
    (use,) = found.changed.resources
    assert use.used == pytest.approx(5 * 8 * 7 * HOUR, rel=0.01)


def test_queue_objects_change_in_the_replay_when_they_did():
    jobs = [ran(job("one", 0.0, gpus=8), HOUR), ran(job("two", 1.0, gpus=8), HOUR)]
    past = recorded(jobs)
    stopped = cluster_queue("a", 4, stopPolicy="Hold")
    hold = QueueObjectVersion(stopped, "replace", "ada", "", START + 600, 100)
    resumed = QueueObjectVersion(cluster_queue("a", 4), "replace", "ada", "", START + 5 * HOUR, 101)
    held = replace(past, versions=(*past.versions, hold, resumed))
    found = what_if(held, Policy(), (), NAMESPACES)
    assert found.replayed.all.longest == pytest.approx(5 * HOUR, abs=10)


def test_period_begins_with_the_first_queue_object():
    past = recorded([ran(job("one", 10 * HOUR), HOUR)])
    late = replace(past, versions=versions(QUEUES, START + 6 * HOUR))
    found = what_if(late, Policy(), (), NAMESPACES)
    assert found.start == START + 6 * HOUR
    (use,) = found.happened.resources
    assert use.quota == 8 * 18 * HOUR


def test_evicted_pods_take_as_long_to_stop_as_they_did_in_the_period():
    """A low workload that is preempted every time stops within a second or a minute: the other one starts then."""

    def starts(stopping: float | None) -> float:
        preempts = cluster_queue("a", 4, cohortName="", preemption={"withinClusterQueue": "LowerPriority"})
        jobs = [ran(job("low", 1.0), HOUR), ran(job("high", 1001.0, priority=9), HOUR)]
        past = replace(recorded(jobs, [FLAVOR, preempts, *QUEUES[2:]]), stopping_seconds=stopping)
        replay = Replay(past, Policy(), Timeline(past.versions, (), START, END), NAMESPACES)
        replay.run()
        low, high = replay.courses.values()
        assert [spell.reason for spell in low.spells[:1]] == ["Preempted"]
        return high.spells[0].admitted_at - START - 1001.0

    assert [starts(seconds) for seconds in (None, 1.0, 60.0)] == pytest.approx([5.0, 1.0, 60.0], abs=0.01)


def test_workloads_whose_times_cannot_be_are_counted():
    past = recorded([ran(job(f"j{n}", 1000.0 + n, gpus=1), HOUR) for n in range(3)])
    late, early, right = past.workloads
    late = replace(late, record=replace(late.record, queued_at=late.record.workload.created + 90))
    first = early.spells[0]
    early = replace(early, spells=(replace(first, admitted_at=first.admitted_at - 90), *early.spells[1:]))
    found = what_if(replace(past, workloads=(late, early, right)), Policy(), (), NAMESPACES)
    assert found.agreement.misdated == 2


def test_quota_for_a_goal_is_the_lowest_that_meets_it():
    past = recorded([ran(job(f"j{n}", n + 1.0, gpus=1), 2 * HOUR) for n in range(40)])
    goal = Goal("a", "a100", "nvidia.com/gpu", 2 * HOUR + 60)
    needed = quota_needed(past, Policy(), goal, (), NAMESPACES)
    assert needed.current == 4
    assert [quota for quota, _ in needed.tried] == sorted({quota for quota, _ in needed.tried})
    assert dict(needed.tried)[14].p90 <= goal.p90 < dict(needed.tried)[13].p90
    assert needed.needed == 14  # with the 4 of b, 18 run at a time: 36 of 40 start in two turns
    assert quota_needed(past, Policy(), replace(goal, p90=24 * HOUR), (), NAMESPACES).needed == 4


def test_goal_that_quota_cannot_meet_has_no_answer():
    never = replace(ran(job("held", 0.0), HOUR).record, state=State.PENDING, active=False, outcome="", finished_at=None)
    past = Past(START, END, (PastWorkload(never, ()),), versions(QUEUES), (), 0)
    needed = quota_needed(past, Policy(), Goal("a", "a100", "nvidia.com/gpu", 60.0), (), NAMESPACES)
    assert needed.needed is None


@pytest.mark.parametrize("goal", [Goal("x", "a100", "nvidia.com/gpu", 60.0), Goal("a", "x", "nvidia.com/gpu", 60.0)])
def test_goal_for_quota_that_does_not_exist_is_refused(goal):
    past = recorded([ran(job("one", 0.0), HOUR)])
    with pytest.raises(InvalidObject, match="x"):
        quota_needed(past, Policy(), goal, (), NAMESPACES)


def test_replay_of_many_months_agrees_to_a_minute():
    held = PodSetAssignment("main", {"nvidia.com/gpu": "a100"}, {"nvidia.com/gpu": 1}, 1)
    workloads = []
    for number in range(50):
        workload = job(f"j{number}", 101.0 * (number + 1), gpus=1)
        began = workload.created
        spell = Spell(Admission("a", (held,)), began, began, began + 50.0, "Succeeded")
        record = WorkloadRecord(workload, State.FINISHED, began, outcome="Succeeded", finished_at=began + 50.0)
        workloads.append(PastWorkload(record, (spell,)))
    past = Past(START, START + 300 * 24 * HOUR, workloads, versions(QUEUES), (), 0)
    agreement = what_if(past, Policy(), (), NAMESPACES).agreement
    assert (agreement.agree, agreement.started) == (50, 50)
