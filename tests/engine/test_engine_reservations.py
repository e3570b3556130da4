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
    world.submit(workload("late", "b", 5, max_seconds=HOUR), workload("beside", "b", 7, max_seconds=None))
    assert sorted(world.admitted()) == ["beside", "late"]
    world.now += 1.5 * HOUR
    world.submit(workload("new", "b", 1))
    assert world.admitted() == []
    again = new_world(reservation("bench", 12), now=-0.5)  # a leader that starts then knows no more
    for each in ("late", "beside"):
        found = workload(each, "b", 5 if each == "late" else 7, max_seconds=HOUR if each == "late" else None)
        held = Admission(
            "b", (PodSetAssignment("main", {"cpu": "default"}, {"cpu": found.pod_sets[0].requests["cpu"]}, 1),)
        )
        again.engine.observe(WorkloadAdmitted(found, held, at=START - 2 * HOUR), now=again.now)
    again.submit(workload("new", "b", 1))
    assert again.admitted() == []
    world.gone("late")
    world.gone("beside")
    assert world.admitted() == ["new"]


def test_what_is_admitted_counts_at_the_starts_that_it_may_reach_only():
    world = new_world(reservation("bench", 10), now=-2)
    world.submit(workload("beside", "b", 4))
    assert world.admitted() == ["beside"]
    world.submit(workload("short", "b", 10, max_seconds=HOUR))
    assert world.admitted() == ["short"]
    world.submit(workload("endless", "b", 5), workload("more", "b", 1, created=1))  # with 4 and 10 reserved, 6 fit then
    assert world.admitted() == ["endless", "more"]


def test_after_a_clock_is_set_back_what_has_not_begun_is_looked_at_again():
    world = new_world(reservation("bench", 20), now=2)
    world.submit(workload("first", "a", 1))
    assert world.admitted() == []
    world.now = START - HOUR
    world.submit(
        workload("second", "a", 1, created=1, max_seconds=2 * HOUR), workload("short", "a", 1, max_seconds=HOUR)
    )
    assert world.admitted() == ["short"]


def test_quota_at_the_start_is_that_of_the_calendar_then():
    given = [{"flavor": "default", "resource": "cpu", "nominalQuota": 20}]
    entry = {"name": "more", "start": local(START - HOUR), "end": local(START + 99 * HOUR), "quotas": given}
    queue = cluster_queue("a", 10, calendar={"entries": [entry]})
    world = new_world(reservation("bench", 15), queues=(queue,), now=-2)
    world.submit(workload("endless", "a", 5), workload("too much", "a", 1, created=1))
    assert world.admitted() == ["endless"]


def test_larger_version_takes_over_what_the_smaller_one_had_beside_a_reservation():
    world = new_world(reservation("bench", 17), now=-1)
    world.submit(workload("small", "a", 2))
    assert world.admitted() == ["small"]
    world.submit(workload("large", "a", 3, replaces="small"))
    assert world.admitted() == ["large"]
    world.submit(workload("larger", "a", 4, replaces="large"))
    assert world.admitted() == []


def test_where_less_is_free_than_is_reserved_others_start_unless_it_gets_worse():
    own = cluster_queue("a", 10, cohort="all", limits={"borrowingLimit": 0})
    world = new_world(queues=(own, cluster_queue("b", 10, cohort="all")))
    world.submit(workload("old", "a", 8))
    assert world.admitted() == ["old"]
    world.tell(reservation("bench", 10))
    world.submit(workload("of a", "a", 1), workload("of b", "b", 10))
    assert world.admitted() == ["of b"]


def test_what_fewest_reservations_are_for_is_used_first():
    both, one = {"users": ["ada", "bob"]}, {"users": ["bob"]}
    world = new_world(reservation("a-both", 5, holders=both), reservation("b-one", 5, holders=one))
    world.submit(workload("bob's", "a", 5, user="bob"), workload("eve's", "a", 10, user="eve", created=1))
    assert world.admitted() == ["bob's", "eve's"]
    world.submit(workload("ada's", "a", 5, user="ada"))  # bob has used his own, and nothing of what is for both
    assert world.admitted() == ["ada's"]


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


def test_eviction_that_another_one_makes_needless_is_left_out():
    world = new_world(reservation("bench", 14, atStart="Preempt"), now=-1)
    for name, cpu, priority in (("small", 1, 0), ("b's", 3, 1), ("large", 9, 2), ("important", 4, 3)):
        queue = "b" if name == "b's" else "a"
        held = Admission(queue, (PodSetAssignment("main", {"cpu": "default"}, {"cpu": cpu * 1000}, 1),))
        world.engine.observe(WorkloadAdmitted(workload(name, queue, cpu, priority=priority), held, at=0), now=world.now)
    world.now = START
    # 3 are free, 11 more are needed: of the first three, 13, the smallest one may stay.
    evicted = world.engine.settle(world.now).evicted
    assert sorted(each.workload.name for each in evicted) == ["b's", "large"]


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
    world.submit(workload("ada's", "a", 1, user="ada"))  # for a moment between two looks
    assert world.admitted() == ["ada's"]
    world.gone("ada's")
    assert unused_at(22) == []
    world.submit(workload("others'", "b", 16))
    assert world.admitted() == ["others'"]
    world.tell(cluster_queue("b", 8, cohort="all"))  # less is free than is kept: no wonder that nobody uses it
    assert unused_at(40) == []
    world.tell(cluster_queue("b", 10, cohort="all"))
    world.gone("others'")
    assert unused_at(41) == []
    assert unused_at(51) == ["bench"]
    released = reservation("bench", 4, releaseUnusedAfterSeconds=600, releasedAt="2026-12-01T08:51:00Z")
    world.submit(workload("other", "a", 20))
    assert world.admitted() == []
    world.tell(released)
    assert world.admitted() == ["other"]


