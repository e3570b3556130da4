"""Budgets: what they charge, which workloads they refuse, and that none is overdrawn under Reserve."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise, product
from math import inf
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from admission.engine import (
    BudgetAccounts,
    Budgets,
    BudgetsSpent,
    Engine,
    PastAdmission,
    Policy,
    QueueObjectChanged,
    QueueObjectDeleted,
    WorkloadAdmitted,
)
from admission.model.errors import InvalidObject
from admission.model.workload import Admission, PodSetAssignment
from tests.engine.scenes import World, cluster_queue, cohort, local_queue, manifest, workload

if TYPE_CHECKING:
    from admission.engine import Decisions
    from admission.model.budgets import Sum
    from admission.model.queues import QueueObject

REASON = "BudgetExhausted"
HOUR = 3600
MONTH = {"every": "Month"}


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def budget(name: str, hours: float | str, *, period=MONTH, flavors=(), scope=(), grants=(), **spec) -> QueueObject:
    """Return a Budget of cpu hours for all workloads, unless `scope` says of which."""
    resource = {"name": "cpu", "hours": hours, **({"flavors": list(flavors)} if flavors else {})}
    scope = {} if scope is None else {"scope": dict(scope)}
    given = [{"resource": "cpu", "reason": "test", **grant} for grant in grants]
    return manifest("Budget", name, {"resources": [resource], "period": period, "grants": given, **scope, **spec})


def new_engine() -> Engine:
    return Engine(Policy(policies=(Budgets(),)))


def new_world(*objects: QueueObject, now: float) -> World:
    queues = [cluster_queue(name, {"default": 100, "spot": 100}) for name in "ab"]
    world = World(engine=new_engine())
    world.now = now
    world.tell(manifest("ResourceFlavor", "spot", {}), *queues, local_queue("a"), local_queue("b"), *objects)
    return world


def sums(world: World) -> dict[str, Sum]:
    """Return the first resource of each Budget, now."""
    (accounts,) = (policy for policy in world.engine.policies if isinstance(policy, BudgetAccounts))
    world.engine.refresh(world.now)
    return {name: found[0] for name, _, _, found in accounts.sums()}


def hours(world: World, name: str) -> tuple[float, float, float]:
    """Return the hours of cpu that a Budget has spent, reserved and left."""
    one = sums(world)[name]
    spent, reserved, left = (each / 1000 / HOUR / 1e6 for each in (one.spent, one.reserved, one.left))
    return spent, reserved, left


def admitted(world: World) -> list[str]:
    return sorted(admit.workload.name for admit in world.engine.settle(world.now).admitted)


def refusals(decisions: Decisions) -> dict[str, str]:
    return {park.workload.name: park.message for park in decisions.parked if park.reason == REASON}


def test_reserve_admits_what_fits_until_the_time_limit_and_returns_what_is_not_used():
    world = new_world(budget("ml", 100, enforcement="Reserve"), now=at("2026-11-21"))
    world.submit(workload("first", "a", 8, max_seconds=10 * HOUR), workload("second", "a", 3, max_seconds=32 * HOUR))
    assert refusals(world.engine.settle(world.now)) == {
        "second": "Budget ml has 20 of 100 hours of cpu left, this needs 96; its next period begins on 2026-12-01"
    }
    assert world.engine.explain("second").reason == REASON
    assert hours(world, "ml") == (0, 80, 20)
    world.now += HOUR
    assert hours(world, "ml") == (8, 72, 20)
    world.submit(workload("fits", "b", 2, max_seconds=10 * HOUR))
    assert admitted(world) == ["fits"]
    world.gone("first")
    assert hours(world, "ml") == (8, 20, 72)
    world.gone("fits")
    assert (hours(world, "ml"), admitted(world)) == ((8, 0, 92), [])
    world.tell(budget("ml", 104, enforcement="Reserve"))
    assert admitted(world) == ["second"]


def test_charge_admits_while_hours_are_left_and_a_new_period_gives_them_anew():
    zone = "Europe/Berlin"
    world = new_world(budget("ml", 10, period={**MONTH, "timeZone": zone}), now=at("2026-11-30T20:00", zone))
    world.submit(workload("long", "a", 8), workload("more", "a", 50))
    assert admitted(world) == ["long", "more"]
    world.gone("more")
    world.now += 1.25 * HOUR
    world.submit(workload("late", "a"))
    assert refusals(world.engine.settle(world.now)) == {
        "late": "Budget ml has spent its 10 hours of cpu; its next period begins on 2026-12-01"
    }
    assert hours(world, "ml") == (10, 0, 0)
    assert world.engine.wake_at() == at("2026-12-01", zone)
    world.now = at("2026-12-01", zone)
    assert admitted(world) == ["late"]
    world.now += HOUR
    assert hours(world, "ml") == (9, 0, 1)  # "long" runs on, and counts since the period has begun


def test_reserve_counts_what_runs_into_the_next_period_there():
    world = new_world(budget("ml", 10, enforcement="Reserve"), now=at("2026-11-30T22:00"))
    world.submit(workload("first", "a", 1, max_seconds=11 * HOUR), workload("second", "a", 2, max_seconds=3 * HOUR))
    assert refusals(world.engine.settle(world.now)) == {
        "second": "Budget ml has 1 of 10 hours of cpu left in its period from 2026-12-01, this needs 6; "
        "its next period begins on 2026-12-01"
    }
    world.gone("first")
    assert admitted(world) == ["second"]


def test_workload_waits_only_until_what_is_left_lasts_to_the_end_of_the_period():
    world = new_world(budget("ml", 10, enforcement="Reserve"), now=at("2026-11-30T12:00"))
    world.submit(workload("uses", "a", 8, max_seconds=HOUR))
    assert admitted(world) == ["uses"]
    world.submit(workload("long", "a", 1, max_seconds=9 * HOUR))
    assert admitted(world) == []
    assert world.engine.wake_at() == at("2026-11-30T22:00")
    world.now += HOUR
    world.gone("uses")
    world.now = at("2026-11-30T22:00")
    assert admitted(world) == ["long"]


def test_workload_without_time_limit_needs_an_assumed_one_under_reserve():
    world = new_world(budget("ml", 10, enforcement="Reserve"), now=at("2026-11-02"))
    world.submit(workload("endless", "a", 2))
    assert refusals(world.engine.settle(world.now)) == {
        "endless": "Budget ml reserves hours until the time limit of a workload, and this one has none: "
        "set the label sluice.dev/max-exec-time-seconds"
    }
    world.tell(budget("ml", 10, enforcement="Reserve", assumedSeconds=2 * HOUR))
    assert admitted(world) == ["endless"]
    assert hours(world, "ml") == (0, 4, 6)
    world.now += 2.5 * HOUR
    assert hours(world, "ml") == pytest.approx((5, 1 / 6, 5 - 1 / 6))  # five minutes more at a time


def test_budget_charges_its_scope_and_its_parent_once():
    world = new_world(
        budget("department", 100, scope=None),
        budget("team", 50, parent="department", scope={"clusterQueues": ["a"]}),
        budget("ann", 20, parent="team", scope={"users": ["ann"]}),
        now=at("2026-11-02"),
    )
    world.submit(workload("w1", "a", 1, user="ann"), workload("w2", "b", 2, user="ann"), workload("w3", "a", 4))
    world.submit(workload("w4", "b", 8, user="bob"))
    assert len(admitted(world)) == 4
    world.now += HOUR
    assert {name: hours(world, name)[0] for name in sums(world)} == {"department": 7, "team": 7, "ann": 3}


def test_only_what_a_new_budget_charges_is_read_from_the_ledger():
    parts = [budget(name, 50, parent="department", scope={"users": [name]}) for name in ("ann", "bob")]
    world = new_world(budget("all", 100), budget("department", 100, scope=None), *parts, now=at("2026-11-02"))
    world.engine.refresh(world.now)
    for written, lacking in (
        ((), {"all", "department", "ann", "bob"}),
        ([budget("all", 90), budget("ann", 60, parent="department", scope={"users": ["ann"]})], set()),
        ([budget("new", 10, scope={"users": ["ann"]})], {"new"}),
        ([budget("eve", 10, parent="department", scope={"users": ["eve"]})], {"department", "eve"}),
        ([budget("eve", 10, parent="department", scope={"users": ["eva"]})], {"department", "ann", "bob", "eve"}),
    ):
        world.tell(*written)
        world.engine.refresh(world.now)
        assert world.engine.lacking == {("Budget", name) for name in lacking}
        known = {each.name: each for each in [*parts, budget("all", 100), budget("department", 100, scope=None)]}
        known |= {each.name: each for each in written}
        reader = new_world(*(known[name] for name in sorted(lacking)), now=world.now)
        row = PastAdmission("past", "ann", "ns", "a", "a", "default", "cpu", 1000, world.now, world.now + HOUR, False)
        reader.engine.seed([row], now=world.now)
        for event in reader.engine.policy_events():
            world.engine.observe(event, now=world.now)
        assert not world.engine.lacks_history
    assert {name: hours(world, name)[0] for name in sums(world)} == {
        "all": 1, "department": 1, "ann": 1, "bob": 0, "new": 1, "eve": 0
    }  # fmt: skip


SCOPES = [{list_: [item]} for list_, items in (("users", "xy"), ("groups", "gh"), ("cohorts", "c")) for item in items]
SCOPES += [{"clusterQueues": ["a"]}, {"users": ["x"], "clusterQueues": ["b"]}, None]
EDITS = st.one_of(
    # A Budget of this number with this scope, a part of the one with that number, which is a lower one or none.
    st.tuples(st.just("write"), st.integers(0, 5), st.sampled_from(SCOPES), st.integers(-1, 4)),
    st.tuples(st.just("delete"), st.integers(0, 5)),
    st.tuples(st.just("run"), st.sampled_from("xyz"), st.sampled_from(["", "g", "gh"]), st.sampled_from("ab")),
    st.tuples(st.just("end")),
    st.tuples(st.just("move"), st.sampled_from("ab"), st.sampled_from(["", "c"])),
)


def row_of(uid: str, user: str, groups: str, queue: str, cpu: int, begins: float, ends: float | None) -> PastAdmission:
    whose = (*groups,)
    return PastAdmission(uid, user, "ns", queue, queue, "default", "cpu", cpu * 1000, begins, ends, False, whose)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(EDITS, st.booleans()), max_size=14))
@example([(("run", "z", "g", "a"), True), (("write", 2, {"groups": ["g"]}, 0), False), (("end",), False)])
def test_what_parts_add_to_a_budget_is_what_the_ledger_says_of_all_of_them(edits):
    """Each time only what `lacking` says is read; not after each edit, as the database may not answer."""
    now = at("2026-11-02")
    world = new_world(now=now)
    objects = {"b0": budget("b0", 100, scope=None, action="Warn")}
    objects["b1"] = budget("b1", 100, scope={"users": ["x"]}, action="Warn", parent="b0")
    world.tell(*objects.values())
    people = product("xyz", ["", "g", "gh"], "ab")
    ledger = [row_of("past", *each, number + 1, now - HOUR, now) for number, each in enumerate(people)]
    running: dict[str, PastAdmission] = {}
    cohorts = {"a": "", "b": ""}

    def read(names: set[str]) -> World:
        reader = new_world(now=world.now)
        reader.tell(*(cluster_queue(name, {"default": 100}, cohort=cohort) for name, cohort in cohorts.items()))
        reader.tell(*(obj for name, obj in objects.items() if name in names))
        reader.engine.seed([*ledger, *running.values()], now=world.now)
        return reader

    for number, ((edit, *what), is_read) in enumerate([(("end",), True), *edits, (("end",), True)]):
        world.now += 60
        if edit == "write" and what[2] < what[0]:
            parent = {"parent": f"b{what[2]}"} if what[2] >= 0 else {}
            objects[f"b{what[0]}"] = budget(f"b{what[0]}", 100, scope=what[1], action="Warn", **parent)
            world.tell(objects[f"b{what[0]}"])
        elif edit == "delete" and objects.pop(f"b{what[0]}", None) is not None:
            world.engine.observe(QueueObjectDeleted("Budget", "", f"b{what[0]}"), now=world.now)
        elif edit == "run":
            user, groups, queue = what
            world.submit(workload(f"w{number}", queue, 2, user=user, groups=tuple(groups)))
            assert admitted(world) == [f"w{number}"]
            running[f"w{number}"] = row_of(f"w{number}", user, groups, queue, 2, world.now, None)
        elif edit == "end" and running:
            uid, row = running.popitem()
            world.gone(uid)
            ledger.append(row._replace(to_at=world.now))
        elif edit == "move":
            cohorts[what[0]] = what[1]
            world.tell(cluster_queue(what[0], {"default": 100}, cohort=what[1]))
        world.engine.refresh(world.now)
        if is_read and world.engine.lacks_history:
            for event in read({name for kind, name in world.engine.lacking if kind == "Budget"}).engine.policy_events():
                world.engine.observe(event, now=world.now)
            assert not world.engine.lacks_history
    known = read(set(objects))
    for uid, row in running.items():
        held = Admission(row.cluster_queue, (PodSetAssignment("main", {"cpu": "default"}, {"cpu": 2000}, 1),))
        job = workload(uid, row.cluster_queue, 2, user=row.user, groups=row.groups)
        known.engine.observe(WorkloadAdmitted(job, held, at=row.from_at), now=world.now)
    assert sums(world) == sums(known)


def test_budget_of_a_flavor_counts_that_flavor_only():
    world = new_world(budget("fast", 8, flavors=["default"], enforcement="Reserve"), now=at("2026-11-02"))
    sizes = {"one": 8, "two": 1, "big": 95}
    world.submit(
        *(workload(name, "a", cpu, created=n, max_seconds=HOUR) for n, (name, cpu) in enumerate(sizes.items()))
    )
    assert admitted(world) == ["big", "one", "two"]  # two of them in the other flavor
    assert hours(world, "fast") == (0, 8, 0)


def test_workload_whose_flavor_has_too_few_hours_is_tried_in_the_next_flavor():
    world = new_world(budget("fast", 8, flavors=["default"], enforcement="Reserve"), now=at("2026-11-02"))
    world.submit(*(workload(f"w{n}", "a", 8, created=n, max_seconds=HOUR) for n in range(2)))
    found = {each.workload.name: each.admission for each in world.engine.settle(world.now).admitted}
    assert {name: one.pod_sets[0].flavors["cpu"] for name, one in found.items()} == {"w0": "default", "w1": "spot"}
    world.tell(budget("all", 8, enforcement="Reserve"))
    world.submit(workload("w2", "a", 8, created=2, max_seconds=HOUR))
    assert list(refusals(world.engine.settle(world.now))) == ["w2"]
    assert world.engine.wake_at() > world.now


def test_budget_of_a_cohort_charges_the_queues_that_are_in_it_now():
    world = new_world(budget("lab", 10, scope={"cohorts": ["lab"]}), now=at("2026-11-02"))
    world.tell(cohort("sub", parent="lab"), cluster_queue("b", {"default": 100, "spot": 100}, cohort="sub"))
    world.submit(workload("w1", "a", 1), workload("w2", "b", 2))
    assert len(admitted(world)) == 2
    world.now += HOUR
    assert hours(world, "lab")[0] == 2
    world.tell(cluster_queue("a", {"default": 100, "spot": 100}, cohort="lab"))
    world.submit(workload("w3", "a", 1))
    admitted(world)
    world.now += HOUR
    assert hours(world, "lab")[0] == 4 + 2 + 1  # of b, and all that "a" holds now
    world.engine.refresh(world.now)
    assert world.engine.lacks_history  # what "a" has used before is in the ledger


def test_what_a_period_has_left_is_carried_to_the_next_one_only():
    world = new_world(budget("ml", 10, carryOver=True), now=at("2026-10-31T21:00"))
    world.submit(workload("w", "a", 1))
    assert admitted(world) == ["w"]
    assert hours(world, "ml")[2] == 20  # nothing was spent in September
    world.now = at("2026-11-01T01:00")
    assert hours(world, "ml") == (1, 0, 10 + 7 - 1)
    world.gone("w")
    assert hours(world, "ml") == (1, 0, 16)
    world.now = at("2026-12-05")
    assert hours(world, "ml") == (0, 0, 10 + 9)


def test_nothing_is_carried_from_before_the_creation():
    created = budget("ml", 10, carryOver=True)
    metadata = created.metadata.model_copy(update={"creation_timestamp": datetime.fromisoformat("2026-11-02T00:00Z")})
    world = new_world(created.model_copy(update={"metadata": metadata}), now=at("2026-11-02"))
    assert hours(world, "ml") == (0, 0, 10)
    world.now = at("2026-12-02")
    assert hours(world, "ml") == (0, 0, 20)


def test_run_times_of_a_user_in_a_local_queue_are_learned_for_reserve():
    spec = {"enforcement": "Reserve", "learnRunTimes": True, "assumedSeconds": 9 * HOUR}
    world, reader = (new_world(budget("ml", 100, **spec), now=at("2026-11-02")) for _ in range(2))
    rows = [
        PastAdmission(f"u{n}", "ann", "ns", "a", "a", "default", "cpu", 1000, begins, begins + n * HOUR, False)
        for n in range(1, 5)
        for begins in [world.now - 9 * HOUR]
    ]
    reader.engine.seed(rows, now=world.now)
    for event in reader.engine.policy_events():
        world.engine.observe(event, now=world.now)
    world.submit(workload("w0", "a", 1, user="ann"))
    assert admitted(world) == ["w0"]
    assert hours(world, "ml")[1] == 9  # four are too few
    world.now += HOUR
    world.gone("w0")
    spent = hours(world, "ml")[0]
    world.submit(workload("ann", "a", 1, user="ann"), workload("bob", "a", 1, user="bob"))
    assert admitted(world) == ["ann", "bob"]
    assert hours(world, "ml") == (spent, 4 + 9, 100 - spent - 13)
    world.submit(workload("large", "a", 25, user="ann"))
    (message,) = refusals(world.engine.settle(world.now)).values()
    assert ", this needs 100 for an assumed 14400s;" in message


def test_rolling_period_returns_the_hours_of_a_day_when_it_does_not_count_any_more():
    world = new_world(budget("ml", 10, period={"lastDays": 2}), now=at("2026-11-02T12:00"))
    world.submit(workload("first", "a", 10))
    assert admitted(world) == ["first"]
    world.now += HOUR
    world.gone("first")
    world.submit(workload("second", "a", 1))
    assert refusals(world.engine.settle(world.now)) == {
        "second": "Budget ml has spent its 10 hours of cpu; it counts the last 2 days"
    }
    world.now = at("2026-11-03")
    assert admitted(world) == []
    world.now = world.engine.wake_at()
    assert world.now == at("2026-11-04")
    assert admitted(world) == ["second"]


def test_reserve_fits_into_each_of_the_days_that_count_together():
    spec = {"period": {"lastDays": 3}, "enforcement": "Reserve"}
    world = new_world(budget("ml", 80, **spec), now=at("2026-11-02"))
    world.submit(workload("long", "a", 1, max_seconds=20 * 24 * HOUR))  # 24 hours on each day, 72 in three
    assert admitted(world) == ["long"]
    world.submit(workload("day", "a", 1, max_seconds=9 * HOUR))
    # Today there are 24 + 9, but in the days that end with the day after tomorrow 72 + 9.
    (message,) = refusals(world.engine.settle(world.now)).values()
    assert message == "Budget ml has 8 of 80 hours of cpu left, this needs 9; it counts the last 3 days"
    world.now = at("2026-11-04")
    world.submit(workload("hours", "a", 1, max_seconds=8 * HOUR), workload("more", "a", 1, created=1, max_seconds=60))
    assert admitted(world) == ["hours"]


def test_larger_version_needs_the_hours_only_that_it_has_more():
    world = new_world(
        budget("ml", 10, enforcement="Reserve"),
        budget("ann", 1, scope={"users": ["ann"]}, enforcement="Reserve"),
        now=at("2026-11-02"),
    )
    world.submit(workload("small", "a", 3, max_seconds=2 * HOUR))
    assert admitted(world) == ["small"]
    world.submit(workload("larger", "a", 6, max_seconds=2 * HOUR, replaces="small"))
    assert len(refusals(world.engine.settle(world.now))) == 1
    world.gone("larger")
    world.submit(workload("of ann", "a", 4, max_seconds=2 * HOUR, replaces="small", user="ann"))
    message = "Budget ann has 1 of 1 hours of cpu left, this needs 8; its next period begins on 2026-12-01"
    assert refusals(world.engine.settle(world.now)) == {"of ann": message}  # what it replaces was not charged to ann
    world.gone("of ann")
    world.submit(workload("large", "a", 5, max_seconds=2 * HOUR, replaces="small"))
    assert admitted(world) == ["large"]


def test_workload_has_to_match_each_list_of_a_scope():
    lists = {"users": ["ann"], "groups": ["g"], "namespaces": ["ns"], "clusterQueues": ["a"]}
    none = [{**lists, "groups": ["h"]}, {**lists, "namespaces": ["other"]}, {**lists, "clusterQueues": ["b"]},
            {"namespaces": ["ns"], "clusterQueues": ["b"]}, {"groups": ["g"], "namespaces": ["other"]}]  # fmt: skip
    scopes = [lists, {"groups": ["h", "g"], "namespaces": ["ns"]}, *none]
    world = new_world(*(budget(f"b{n}", 10, scope=scope) for n, scope in enumerate(scopes)), now=at("2026-11-02"))
    world.submit(workload("w", "a", 1, user="ann", groups=("g",)))
    assert admitted(world) == ["w"]
    world.now += HOUR
    assert [hours(world, f"b{n}")[0] for n in range(len(scopes))] == [1, 1, 0, 0, 0, 0, 0]


def test_what_was_read_for_an_earlier_version_of_a_budget_is_not_taken_for_the_present_one():
    rows = [PastAdmission("u", "ann", "ns", "a", "a", "default", "cpu", 1000, *times, False)
            for times in [(at("2026-11-02"), at("2026-11-02") + HOUR)]]  # fmt: skip
    reader = new_world(budget("ml", 10, scope={"users": ["ann"]}), now=at("2026-11-03"))
    reader.engine.seed(rows, now=reader.now)
    world = new_world(budget("ml", 10, scope={"users": ["bob"]}), now=at("2026-11-03"))
    for event in reader.engine.policy_events():
        world.engine.observe(event, now=world.now)
    assert world.engine.lacks_history
    assert hours(world, "ml")[0] == 0


def test_single_period_limits_nothing_before_and_after_it():
    period = {"firstDay": "2026-11-02", "lastDay": "2026-11-03"}
    world = new_world(budget("event", 1, period=period), now=at("2026-11-01T23:00"))
    world.submit(workload("before", "a", 2))
    assert admitted(world) == ["before"]
    world.now = at("2026-11-02T01:00")
    world.submit(workload("within", "a", 2))
    assert refusals(world.engine.settle(world.now)) == {
        "within": "Budget event has spent its 1 hours of cpu; it ends after 2026-11-03"
    }
    world.now = world.engine.wake_at()
    assert (world.now, admitted(world)) == (at("2026-11-04"), ["within"])


def test_grant_counts_in_its_period_only():
    grants = [
        {"day": "2026-11-30", "hours": 5},
        {"day": "2026-11-05", "hours": "-1"},
        {"day": "2026-12-01", "hours": 9},
    ]
    world = new_world(budget("ml", 10, grants=grants), now=at("2026-11-02"))
    assert hours(world, "ml") == (0, 0, 14)
    world.now = at("2026-12-31T23:59")
    assert hours(world, "ml") == (0, 0, 19)


def test_budget_that_warns_refuses_nothing_and_is_overdrawn():
    world = new_world(budget("ml", 1, action="Warn"), now=at("2026-11-02"))
    world.submit(workload("w", "a", 2))
    world.engine.settle(world.now)
    world.now += HOUR
    world.submit(workload("more", "a", 2))
    assert (admitted(world), hours(world, "ml")) == (["more"], (2, 0, -1))


def test_without_budgets_the_policy_takes_no_part():
    world = new_world(now=at("2026-11-02"))
    world.submit(workload("w", "a", 2))
    assert admitted(world) == ["w"]
    assert not world.engine._registry.policies.active
    world.tell(budget("ml", 3))
    world.now += HOUR
    assert hours(world, "ml") == (2, 0, 1)  # "w", since the Budget is there; what was before is in the ledger
    assert world.engine.lacks_history
    world.engine.observe(QueueObjectDeleted("Budget", "", "ml"), now=world.now)
    assert not world.engine._registry.policies.active


def test_a_year_of_run_time_costs_no_more_than_a_bounded_number_of_periods():
    world = new_world(budget("ml", 10**9, period={"every": "Day"}, enforcement="Reserve"), now=at("2026-11-02"))
    world.submit(workload("absurd", "a", 1, max_seconds=999_999_999))
    assert admitted(world) == ["absurd"]
    world.gone("absurd")
    assert hours(world, "ml") == (0, 0, 10**9)


class Row(NamedTuple):
    uid: str
    user: str
    queue: str
    milli: int
    begins: float
    ends: float | None


class Ledger:
    """The rows that the controller would write, and what they say of a Budget: computed in another way."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.ended: list[Row] = []

    def admissions(self) -> list[PastAdmission]:
        return [
            PastAdmission(
                row.uid,
                row.user,
                "ns",
                row.queue,
                row.queue,
                "default",
                "cpu",
                row.milli,
                *times,
                False,
                ("g", "h") if row.user == "ann" else ("h",),
            )
            for row in [*self.ended, *self.rows.values()]
            for times in [(row.begins, row.ends)]
        ]

    def spent(self, begins: float, ends: float, now: float, user: str = "") -> int:
        return sum(
            row.milli * max(round(min(ends, row.ends or now) * 1e6) - round(max(begins, row.begins) * 1e6), 0)
            for row in [*self.ended, *self.rows.values()]
            if not user or row.user == user
        )


