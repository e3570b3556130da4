"""What Budgets have spent, read from the ledger: to the microsecond, and from hourly sums where rows were deleted."""

from __future__ import annotations

import pytest
from store_examples import admission, admitted, finished, requeued, workload

from admission.engine import BudgetAccounts, Budgets, Engine, Policy, QueueObjectChanged, WorkloadAdmitted
from admission.model.manifests import parse_manifest
from admission.store.policy_seeds import policy_seeds
from admission.store.records import Changes, Resized
from admission.store.retention import Retention

HOUR = 3600
NOVEMBER = 1793923200.0  # 2026-11-06
POLICY = Policy(policies=(Budgets(),))


def budget(period, scope=None):
    of = scope or {"namespaces": ["team-a"]}
    spec = {"scope": of, "resources": [{"name": "cpu", "hours": 100}], "period": period}
    body = {"apiVersion": "sluice.dev/v1", "kind": "Budget", "metadata": {"name": "ml"}, "spec": spec}
    return parse_manifest(body)


async def spent(store, now, period, held=(), scope=None):
    """Return the core seconds that a Budget has spent, by a new engine that holds (workload, admission, at)."""
    engine = Engine(POLICY)
    engine.observe(QueueObjectChanged(budget(period, scope)), now=now)
    for event in await policy_seeds(store, POLICY, [budget(period, scope)], now=now):
        engine.observe(event, now=now)
    assert not engine.lacks_history
    for one, quota, at in held:
        engine.observe(WorkloadAdmitted(one, quota, at=at), now=now)
    (accounts,) = engine.policies
    assert isinstance(accounts, BudgetAccounts)
    ((_, _, _, (found,)),) = accounts.sums()
    return found.spent / 1e9


async def test_spent_hours_are_those_of_the_ledger_and_continue_while_quota_is_held(store, clock):
    clock.now = NOVEMBER + 60
    epoch = await store.lead("test")
    one, other = workload("x"), workload("y")
    await store.commit(admitted(one, admission(4000), at=clock()), epoch=epoch)
    clock.advance(1000.25)
    await store.commit(admitted(other, admission(1000), at=clock()), epoch=epoch)
    began = clock()
    clock.advance(500)
    await store.commit(requeued(one, at=clock()), epoch=epoch)
    smaller = Changes(resized=(Resized(other, admission(500), at=clock()),))
    await store.commit(smaller, epoch=epoch)
    clock.advance(100)
    held = [(other, admission(500), began)]
    assert await spent(store, clock(), {"every": "Month"}, held) == 4 * 1500.25 + 1 * 500 + 0.5 * 100
    assert await spent(store, clock(), {"every": "Month"}) == 4 * 1500.25 + 1 * 500
    day = {"firstDay": "2026-11-07", "lastDay": "2026-11-07"}
    assert await spent(store, NOVEMBER + 30 * HOUR, day, held) == 0.5 * 6 * HOUR


async def test_past_admissions_are_charged_to_the_groups_that_were_recorded(store, clock):
    clock.now = NOVEMBER
    epoch = await store.lead("test")
    for uid, groups in (("x", ("ml", "staff")), ("y", ("staff",)), ("z", ())):
        one = workload(uid, groups=groups)
        await store.commit(admitted(one, admission(1000), at=clock()), epoch=epoch)
        clock.advance(100)
        await store.commit(finished(one, at=clock()), epoch=epoch)
    month = {"every": "Month"}
    assert await spent(store, clock(), month, scope={"groups": ["ml"]}) == 100
    assert await spent(store, clock(), month, scope={"groups": ["ml", "staff"]}) == 200


async def test_where_rows_were_deleted_hourly_sums_are_counted(store, clock):
    clock.now = NOVEMBER + 60
    epoch = await store.lead("test")
    one, other = workload("x"), workload("y")
    await store.commit(admitted(other, admission(1000), at=clock()), epoch=epoch)
    await store.commit(admitted(one, admission(4000), at=clock()), epoch=epoch)
    began = clock()
    clock.advance(600)
    await store.commit(finished(one, at=clock()), epoch=epoch)
    clock.advance(5 * HOUR)
    held = [(other, admission(1000), began)]
    expected = 4 * 600 + 600 + 5 * HOUR
    assert await spent(store, clock(), {"every": "Month"}, held) == expected
    assert await store.roll_up(epoch=epoch) == 5
    assert await store.prune(Retention(finished=2 * HOUR), epoch=epoch) == 1
    assert await spent(store, clock(), {"every": "Month"}, held) == pytest.approx(expected)
    # The day has begun with the hour in which they did.
    assert await spent(store, clock(), {"every": "Day"}, held) == pytest.approx(expected)
