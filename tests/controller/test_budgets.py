"""Budgets in a cluster: a Budget that is written while Jobs run, restarts, and users who try to escape it."""

from __future__ import annotations

import asyncio

import pytest
from job_examples import cluster_queue, flavor, job, local_queue, runs
from pod_examples import gated
from postgresql_databases import on_both_databases

from admission.controller.decisions.budget_reports import BudgetReports
from admission.controller.state.policy import ControllerPolicy
from admission.engine import BudgetAccounts, Budgets
from admission.engine import Policy as EnginePolicy
from admission.kinds import all_kinds
from admission.store.audit_log import Author
from admission.store.records import State

pytestmark = [on_both_databases, pytest.mark.costly]

LIMIT = "sluice.dev/max-exec-time-seconds"
POLICY = ControllerPolicy(engine=EnginePolicy(policies=(Budgets(),)))
YEAR = {"every": "Year"}


@pytest.fixture
async def queues(world):
    await world.apply(flavor(), cluster_queue(cpu="100"), local_queue())
    return world


def limited(name: str, seconds: int, cpu: str = "1"):
    manifest = job(name, cpu=cpu)
    manifest["metadata"]["labels"][LIMIT] = str(seconds)
    return manifest


def budget(hours: float, enforcement: str = "Reserve", name: str = "ml"):
    spec = {
        "scope": {"namespaces": ["team-a"]},
        "resources": [{"name": "cpu", "hours": str(hours)}],
        "period": YEAR,
        "enforcement": enforcement,
    }
    return {"apiVersion": "sluice.dev/v1", "kind": "Budget", "metadata": {"name": name}, "spec": spec}


async def charged(world, name: str = "ml") -> tuple[int, int]:
    """Return what a Budget has spent and reserved in core seconds, as soon as the leader knows it."""

    async def look():
        engine = world.controller.engine()
        if engine is None or engine.lacks_history:
            return None
        (accounts,) = engine.policies
        assert isinstance(accounts, BudgetAccounts)
        found = {each: sums for each, _, _, sums in accounts.sums()}
        return found.get(name)

    (one,) = await world.eventually(look)
    return one.spent / 1e9, one.reserved / 1e9


async def ledger(world) -> float:
    """Return the core seconds of the ledger's rows that have ended."""
    rows = [row async for piece in world.store.past_admissions(since=0.0) for row in piece]
    return sum(row.amount * (row.to_at - row.from_at) for row in rows if row.to_at is not None) / 1000


async def test_budget_written_while_jobs_run_charges_all_that_the_ledger_has(queues):
    await queues.start(POLICY)
    await queues.submit(limited("past", 1000, cpu="2"))
    await queues.job("past", runs)
    queues.pass_time(600)
    await queues.user.delete("jobs", "team-a", "past", propagation="Background")
    await queues.record("past", "finished")
    await queues.submit(limited("runs", 7200, cpu="3"))
    await queues.job("runs", runs)
    since = (await queues.record("runs", "admitted")).admitted_at
    queues.pass_time(100)
    await queues.apply(budget(7))
    await queues.submit(limited("waits", 3600))
    message = (await queues.record("waits", "pending", reason="BudgetExhausted")).message
    assert message.startswith("Budget ml has 0.66 of 7 hours of cpu left, this needs 1; its next period begins on 20")
    spent, reserved = await charged(queues)
    ended = await ledger(queues)
    assert spent == pytest.approx(ended + 3 * (queues.clock() - since), abs=3)
    assert spent + reserved == pytest.approx(ended + 3 * 7200, abs=1e-3)

    controller = queues.controller
    reports = BudgetReports(queues.leading, controller.events, controller.engine, controller.faults)
    await reports.report()
    shown = (await queues.store.budget_sums.load())["ml"]["resources"]
    assert [(one["name"], one["hours"], one["left"]) for one in shown] == [("cpu", "7", "0.66")]
    reports = BudgetReports(queues.leading, controller.events, controller.engine, controller.faults)
    alerts = (await queues.store.budget_sums.load())["ml"]["alerts"]
    assert [(one["resource"], one["level"]) for one in alerts] == [("cpu", 80)]
    queues.pass_time(1)
    await reports.report()  # by another replica
    assert (await queues.store.budget_sums.load())["ml"]["alerts"] == alerts

    async def event():
        found = queues.user.list("events", "default")
        return [(each["reason"], each["type"], each["message"], each["involvedObject"]["name"]) for each in found]

    note = "Budget ml has spent or reserved 6.33 of 7 hours of cpu (80 %)"
    assert await queues.eventually(event) == [("BudgetUsed80", "Warning", note, "ml")]

    await queues.end()  # what was charged is the same after a restart
    await queues.start(POLICY)
    again, reserved = await charged(queues)
    assert again >= spent
    assert again + reserved == pytest.approx(ended + 3 * 7200, abs=1e-3)
    await queues.user.delete("jobs", "team-a", "runs", propagation="Background")
    await queues.record("runs", "finished")
    await queues.job("waits", runs)
    spent, reserved = await charged(queues)
    assert (spent, spent + reserved) == pytest.approx((await ledger(queues), await ledger(queues) + 3600), abs=2)

    await queues.user.delete("jobs", "team-a", "waits", propagation="Background")
    await queues.record("waits", "finished")
    queues.clock.advance(366 * 86400)  # nothing happens, but the next period begins
    await BudgetReports(
        queues.leading, queues.controller.events, queues.controller.engine, queues.controller.faults
    ).report()
    shown = (await queues.store.budget_sums.load())["ml"]
    assert shown["resources"][0]["spent"] == "0"
    assert "alerts" not in shown