BOUNDS = [at(f"2026-{month}-01", "Europe/Berlin") for month in ("10", "11", "12")] + [at("2027-01-01", "Europe/Berlin")]
STEPS = st.one_of(
    st.tuples(st.just("submit"), st.integers(1, 5), st.integers(1, 40)),
    st.tuples(st.just("submit"), st.integers(1, 5), st.integers(1, 40)),
    st.tuples(st.just("end"), st.integers(0, 9), st.just(0)),
    st.tuples(st.just("advance"), st.integers(1, 60 * 40), st.just(0)),
    st.tuples(st.just("clock back"), st.integers(1, 90), st.just(0)),
    st.tuples(st.just("clock ahead"), st.integers(1, 200), st.just(0)),
    st.tuples(st.just("restart"), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("edit"), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("forget"), st.just(0), st.just(0)),
)


class Game:
    """Workloads that end at their time limit at the latest, in an engine that restarts from a ledger."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.waiting, self.running = {}, {}
        self.hours = {"all": 60, "ann": 30, "kept": 25}
        self.leapt = 0
        """What the ledger counts of times that have not passed: amount times microseconds."""
        self.world = self._start(at("2026-11-28T10:00"))

    def objects(self) -> list[QueueObject]:
        reserve = {"enforcement": "Reserve", "period": {**MONTH, "timeZone": "Europe/Berlin"}}
        return [
            budget("all", self.hours["all"], **reserve),
            budget("ann", self.hours["ann"], scope={"users": ["ann"]}, parent="all", **reserve),
            budget("kept", self.hours["kept"], scope={"groups": ["g"]}, carryOver=True, **reserve),
        ]

    def _start(self, now: float) -> World:
        world, reader = new_world(*self.objects(), now=now), new_world(*self.objects(), now=now)
        self._seed(world, reader)
        for uid, (admission, since) in self.running.items():
            event = WorkloadAdmitted(admission.workload, admission.admission, at=since)
            world.engine.observe(event, now=now)
            assert uid in self.ledger.rows
        world.submit(*self.waiting.values())
        return world

    def _seed(self, world: World, reader: World) -> None:
        reader.engine.seed(self.ledger.admissions(), now=reader.now)
        for event in reader.engine.policy_events():
            world.engine.observe(event, now=world.now)
        assert not world.engine.lacks_history

    def end(self, uid: str) -> None:
        row, now = self.ledger.rows.pop(uid), self.world.now
        self.ledger.ended.append(row._replace(ends=max(now, row.begins)))
        del self.running[uid]
        self.world.gone(uid)

    def play(self, number: int, kind: str, size: int, minutes: int) -> None:
        world = self.world
        match kind:
            case "submit":
                one = workload(
                    f"w{number}", "ab"[size % 2], size, created=number, user=["ann", "bob"][minutes % 2],
                    groups=[("g", "h"), ("h",)][minutes % 2],
                    max_seconds=minutes * 1200,
                )  # fmt: skip
                self.waiting[one.uid] = one
                world.submit(one)
            case "end" if self.running:
                self.end(sorted(self.running)[size % len(self.running)])
            case "advance":
                self.advance(world.now + size * 60.25)
            case "clock back":
                world.now -= size * 1.5
            case "clock ahead":  # or a takeover by a replica whose clock is; what is over its limit then is ended
                self.leapt += sum(row.milli for row in self.ledger.rows.values()) * size * 60 * 10**6
                world.now += size * 60
                self.advance(world.now)
            case "restart":
                self.world = self._start(world.now)
            case "edit":  # another scope, and back: what was spent has to be read from the ledger again
                if size == 0:
                    self.hours["all"] += 7
                else:
                    world.tell(budget("ann", 1, scope={"users": ["nobody"]}))
                world.tell(*self.objects())
                world.engine.refresh(world.now)
                lacking = [each for each in self.objects() if (each.kind, each.name) in world.engine.lacking]
                self._seed(world, new_world(*lacking, now=world.now))
        self.settle(forget=kind == "forget")

    def advance(self, until: float) -> None:
        """Let time pass: workloads end at their time limits, and the engine is asked at the times that it wants."""
        world = self.world
        for _ in range(1000):
            limits = [(since + each.workload.max_seconds, uid) for uid, (each, since) in self.running.items()]
            wake = world.engine.wake_at()
            due = min([end for end, _ in limits] + ([wake] if wake is not None else []), default=inf)
            if due > until:
                world.now = max(until, world.now)
                return
            world.now = max(due, world.now)
            for end, uid in limits:
                if end <= world.now:
                    self.end(uid)
            self.settle()
        raise AssertionError(f"the engine wakes again and again: {wake}, it is {world.now}")

    def settle(self, *, forget: bool = False) -> None:
        world = self.world
        admitted = world.engine.settle(world.now).admitted
        left = {name: each.left for name, each in sums(world).items()}
        for admit in admitted:  # nothing is ever admitted for which no hours are left, whatever the clock did before
            one = admit.workload
            assert min(left[name] for name in (left if one.user == "ann" else ["all"])) >= 0
            if forget:
                world.engine.forget(admit)
                forget = False
                continue
            del self.waiting[one.uid]
            self.running[one.uid] = admit, world.now
            milli = one.pod_sets[0].requests["cpu"]
            self.ledger.rows[one.uid] = Row(one.uid, one.user, one.queue, milli, world.now, None)
        self.check()

    def reserved(self, ends: float, now: float, user: str) -> int:
        """Return what those that run may still use in the present period."""
        return sum(
            row.milli * (round(min(since + each.workload.max_seconds, ends) * 1e6) - round(now * 1e6))
            for uid, (each, since) in self.running.items()
            for row in [self.ledger.rows[uid]]
            if not user or row.user == user
        )

    def check(self) -> None:
        now = self.world.now
        number, (begins, ends) = next((n, each) for n, each in enumerate(pairwise(BOUNDS)) if each[0] <= now < each[1])
        found = sums(self.world)
        monthly = self.hours["kept"] * 1000 * HOUR * 10**6
        before = self.ledger.spent(BOUNDS[number - 1], begins, now, "ann") if number else 0
        assert found["kept"].spent == self.ledger.spent(begins, ends, now, "ann")
        assert found["kept"].limit == monthly + max(monthly - before, 0)
        assert found["kept"].left >= -self.leapt
        for name, user in ("all", ""), ("ann", "ann"):
            assert found[name].spent == self.ledger.spent(begins, ends, now, user)
            if all(since <= now < since + each.workload.max_seconds for each, since in self.running.values()):
                assert found[name].reserved == self.reserved(ends, now, user)
            assert found[name].left >= -self.leapt
            for first, last in pairwise(BOUNDS):
                assert self.ledger.spent(first, last, now, user) <= self.hours[name] * 1000 * HOUR * 10**6 + self.leapt


@pytest.mark.costly
@settings(max_examples=120)
@given(st.lists(STEPS, max_size=40))
def test_no_budget_is_overdrawn_under_reserve_and_what_is_charged_equals_the_ledger(steps):
    game = Game()
    for number, (kind, size, minutes) in enumerate(steps):
        game.play(number, kind, size, minutes)
    for uid in list(game.running):
        game.end(uid)
    game.settle()
    game.advance(BOUNDS[-2] + 86400 * 7)
    assert not game.running
    assert {game.world.engine.explain(uid).reason for uid in game.waiting} <= {REASON}


def test_preempt_after_evicts_what_runs_when_the_hours_have_been_used_up_for_the_grace():
    strict = budget("ml", 10, action="PreemptAfter", graceSeconds=HOUR, scope={"clusterQueues": ["a"]})
    world = new_world(strict, now=at("2026-11-30T10:00"))
    world.submit(workload("first", "a", 5), workload("second", "a", 5), workload("other", "b", 5))
    assert admitted(world) == ["first", "other", "second"]
    assert world.engine.wake_at() == at("2026-11-30T11:00")  # then 10 hours are used up
    world.now = at("2026-11-30T11:00")
    assert not world.engine.settle(world.now).evicted
    assert world.engine.wake_at() == at("2026-11-30T12:00")
    world.tell(budget("ml", 13, action="PreemptAfter", graceSeconds=HOUR, scope={"clusterQueues": ["a"]}))
    world.engine.settle(world.now)
    assert world.engine.wake_at() == at("2026-11-30T11:18")  # 3 hours more at 10 an hour
    world.now = at("2026-11-30T11:18")
    assert not world.engine.settle(world.now).evicted
    world.now = at("2026-11-30T12:18")
    evicted = world.engine.settle(world.now).evicted
    assert sorted((each.workload.name, each.reason) for each in evicted) == [("first", REASON), ("second", REASON)]
    assert evicted[0].message == "Budget ml has spent its 13 hours of cpu; its next period begins on 2026-12-01"
    assert not world.engine.settle(world.now).evicted
    assert world.engine.wake_at() is None
    for name in ("first", "second"):
        world.gone(name, requeue=workload(name, "a", 5))
    assert admitted(world) == []
    world.now = at("2026-12-01T00:00")
    assert admitted(world) == ["first", "second"]


def test_with_lower_priority_those_of_a_spent_budget_run_on_idle_quota_only():
    preemption = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
    queues = [cluster_queue(name, {"default": 4}, cohort="lab", preemption=preemption) for name in "ab"]
    low = {"action": "LowerPriority", "scope": {"users": ["ann"]}}
    world = new_world(budget("ml", 2, **low), now=at("2026-11-30T10:00"))
    world.tell(*queues)
    ann = workload("ann", "a", 2, user="ann", priority=100)
    world.submit(ann, workload("bob", "a", 2, priority=5, created=1), workload("b0", "b", 4, created=2))
    assert admitted(world) == ["ann", "b0", "bob"]
    assert world.engine.explain("ann").lowered == ""
    assert world.engine.wake_at() == at("2026-11-30T11:00")
    world.submit(workload("eve", "a", 2, priority=3, created=3))
    assert not world.engine.settle(world.now).evicted

    # It is preempted before others, and then behind all of them, however high its own priority is.
    world.now = at("2026-11-30T11:00")
    (evicted,) = world.engine.settle(world.now).evicted
    assert evicted.workload == ann
    assert world.engine.wake_at() == at("2026-12-01")
    world.gone("ann", requeue=ann)
    assert admitted(world) == ["eve"]
    world.submit(workload("last", "a", 2, priority=-9, created=4))
    assert admitted(world) == []
    assert [world.engine.explain(name).position_in_cluster_queue for name in ("last", "ann")] == [1, 2]
    spent = "Budget ml has spent its 2 hours of cpu; its next period begins on 2026-12-01. Until hours are left it runs"
    assert world.engine.explain("ann").lowered.startswith(spent)
    assert world.engine.explain("last").lowered == ""

    # It runs on what is idle, and takes nothing back that is lent.
    world.gone("bob")
    world.gone("eve")
    assert admitted(world) == ["ann", "last"]
    world.gone("ann")
    world.submit(workload("b1", "b", 2))
    assert admitted(world) == ["b1"]
    world.submit(ann)
    decisions = world.engine.settle(world.now)
    assert (decisions.admitted, decisions.evicted) == ((), ())

    # A grant, or the next period, gives its own priority back.
    world.tell(budget("ml", 3, **low))
    assert [each.workload.name for each in world.engine.settle(world.now).evicted] == ["b1"]
    world.gone("b1")
    assert admitted(world) == ["ann"]
    world.now = world.engine.wake_at()
    assert world.now == at("2026-11-30T11:30")  # one hour was left, at two an hour
    world.engine.settle(world.now)
    assert world.engine.explain("ann").lowered
    world.now = at("2026-12-01")
    world.engine.settle(world.now)
    assert world.engine.explain("ann").lowered == ""


def test_each_resource_of_a_budget_lowers_what_it_charges_at_the_moment_when_it_is_used_up():
    gpu = "example.com/gpu"
    quota = [{"name": name, "nominalQuota": 10} for name in ("cpu", gpu, "pods")]
    group = {"coveredResources": ["cpu", gpu, "pods"], "flavors": [{"name": "default", "resources": quota}]}

    def started(*resources) -> World:
        spec = {"resources": resources, "period": MONTH, "scope": {}, "action": "LowerPriority"}
        prices = {"currency": "EUR", "prices": [{"resource": gpu, "perHour": 1}]}
        world = new_world(manifest("PriceBook", "list", prices), manifest("Budget", "ml", spec), now=at("2026-11-30"))
        world.tell(cluster_queue("a", {}, resourceGroups=[group]))
        world.submit(workload("cpus", "a", 2), workload("gpu", "a", 0, others={gpu: 1}), workload("waits", "a", 20))
        assert admitted(world) == ["cpus", "gpu"]
        return world

    def lowered(world: World) -> list[str]:
        return [name for name in ("cpus", "gpu", "waits") if world.engine.explain(name).lowered]

    world = started({"name": "cpu", "hours": 2}, {"name": gpu, "hours": 2})
    assert (lowered(world), world.engine.wake_at()) == ([], world.now + HOUR)
    world.now += HOUR
    world.engine.settle(world.now)
    assert (lowered(world), world.engine.wake_at()) == (["cpus", "waits"], world.now + HOUR)
    world.now += HOUR
    world.engine.settle(world.now)
    assert (lowered(world), world.engine.wake_at()) == (["cpus", "gpu", "waits"], at("2026-12-01"))

    assert lowered(started({"name": "pods", "hours": 0})) == ["cpus", "gpu", "waits"]
    assert lowered(started({"name": "EUR", "priceBook": "list", "amount": 0})) == ["gpu"], "others cost nothing"


def test_lowered_workloads_keep_the_order_of_their_own_priorities():
    world = new_world(budget("ml", 0, action="LowerPriority", scope={"users": ["ann"]}), now=at("2026-11-02"))
    world.tell(cluster_queue("a", {"default": 2}, preemption={"withinClusterQueue": "LowerPriority"}))
    runs = [workload(name, "a", 1, user="ann", priority=of) for name, of in (("low", 1), ("high", 1000))]
    world.submit(*runs)
    assert admitted(world) == ["high", "low"]
    world.submit(*(workload(f"w{of}", "a", 1, user="ann", priority=of, created=1) for of in (-5, 7, 2_000_000_000)))
    assert not world.engine.settle(world.now).evicted  # they preempt nothing, not even each other
    world.submit(workload("bob", "a", 1, user="bob", priority=-2_000_000_000, created=2))
    assert [each.workload.name for each in world.engine.settle(world.now).evicted] == ["low"]
    world.gone("low")
    assert admitted(world) == ["bob"]
    names = ("w2000000000", "w7", "w-5")
    assert [world.engine.explain(name).position_in_cluster_queue for name in names] == [1, 2, 3]


def test_deleting_a_budget_gives_workloads_their_own_priority_back():
    world = new_world(budget("ml", 0, action="LowerPriority"), now=at("2026-11-02"))
    world.tell(cluster_queue("a", {"default": 1}, preemption={"withinClusterQueue": "LowerPriority"}))
    world.submit(workload("runs", "a", 1, priority=5), workload("waits", "a", 1, priority=4, created=1))
    assert admitted(world) == ["runs"]
    assert all(world.engine.explain(name).lowered for name in ("runs", "waits"))
    world.engine.observe(QueueObjectDeleted("Budget", "", "ml"), now=world.now)
    world.submit(workload("late", "a", 1, priority=3, created=2))
    assert not world.engine.settle(world.now).evicted
    assert [world.engine.explain(name).position_in_cluster_queue for name in ("waits", "late")] == [1, 2]


def test_grace_goes_on_after_a_restart():
    strict = budget("ml", 1, action="PreemptAfter", graceSeconds=HOUR)
    world = new_world(strict, now=at("2026-11-02T10:00"))
    since = round(at("2026-11-02T09:30") * 1e6)
    world.engine.observe(BudgetsSpent({}, {}, used_up_since={"ml": since}), now=world.now)
    (one,) = (policy for policy in world.engine.policies if isinstance(policy, BudgetAccounts))
    assert one.used_up_since("ml") == at("2026-11-02T09:30")
    world.submit(workload("w", "a", 2))
    admitted(world)
    assert one.used_up_since("ml") is None  # hours are left


def test_budget_that_is_deleted_and_created_again_gives_its_grace_anew():
    strict = budget("ml", 1, action="PreemptAfter", graceSeconds=HOUR)
    world = new_world(strict, now=at("2026-11-02T10:00"))
    world.submit(workload("w", "a", 2))
    assert admitted(world) == ["w"]
    world.now += HOUR  # used up for half an hour
    assert not world.engine.settle(world.now).evicted
    world.engine.observe(QueueObjectDeleted("Budget", "", "ml"), now=world.now)
    world.now += HOUR
    world.tell(strict)
    world.engine.observe(BudgetsSpent({}, {"w": round(at("2026-11-02T10:00") * 1e6)}), now=world.now)  # by the ledger
    assert not world.engine.settle(world.now).evicted
    world.now += HOUR
    assert world.engine.settle(world.now).evicted


def test_preempt_after_needs_charge_and_grace_needs_preempt_after():
    for spec, path in (
        ({"action": "PreemptAfter", "enforcement": "Reserve"}, "spec.action"),
        ({"action": "LowerPriority", "enforcement": "Reserve"}, "spec.action"),
        ({"action": "LowerPriority", "flavors": ["default"]}, "spec.resources[0].flavors"),
        ({"graceSeconds": 60}, "spec.graceSeconds"),
        ({"learnRunTimes": True}, "spec.learnRunTimes"),
        ({"carryOver": True, "period": {"lastDays": 3}}, "spec.carryOver"),
    ):
        with pytest.raises(InvalidObject) as error:
            budget("ml", 1, **spec)
        assert error.value.causes[0][0] == path


def price_book(*prices: tuple[str, str, float, str | None]) -> QueueObject:
    """Return the PriceBook `list` of (flavor, resource, price of an hour, day from which it holds)."""
    names = "flavor", "resource", "perHour", "from"
    lines = [{name: value for name, value in zip(names, each, strict=True) if value is not None} for each in prices]
    return manifest("PriceBook", "list", {"currency": "EUR", "prices": lines})


def money(name: str, amount: float, **spec) -> QueueObject:
    resources = [{"name": "EUR", "priceBook": "list", "amount": amount}]
    return manifest("Budget", name, {"resources": resources, "period": MONTH, "scope": {}, **spec})


def euros(world: World, name: str) -> tuple[str, str]:
    """Return the money that a Budget has spent, and left."""
    one = sums(world)[name]
    return one.resource.text(one.spent), one.resource.text(one.left)


def test_a_budget_of_money_charges_the_prices_of_flavors():
    prices = price_book(("", "cpu", 0.5, None), ("spot", "cpu", 0.1, None))
    world = new_world(prices, money("ml", 100, enforcement="Reserve"), now=at("2026-11-21"))
    world.submit(workload("first", "a", 8, max_seconds=20 * HOUR), workload("second", "a", 10, max_seconds=5 * HOUR))
    assert refusals(world.engine.settle(world.now)) == {
        "second": "Budget ml has 20 of 100 EUR left, this needs 25; its next period begins on 2026-12-01"
    }
    world.now += HOUR
    assert euros(world, "ml") == ("4", "20")
    world.gone("first")
    assert (euros(world, "ml"), admitted(world)) == (("4", "96"), ["second"])


def test_usage_costs_what_was_valid_on_the_day_from_which_it_is_held():
    prices = price_book(("", "cpu", 1, None), ("", "cpu", 3, "2026-11-22"))
    world = new_world(prices, money("ml", 1000), now=at("2026-11-21T23:00"))
    world.submit(workload("before", "a", 1))
    assert admitted(world) == ["before"]
    world.now += 2 * HOUR
    world.submit(workload("after", "a", 1))
    assert admitted(world) == ["after"]
    world.now += HOUR
    assert euros(world, "ml") == ("6", "994")


def test_the_ledger_is_read_again_when_prices_change_or_become_known():
    world = new_world(money("ml", 10), now=at("2026-11-21"))
    past = PastAdmission(
        uid="past", cluster_queue="a", namespace="default", local_queue="a", user="u", flavor="default", resource="cpu",
        amount=4000, from_at=world.now - 2 * HOUR, to_at=world.now - HOUR, resized=False,
    )  # fmt: skip
    world.engine.seed([past], now=world.now)
    for price in (1, 2):
        world.tell(price_book(("", "cpu", price, None)))
        assert world.engine.lacks_history
        world.engine.observe(BudgetsSpent({}, {}), now=world.now)
        fresh = new_engine()
        for item in (money("ml", 10), price_book(("", "cpu", price, None))):
            fresh.observe(QueueObjectChanged(item), now=world.now)
        fresh.seed([past], now=world.now)
        for event in fresh.policy_events():
            world.engine.observe(event, now=world.now)
        assert not world.engine.lacks_history
        assert euros(world, "ml") == (str(4 * price), str(10 - 4 * price))


@pytest.mark.parametrize(
    "fields", [{"hours": 5, "priceBook": "list", "amount": 5}, {"priceBook": "list"}, {"amount": 5}, {}]
)
def test_an_entry_has_either_hours_or_money(fields):
    with pytest.raises(InvalidObject, match="hours"):
        manifest("Budget", "ml", {"resources": [{"name": "EUR", **fields}], "period": MONTH})
