"""Reservations: what is kept and for whom, what may run until the start, what is evicted then, and given back."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.engine import (
    Budgets,
    Decisions,
    Engine,
    KeptQuota,
    Policy,
    QueueObjectDeleted,
    Reservations,
    WorkloadAdmitted,
)
from admission.model.queues import QueueObject
from admission.model.workload import Admission, PodSetAssignment
from tests.engine.scenes import World, cluster_queue, local_queue, manifest, workload

REASON = "ReservedForOthers"
START = datetime(2026, 12, 1, 8, tzinfo=UTC).timestamp()
HOUR = 3600
ADA = {"users": ["ada"]}


def local(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()[:19]


def reservation(
    name: str, cpu: int, *, begins: float = 0, hours: float = 10, queue: str = "a", flavor: str = "default", **spec
) -> QueueObject:
    """Return a Reservation that begins so many hours after START."""
    start, end = (local(START + HOUR * each) for each in (begins, begins + hours))
    quotas = [{"flavor": flavor, "resource": "cpu", "amount": cpu}]
    given = {"holders": ADA, **spec}
    return manifest("Reservation", name, {"clusterQueue": queue, "quotas": quotas, "start": start, "end": end, **given})


def new_world(*objects: QueueObject, now: float = 0, queues: tuple[QueueObject, ...] = ()) -> World:
    """Return a world `now` hours after START, with ClusterQueues a and b of 10 cpu each in a Cohort, unless given."""
    found = World(engine=Engine(Policy(policies=(Reservations(),))))
    found.now = START + HOUR * now
    queues = queues or tuple(cluster_queue(name, 10, cohort="all") for name in "ab")
    found.tell(*queues, *(local_queue(each.name) for each in queues if each.kind == "ClusterQueue"), *objects)
    return found


def names(decisions: Decisions) -> list[str]:
    return sorted(admit.workload.name for admit in decisions.admitted)


def refusals(decisions: Decisions) -> dict[str, str]:
    return {park.workload.name: park.message for park in decisions.parked if park.reason == REASON}


def policy(world: World) -> KeptQuota:
    (found,) = (each for each in world.engine.policies if isinstance(each, KeptQuota))
    return found


def test_what_has_begun_is_kept_for_its_holders():
    world = new_world(reservation("bench", 16), now=1)
    world.submit(workload("other", "a", 5), workload("fits", "b", 4), workload("ada's", "a", 12, user="ada"))
    decisions = world.engine.settle(world.now)
    assert names(decisions) == ["ada's", "fits"]
    text = "Reservation bench keeps 16 cpu of default in ClusterQueue a from 2026-12-01 08:00:00 to 2026-12-01 18:00:00"
    assert refusals(decisions) == {"other": f"{text} (UTC)."}
    assert world.engine.explain("other").reason == REASON
    # Of 20 cpu 4 are kept, and 4 in use by b.
    world.submit(workload("ada's second", "a", 5, user="ada"), workload("more", "a", 4, user="ada"))
    assert world.admitted() == ["more"]


def test_short_workloads_run_until_the_start_and_others_wait_for_the_end():
    world = new_world(reservation("bench", 20), now=-2)
    world.submit(
        workload("short", "a", 3, max_seconds=HOUR),
        workload("long", "a", 3, max_seconds=2 * HOUR + 1),
        workload("unlimited", "b", 3),
    )
    decisions = world.engine.settle(world.now)
    assert names(decisions) == ["short"]
    found = refusals(decisions)
    assert found["long"].endswith(" This may run until then: its time limit is 7201s.")
    assert found["unlimited"].endswith(
        " This has no time limit that would end before: set the label sluice.dev/max-exec-time-seconds."
    )
    assert world.engine.wake_at() == START + 10 * HOUR
    world.now = START + 10 * HOUR
    assert world.admitted() == ["long", "unlimited"]


def test_end_of_a_reservation_wakes_once_if_something_else_refuses_a_workload_then():
    world = World(engine=Engine(Policy(policies=(Reservations(), Budgets()))))
    world.now = START
    resources = [{"name": "cpu", "hours": 1}]
    budget = manifest("Budget", "all", {"resources": resources, "period": {"every": "Day"}, "scope": {}})
    world.tell(cluster_queue("a", 10), local_queue("a"), budget, reservation("bench", 10, hours=2))
    world.submit(workload("ada's", "a", 1, user="ada"), workload("waits", "a", 1))
    assert world.admitted() == ["ada's"]
    assert world.engine.wake_at() == START + 2 * HOUR
    world.now = START + 2 * HOUR
    assert world.admitted() == []
    assert world.engine.explain("waits").reason == "BudgetExhausted"
    assert world.engine.wake_at() == START + 16 * HOUR  # the next day


def test_workload_that_outlives_its_time_limit_counts_at_the_start():
    world = new_world(reservation("bench", 12), now=-2)
    world.submit(workload("late", "b", 5, max_seconds=HOUR), workload("beside", "b", 8, max_seconds=None))
    assert sorted(world.admitted()) == ["beside", "late"]
    world.now += 1.5 * HOUR
    world.submit(workload("new", "b", 1))
    assert world.admitted() == []
    world.gone("late")
    world.gone("beside")
    assert world.admitted() == ["new"]


def test_quota_that_others_cannot_take_is_no_concern_of_a_reservation():
    own = cluster_queue("b", 10, cohort="all", limits={"lendingLimit": 0})
    world = new_world(reservation("bench", 10), queues=(cluster_queue("a", 10, cohort="all"), own))
    world.submit(workload("of b", "b", 10), workload("of a", "a", 1))
    assert world.admitted() == ["of b"]


def test_more_than_there_can_be_is_reserved_as_far_as_it_can():
    world = new_world(reservation("huge", 1000), reservation("after", 5), now=1)
    world.submit(workload("other", "b", 1), workload("ada's", "a", 20, user="ada"))
    assert world.admitted() == ["ada's"]
    world.gone("ada's")
    world.now = START + 10 * HOUR
    assert world.admitted() == ["other"]


@pytest.mark.parametrize(
    ("holders", "fits"),
    [
        ({"users": ["ada"]}, ["ada"]),
        ({"namespaces": ["ns"]}, ["ada", "bob"]),
        ({"namespaces": ["other"]}, []),
        ({"localQueues": ["a"], "users": ["bob"]}, ["bob"]),
        ({}, ["ada", "bob"]),
    ],
)
def test_holders_match_each_list_that_is_given(holders, fits):
    world = new_world(reservation("bench", 20, holders=holders))
    world.submit(*(workload(user, "a", 1, user=user) for user in ("ada", "bob")), workload("b", "b", 1, user="ada"))
    assert world.admitted() == fits


def test_workload_finds_another_flavor_when_quota_becomes_free_there():
    queues = (cluster_queue("a", {"default": 4, "spot": 4}),)
    world = new_world(manifest("ResourceFlavor", "spot", {}), reservation("bench", 4), queues=queues)
    world.submit(workload("first", "a", 2), workload("second", "a", 3), workload("third", "a", 3))
    assert world.admitted() == ["first"]  # in the flavor spot
    # One of the same shape as those that wait is for whom the other flavor is kept.
    world.submit(workload("ada's", "a", 3, user="ada"))
    assert world.admitted() == ["ada's"]
    world.gone("first")
    assert world.admitted() == ["second"]
    assert world.engine.usage() == {"a": {"default": {"cpu": 3000}, "spot": {"cpu": 3000}}}
    world.now = START + 10 * HOUR
    assert world.admitted() == []
    world.gone("ada's")
    assert world.admitted() == ["third"]


def test_start_that_preempts_evicts_as_few_of_the_lowest_priority_as_needed():
    world = new_world(reservation("bench", 9, begins=3, atStart="Preempt"))
    for name, cpu, priority in (("low", 3, 0), ("lower", 3, -1), ("high", 8, 5), ("ada's", 2, -5)):
        user, queue = ("ada" if name == "ada's" else name), ("b" if name == "high" else "a")
        found = workload(name, queue, cpu, priority=priority, user=user)
        held = Admission(queue, (PodSetAssignment("main", {"cpu": "default"}, {"cpu": cpu * 1000}, 1),))
        world.engine.observe(WorkloadAdmitted(found, held, at=world.now - HOUR), now=world.now)
    assert not world.engine.settle(world.now).evicted
    assert world.engine.wake_at() == START + 3 * HOUR
    world.now = START + 3 * HOUR
    evicted = world.engine.settle(world.now).evicted
    # 16 of 20 are used, 2 of them by ada; 9 - 2 are to be free.
    assert [(each.workload.name, each.reason) for each in evicted] == [("lower", "ReservationStarted")]
    assert evicted[0].message.startswith("Reservation bench keeps 9 cpu")
    assert not world.engine.settle(world.now).evicted
    world.gone("lower", requeue=workload("lower", "a", 3, priority=-1))
    decisions = world.engine.settle(world.now)
    assert not decisions.evicted
    assert list(refusals(decisions)) == ["lower"]


def test_preemption_takes_what_its_victims_hold():
    queue = cluster_queue("a", 10, preemption={"withinClusterQueue": "LowerPriority"})
    world = new_world(reservation("bench", 4), queues=(queue,))
    world.submit(workload("low", "a", 6))
    assert world.admitted() == ["low"]
    world.submit(workload("high", "a", 6, priority=1))
    decisions = world.engine.settle(world.now)
    assert [each.workload.name for each in decisions.evicted] == ["low"]
    world.gone("low")
    assert world.admitted() == ["high"]


def test_unused_reservation_is_told_of_after_its_time():
    world = new_world(reservation("bench", 4, releaseUnusedAfterSeconds=600), now=-1)
    assert policy(world).unused() == []
    world.engine.settle(world.now)

    def unused_at(minutes: float) -> list[str]:
        world.now = START + 60 * minutes
        world.engine.settle(world.now)
        return policy(world).unused()

    assert unused_at(0) == []
    assert unused_at(9) == []
    world.submit(workload("ada's", "a", 1, user="ada"))
    assert unused_at(11) == []
    world.gone("ada's")
    assert unused_at(12) == []
    assert unused_at(21) == []
    assert unused_at(22) == ["bench"]
    released = reservation("bench", 4, releaseUnusedAfterSeconds=600, releasedAt="2026-12-01T08:22:00Z")
    world.submit(workload("other", "a", 20))
    assert world.admitted() == []
    world.tell(released)
    assert world.admitted() == ["other"]


def test_reservation_that_is_deleted_keeps_nothing():
    world = new_world(reservation("bench", 20))
    world.submit(workload("other", "a", 20))
    assert world.admitted() == []
    world.engine.observe(QueueObjectDeleted("Reservation", "", "bench"), now=world.now)
    assert world.admitted() == ["other"]
    assert policy(world).idle


JOBS = st.tuples(
    st.sampled_from("ab"), st.integers(1, 8), st.sampled_from([None, 1, 2, 5]), st.sampled_from(["r0", "r1", "x"])
)


@settings(max_examples=50, deadline=None)
@given(
    reserved=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=3),
    jobs=st.lists(st.tuples(JOBS, st.integers(0, 8)), max_size=12),
)
def test_reservations_are_free_from_their_start_on_and_no_workload_starves(reserved, jobs):
    """Whatever was submitted before, and whether it has a time limit: a holder gets what is not used of its own."""
    world = new_world(
        *(
            reservation(f"r{n}", cpu, begins=begins, hours=hours, holders={"users": [f"r{n}"]})
            for n, (cpu, begins, hours) in enumerate(reserved)
        )
    )
    runs: dict[str, float] = {}
    started: set[str] = set()

    def start(hour: int) -> None:
        for name in world.admitted():
            started.add(name)
            runs[name] = hour + (jobs[int(name)][0][2] or 4)

    for hour in range(60):
        world.now = START + HOUR * hour
        for name in [name for name, at in runs.items() if at <= hour]:
            world.gone(name)
            del runs[name]
        for number, ((queue, cpu, limit, user), at) in enumerate(jobs):
            if at == hour:
                world.submit(workload(f"{number}", queue, cpu, user=user, max_seconds=limit and limit * HOUR))
        start(hour)
        for n, (cpu, begins, hours) in enumerate(reserved):
            if not begins <= hour < begins + hours:
                continue
            mine = (jobs[int(name)][0] for name in runs)
            used = sum(amount for queue, amount, _, user in mine if (queue, user) == ("a", f"r{n}"))
            if (rest := cpu - used) > 0:
                probe = workload("probe", "a", rest, user=f"r{n}", priority=10, max_seconds=HOUR)
                world.submit(probe)
                assert "probe" in world.admitted()
                world.gone("probe")
                start(hour)
    assert started == {f"{number}" for number in range(len(jobs))}