async def test_budget_of_a_cohort_follows_its_queues_while_jobs_run(queues):
    await queues.start(POLICY)
    await queues.submit(limited("past", 1000, cpu="2"))
    await queues.job("past", runs)
    queues.pass_time(600)
    await queues.user.delete("jobs", "team-a", "past", propagation="Background")
    await queues.record("past", "finished")
    of_lab = budget(100, "Charge", name="lab")
    of_lab["spec"]["scope"] = {"cohorts": ["lab"]}
    await queues.apply(of_lab)
    assert await charged(queues, "lab") == (0, 0)
    joined = cluster_queue(cpu="100")
    joined["spec"]["cohortName"] = "lab"
    await queues.apply(joined)
    used = await ledger(queues)

    async def follows():
        return (await charged(queues, "lab"))[0] == pytest.approx(used, abs=1e-5)

    assert await queues.eventually(follows)
    assert used > 1000


async def test_budgets_edited_again_and_again_charge_what_the_ledger_has(queues):
    await queues.start(POLICY)
    for number in range(3):
        await queues.submit(limited(f"job-{number}", 600, cpu="2"))
        await queues.job(f"job-{number}", runs)
        await queues.apply(budget(100 + number), budget(50, "Charge", name=f"other-{number}"))
        queues.pass_time(100)
        await queues.user.delete("jobs", "team-a", f"job-{number}", propagation="Background")
        await queues.record(f"job-{number}", "finished")
    store = queues.leading
    await store.queues.delete("Budget", "other-1", author=Author("test"))
    await queues.apply(budget(100, "Charge"))
    for name in ("ml", "other-0", "other-2"):
        assert (await charged(queues, name))[0] == pytest.approx(await ledger(queues), abs=1e-5)


async def test_user_cannot_escape_a_budget_by_a_longer_time_limit_or_by_starting_again(queues):
    await queues.apply(budget(1))
    await queues.start(POLICY)
    await queues.submit(limited("first", 3000))
    await queues.job("first", runs)
    for seconds in ("999999999", None):  # longer, or none: the one with which it was admitted holds
        await queues.patch("first", {"metadata": {"labels": {LIMIT: seconds}}})
    await queues.submit(limited("absurd", 999_999_999))
    assert "this needs 277,777" in (await queues.record("absurd", "pending", reason="BudgetExhausted")).message
    await queues.submit(job("endless"))
    assert "time limit" in (await queues.record("endless", "pending", reason="BudgetExhausted")).message
    queues.pass_time(1500)
    await queues.user.delete("jobs", "team-a", "first", propagation="Background")
    await queues.record("first", "finished")
    await queues.submit(limited("first", 3000))  # what was used stays charged
    message = (await queues.record("first", "pending", reason="BudgetExhausted")).message
    assert message.startswith("Budget ml has 0.58 of 1 hours of cpu left, this needs 0.83")
    for number in range(3):  # split work
        await queues.submit(limited(f"part-{number}", 1000))

    async def refused():
        parts = (await queues.store.workloads.list(namespace="team-a")).workloads
        return [each for each in parts if each.workload.name.startswith("part-") and each.reason == "BudgetExhausted"]

    (_,) = await queues.eventually(refused)
    spent, reserved = await charged(queues)
    assert 3500 <= spent + reserved <= 3600


async def test_user_cannot_escape_a_budget_by_a_forged_name_a_robot_or_a_new_name_of_the_job(queues, tmp_path):
    robot = "system:serviceaccount:team-a:robot"
    mine = budget(1)
    mine["spec"]["scope"] = {"users": ["alice", robot]}
    await queues.apply(mine)
    async with gated(queues.sandbox.local("admin"), all_kinds(), tmp_path / "certificates"):
        await queues.start(POLICY)
        alice = queues.sandbox.local("alice")
        await alice.create("jobs", "team-a", limited("first", 3000))
        await queues.job("first", runs)
        forged = limited("forged", 3000)
        forged["metadata"]["annotations"] = {"sluice.dev/submitted-by": "bob"}
        await alice.create("jobs", "team-a", forged)
        waits = await queues.record("forged", "pending", reason="BudgetExhausted")
        assert waits.workload.user == "alice"
        await queues.sandbox.local(robot).create("jobs", "team-a", limited("by-robot", 3000))
        await queues.record("by-robot", "pending", reason="BudgetExhausted")
        queues.pass_time(2000)
        await alice.delete("jobs", "team-a", "first", propagation="Background")
        await queues.record("first", "finished")
        await alice.create("jobs", "team-a", limited("renamed", 3000))
        message = (await queues.record("renamed", "pending", reason="BudgetExhausted")).message
        assert message.startswith("Budget ml has 0.44 of 1 hours of cpu left, this needs 0.83")