def test_what_may_not_be_free_at_the_start_is_said_before_with_those_who_are_in_the_way():
    world = new_world(now=-2)
    world.submit(workload("endless", "a", 8), workload("long", "b", 3, max_seconds=3 * HOUR))
    world.submit(
        workload("short", "b", 4, max_seconds=HOUR), workload("ada's", "a", 2, user="ada", max_seconds=3 * HOUR)
    )
    assert len(world.admitted()) == 4
    world.tell(reservation("bench", 14), reservation("later", 12, begins=10, holders={"users": ["bob"]}))

    def said() -> list[tuple[str, int, int, float, list[str]]]:
        world.engine.refresh(world.now)
        return [
            (each.name, each.kept // 1000, each.lacks // 1000, (each.at - START) / HOUR,
             [f"{one.name} {has_limit}" for one, has_limit in each.in_the_way])
            for each in policy(world).shortages()
        ]  # fmt: skip

    # Of 20 at the start, 11 are in use by others; ada has 2 of her 14. Ten hours later one may still run, which fits.
    assert said() == [("bench", 14, 5, 0, ["endless False", "long True"])]
    world.tell(cluster_queue("b", 1, cohort="all"))  # of 11 in all, nothing but ada's 2 is certain for her
    assert said() == [
        ("bench", 14, 12, 0, ["endless False", "long True"]),
        ("later", 12, 9, 10, ["endless False"]),
    ]
    world.tell(cluster_queue("b", 10, cohort="all"))
    world.gone("long")
    world.gone("endless")
    assert said() == []


def test_more_than_there_can_be_is_given_back_too():
    world = new_world(reservation("huge", 1000, releaseUnusedAfterSeconds=600), now=1)
    for minutes, told in ((0, []), (10, ["huge"])):
        world.now += 60 * minutes
        world.engine.settle(world.now)
        assert policy(world).unused() == told


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


@settings(max_examples=50, deadline=None)
@given(
    reserved=st.lists(
        st.tuples(st.integers(1, 6), st.integers(0, 5), st.integers(0, 4), st.integers(1, 6)), min_size=1, max_size=3
    ),
    jobs=st.lists(st.tuples(JOBS, st.integers(0, 8)), max_size=12),
    restart=st.integers(0, 12),
)
def test_reservation_is_free_at_its_start_or_what_stands_in_the_way_was_said_before(reserved, jobs, restart):
    """Whatever runs when it is written: what lacks at the start was said, with all who hold it then."""
    world = new_world()
    written = {}
    runs: dict[str, float] = {}
    said: dict[str, tuple[int, set[str]]] = {}
    for hour in range(14):
        world.now = START + HOUR * hour
        for name in [name for name, at in runs.items() if at <= hour]:
            world.gone(name)
            del runs[name]
        starting = [n for n, (_, at, ahead, _) in enumerate(reserved) if at + ahead == hour and n in written]
        for n in starting:
            cpu, name = reserved[n][0], f"r{n}"
            mine = [jobs[int(each)][0] for each in runs]
            rest = cpu - sum(amount for queue, amount, _, user in mine if (queue, user) == ("a", name))
            lacks, others = said.get(name, (0, set()))
            probe = workload("probe", "a", max(rest - lacks, 0), user=name, priority=10, max_seconds=HOUR)
            if rest - lacks > 0:
                world.submit(probe)
                assert "probe" in world.admitted()
                world.gone("probe")
            if lacks:
                assert {each for each in runs if jobs[int(each)][0][3] == "x"} <= others
        for n, (cpu, at, ahead, hours) in enumerate(reserved):
            if at == hour:
                written[n] = reservation(f"r{n}", cpu, begins=at + ahead, hours=hours, holders={"users": [f"r{n}"]})
                world.tell(written[n])
        if hour == restart:
            held = [*world.engine._registry.held.values()]
            world = new_world(*written.values())
            world.now = START + HOUR * hour
            for each in held:
                event = WorkloadAdmitted(each.workload, each.admission, at=each.admitted_at)
                world.engine.observe(event, now=world.now)
        for number, ((queue, cpu, limit, user), at) in enumerate(jobs):
            if at == hour:
                world.submit(workload(f"{number}", queue, cpu, user=user, max_seconds=limit and limit * HOUR))
        for name in world.admitted():
            runs[name] = hour + (jobs[int(name)][0][2] or 4)
        said = {each.name: (each.lacks // 1000, {one.name for one, _ in each.in_the_way})
                for each in policy(world).shortages()}  # fmt: skip
