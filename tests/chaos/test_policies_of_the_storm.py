"""The checks of the storm with policies find what Budgets, limits, Reservations and calendars do not permit."""

from __future__ import annotations

import pytest

from tests.chaos.policies import Past, Policies, Row, Version, local
from tests.chaos.storm import plan_of

PLAN = plan_of(4, speed=60)
NOW, LIMIT = 1_795_950_000.0, 3600
MOST = 12
"""Workloads that a user may have."""


def row(number: int, user: str = "bob", *, ends: float | None = None, cpu: int = 10, team: str = "research") -> Row:
    """An admission of one workload, an hour long at most, by a commit of its own."""
    first = 100 + 10 * number
    last = float("inf") if ends is None else first + 5
    begins = NOW + number
    return Row(f"u{number}", user, team, team, cpu * 1000, begins, ends, first, last, 50, begins, LIMIT)


def past(*rows: Row, **changed: dict[str, object]) -> Past:
    """Return the past of the storm's objects; `changed`: parts of the specs of some, by kind and name (`Kind_name`)."""
    specs = {(each["kind"], each["metadata"]["name"]): each["spec"] for each in Policies(PLAN, steady=True).documents()}
    for team in PLAN.teams:
        quota = {"name": "cpu", "nominalQuota": str(team.nominal["cpu"] // 1000)}
        groups = [{"flavors": [{"resources": [quota]}]}]
        specs["ClusterQueue", team.name] = {"resourceGroups": groups}
    for key, fields in changed.items():
        kind, _, name = key.partition("_")
        specs[kind, name.replace("_", "-")] |= fields
    return Past(rows, [Version(0, {}), Version(40, specs)])


def wrong(found: Past) -> list[bool]:
    queues = [team.name for team in PLAN.teams]
    return [bool(each) for each in (found.wrong_budgets(), found.wrong_limits(), found.wrong_reservations(queues))]


def hours(number: float) -> dict[str, object]:
    return {"resources": [{"name": "cpu", "hours": str(number)}]}


def test_what_was_permitted_is_right():
    assert wrong(past(*(row(n, ends=NOW + n + 1) for n in range(MOST + 1)))) == [False] * 3


@pytest.mark.parametrize("given", [20.01, 19.99])
def test_reserved_hours_are_those_until_the_time_limit(given):
    assert wrong(past(row(0), row(1), Budget_research=hours(given)))[0] is (given < 20)
    assert wrong(past(row(0, ends=NOW + 36), row(1), Budget_company=hours(given - 9.9)))[0] is (given < 20)


def test_charged_hours_are_those_that_were_used():
    alice = [row(0, "alice", ends=NOW + 109), row(120, "alice")]  # 0.3 hours
    assert wrong(past(*alice))[0] is True
    assert wrong(past(*alice, Budget_alice=hours(0.31)))[0] is False
    assert past(*alice).spent("alice") == 1090


def test_a_version_that_the_leader_knew_or_may_have_known_permits():
    found = past(row(0), row(1), Budget_research=hours(25))
    less = Version(60, found.history[-1].specs | {("Budget", "research"): hours(15) | {"scope": {}}})
    assert wrong(Past(found.rows, [*found.history, less]))[0] is False
    known = [each._replace(known=70) for each in found.rows]
    less.specs["Budget", "research"]["enforcement"] = "Reserve"
    assert wrong(Past(known, [*found.history, less]))[0] is True


def test_limits_of_users_count_workloads_and_requests():
    many = [row(n, cpu=1, team="students") for n in range(MOST + 1)]
    assert wrong(past(*many))[1] is True
    assert wrong(past(*many[:-1]))[1] is False
    assert wrong(past(*(row(n, "alice", cpu=1, team="students") for n in range(10))))[1] is True  # of alice
    shared = [row(n, ("alice", "bob")[n % 2], cpu=1) for n in range(11)]
    assert wrong(past(*shared))[1] is True
    assert wrong(past(row(0, cpu=MOST * 10), row(1, cpu=1)))[1] is True


def test_what_is_reserved_is_for_its_holder_only():
    near = {"start": local(NOW + 600), "end": local(NOW + 1200)}
    kept = PLAN.total("cpu") // 1000 - PLAN.teams[2].nominal["cpu"] // 1000
    beside = [row(0, "admin", cpu=kept), row(1, "admin", cpu=1)]
    assert wrong(past(*beside, Reservation_near_research=near))[2] is True
    assert wrong(past(beside[0], beside[1]._replace(user="alice"), Reservation_near_research=near))[2] is False
    assert wrong(past(beside[0], beside[1]._replace(limit=300), Reservation_near_research=near))[2] is False


def test_quota_is_that_of_the_calendar():
    entry = {"start": local(NOW), "end": local(NOW + 10), "quotas": [{"nominalQuota": "5"}]}
    found = past(ClusterQueue_research={"calendar": {"entries": [entry]}})
    spec = found.history[-1].specs["ClusterQueue", "research"]
    usual = [(NOW + seconds, "research", spec) for seconds in (-1, 5, 10)]
    assert len(Past((), found.history, usual).wrong_calendars()) == 1
    spec["resourceGroups"][0]["flavors"][0]["resources"][0]["currentQuota"] = "5"
    assert len(Past((), found.history, usual).wrong_calendars()) == 2