async def test_many_small_jobs_at_the_same_time_do_not_overdraw_a_budget(queues):
    await queues.apply(budget(1))
    await queues.start(POLICY)
    await asyncio.gather(*(queues.submit(limited(f"small-{number}", 600)) for number in range(20)))

    async def decided():
        found = (await queues.store.workloads.list(namespace="team-a")).workloads
        waiting = [each for each in found if each.reason == "BudgetExhausted"]
        return [each for each in found if each not in waiting] if len(waiting) >= 14 else None

    runs_now = await queues.eventually(decided)
    assert len(runs_now) == 6
    assert {each.state for each in runs_now} == {State.ADMITTED}
    assert sum(await charged(queues)) == pytest.approx(3600, abs=1e-3)


async def test_time_limit_at_the_admission_ends_a_job_whose_label_was_raised(queues):
    await queues.start(POLICY)
    await queues.submit(limited("long", 600))
    await queues.job("long", runs)
    await queues.patch("long", {"metadata": {"labels": {LIMIT: "999999999"}}})
    await queues.end()
    await queues.start(POLICY)
    queues.pass_time(601)
    await queues.record("long", "pending", reason="DeactivatedDueToMaximumExecutionTimeExceeded")


async def test_budget_that_preempts_evicts_what_runs_when_its_hours_are_used_up(queues):
    strict = budget(1, "Charge")
    strict["spec"] |= {"action": "PreemptAfter", "graceSeconds": 0}
    await queues.apply(strict)
    await queues.start(POLICY)
    await queues.submit(limited("runs", 100_000, cpu="2"))
    await queues.job("runs", runs)
    queues.pass_time(1801)  # half an hour of two cores
    message = (await queues.record("runs", "pending", reason="BudgetExhausted")).message
    assert message.startswith("Budget ml has spent its 1 hours of cpu; its next period begins on 20")
    assert "BudgetExhausted" in {reason for reason, _ in await queues.history("runs")}


async def test_spent_budget_with_lower_priority_runs_on_idle_quota_only(queues):
    low = budget(1, "Charge")
    low["spec"] |= {"action": "LowerPriority", "scope": {"users": ["alice"]}}
    full = cluster_queue(cpu="4")
    full["spec"]["preemption"] = {"withinClusterQueue": "LowerPriority"}
    await queues.apply(full, low)
    await queues.start(POLICY)
    mine = job("mine", cpu="4")
    mine["metadata"]["annotations"] = {"sluice.dev/submitted-by": "alice"}
    await queues.submit(mine)
    await queues.job("mine", runs)
    queues.pass_time(901)  # a quarter of an hour of four cores
    await queues.submit(job("other", cpu="4"))
    await queues.job("other", runs)
    assert "Preempted" in {reason for reason, _ in await queues.history("mine")}
    controller = queues.controller
    await BudgetReports(queues.leading, controller.events, controller.engine, controller.faults).report()
    since = (await queues.store.budget_sums.load())["ml"]["usedUpSince"]
    await queues.end()
    queues.clock.advance(100)
    await queues.start(POLICY)
    uid = (await queues.record("mine", "pending")).workload.uid
    await charged(queues)

    async def lowered():  # the Budget is looked at with the first decisions
        return queues.controller.engine().explain(uid).lowered

    assert (await queues.eventually(lowered)).startswith("Budget ml has spent its 1 hours of cpu; its next")
    controller = queues.controller
    await BudgetReports(queues.leading, controller.events, controller.engine, controller.faults).report()
    assert (await queues.store.budget_sums.load())["ml"]["usedUpSince"] == since
    await queues.user.delete("jobs", "team-a", "other", propagation="Background")
    await queues.job("mine", runs)


async def test_budget_of_money_charges_the_ledger_by_the_prices_of_now(queues):
    def prices(per_hour: int):
        spec = {"currency": "EUR", "prices": [{"resource": "cpu", "perHour": per_hour}]}
        return {"apiVersion": "sluice.dev/v1", "kind": "PriceBook", "metadata": {"name": "list"}, "spec": spec}

    def spent_at(price: int):
        async def look():
            engine = queues.controller.engine()
            if engine is None or engine.lacks_history:
                return None
            (accounts,) = engine.policies
            return [one.resource.text(one.spent) for _, _, _, (one,) in accounts.sums()] == [str(price)] or None

        return look

    await queues.start(POLICY)
    await queues.submit(job("past", cpu="2"))
    await queues.job("past", runs)
    queues.pass_time(7200)
    await queues.user.delete("jobs", "team-a", "past", propagation="Background")
    await queues.record("past", "finished")
    money = budget(0)
    money["spec"]["resources"] = [{"name": "EUR", "priceBook": "list", "amount": 100}]
    await queues.apply(money)
    await queues.eventually(spent_at(0))
    await queues.apply(prices(3))
    await queues.eventually(spent_at(12))
    await queues.apply(prices(5))
    await queues.eventually(spent_at(20))
    await queues.end()
    await queues.start(POLICY)
    await queues.eventually(spent_at(20))
