"""Clocks that differ between replicas, are set, or jump: leader time, ledger sums, and retention."""

from __future__ import annotations

import math
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from sqlalchemy import func, select
from store_examples import admission, admitted, cluster_queue, finished, workload

from admission.store.audit_log import Author
from admission.store.database.tables import admissions
from admission.store.leadership import leader_clock
from admission.store.leadership.leader_clock import MAX_JUMP, MAX_LAG, MAX_LEAD
from admission.store.ledger.rollup import DAY, HOUR
from admission.store.records import Changes, Resized
from admission.store.retention import Retention
from admission.store.store import Store
from tests.conftest import Clock

RETENTION = Retention(finished=90 * DAY)


class Successor:
    """A second store on the same database, with its own clocks, which becomes the leader after the first."""

    def __init__(self, store: Store, clock: Clock, passed: Clock) -> None:
        self.store = store
        self.clock = clock
        self.passed = passed


@pytest.fixture
async def successor(database_url: str, clock: Clock) -> AsyncIterator[Successor]:
    own, passed = type(clock)(clock.now), type(clock)(0.0)
    async with Store.open(database_url, clock=own, elapsed=passed) as opened:
        yield Successor(opened, own, passed)


@pytest.mark.parametrize(("behind", "levelled"), [(MAX_LAG - 1, True), (MAX_LAG + 1, False), (-5.0, False)])
async def test_new_leader_with_ordinary_clock_lag_starts_at_the_last_commit_time(
    store: Store, clock: Clock, successor: Successor, behind: float, levelled: bool
):
    epoch = await store.lead("test")
    await store.commit(admitted(workload("1"), admission(), at=clock.now), epoch=epoch)
    await store._leadership.release()
    successor.clock.now = clock.now - behind
    await successor.store.lead("successor")
    assert successor.store.now() == (clock.now if levelled else successor.clock.now)
    successor.clock.now = clock.now + 1
    assert successor.store.now() == clock.now + 1


async def test_stored_instants_have_the_microsecond_that_they_were_rounded_to_before(store: Store):
    """The number of an admission is computed from the instant in memory, and after a start from the stored one."""
    epoch = await store.lead("test")
    chance = random.Random(1)
    instants = {str(number): 1_795_925_600 + chance.random() for number in range(50)}
    for uid, at in instants.items():
        await store.commit(admitted(workload(uid), admission(), at=at), epoch=epoch)
    loaded = {record.workload.uid: record.admitted_at for record in (await store.load()).workloads}
    assert {uid: round((at or 0) * 1e6) for uid, at in loaded.items()} == {
        uid: round(at * 1e6) for uid, at in instants.items()
    }


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings of the clock, up to their remedies."""
    texts = [r.getMessage() for r in caplog.records if r.name == leader_clock.__name__ and r.levelname == "WARNING"]
    assert all(text.endswith("synchronize the clocks of all machines (NTP)") for text in texts)
    return [text.partition(";")[0] for text in texts]


@pytest.mark.parametrize(("behind", "number"), [(MAX_LAG + 1, 1), (MAX_LAG - 1, 0), (-3600.0, 0)])
async def test_new_leader_whose_clock_is_behind_the_last_commit_warns_once(
    store: Store, clock: Clock, successor: Successor, caplog: pytest.LogCaptureFixture, behind: float, number: int
):
    epoch = await store.lead("test")
    await store.commit(admitted(workload("1"), admission(), at=clock.now), epoch=epoch)
    await store._leadership.release()
    successor.clock.now = clock.now - behind
    epoch = await successor.store.lead("successor")
    await successor.store.commit(finished(workload("1"), at=successor.store.now()), epoch=epoch)
    successor.store.now()
    text = "the clock of this machine is 61 s behind the time of the last commit, by another leader or before the clock"
    assert warnings(caplog) == [f"{text} was set"] * number


async def test_jump_of_the_leaders_clock_is_reported_once(
    store: Store, successor: Successor, caplog: pytest.LogCaptureFixture
):
    leader = successor.store
    successor.clock.advance(3600)
    leader.now()
    assert warnings(caplog) == [], "it does not lead yet"
    await leader.lead("test")
    for _ in range(100):  # an idle hour each, in which the clock is slewed by a second
        successor.clock.advance(3601)
        successor.passed.advance(3600)
        leader.now()
    assert warnings(caplog) == []
    for step, seen in (
        (-MAX_JUMP - 1, "set back by 61 s"),
        (MAX_JUMP, ""),
        (7200.0, "set ahead by 7200 s, or this machine was suspended"),
    ):
        caplog.clear()
        successor.clock.advance(step)
        for _ in range(3):
            leader.now()
        assert warnings(caplog) == ([f"the clock of this machine was {seen}"] if seen else [])


async def test_time_of_a_repeated_lead_is_not_before_its_own_last_commit(store: Store, clock: Clock):
    epoch = await store.lead("test")
    await store.commit(admitted(workload("1"), admission(), at=clock.now), epoch=epoch)
    await store.lead("test")
    clock.advance(-5)
    assert store.now() == clock.now + 5


async def old_history(store: Store, clock: Clock) -> None:
    epoch = await store.lead("test")
    await store.commit(admitted(workload("1"), admission(), at=clock.now), epoch=epoch)
    await store.commit(finished(workload("1"), at=clock.now + 1), epoch=epoch)
    clock.advance(HOUR)
    await store.commit(admitted(workload("2"), admission(), at=clock.now), epoch=epoch)
    await store._leadership.release()


@pytest.mark.long
async def test_clock_that_is_months_ahead_prunes_nothing_for_weeks(store: Store, clock: Clock, successor: Successor):
    """The clock jumps ahead after the store has become the leader, or is ahead from the beginning."""
    await old_history(store, clock)
    for ahead in (0.0, 120 * DAY):
        successor.clock.now = clock.now + ahead
        epoch = await successor.store.lead("successor")
        successor.clock.now = clock.now + 120 * DAY
        await successor.store.roll_up(epoch=epoch)
        assert await successor.store.prune(RETENTION, epoch=epoch) == 0
        successor.passed.advance((90 * DAY - MAX_LEAD) / 2 - HOUR)
        assert await successor.store.prune(RETENTION, epoch=epoch) == 0
    successor.passed.advance(2 * HOUR)
    assert await successor.store.prune(RETENTION, epoch=epoch) == 1  # the clock was not corrected within 45 days


@pytest.mark.long
async def test_workloads_are_pruned_after_their_retention_has_really_passed(
    store: Store, clock: Clock, successor: Successor
):
    await old_history(store, clock)
    epoch = await successor.store.lead("successor")
    for now in (successor.clock, successor.passed):
        now.advance(91 * DAY)
    await successor.store.roll_up(epoch=epoch)
    assert await successor.store.prune(RETENTION, epoch=epoch) == 1


@pytest.mark.costly
async def test_ledger_and_reports_stay_consistent_while_the_clock_jumps(store: Store, clock: Clock):
    """Admissions, resizes, ends and quota changes at times up to 3 h off; no ledger row has a negative duration."""
    chance = random.Random(7)
    await store.queues.create(cluster_queue(cpu="10"), author=Author("ada"))
    epoch = await store.lead("test")
    begin = clock.now
    held: list[str] = []
    for number in range(80):
        clock.now = begin + chance.uniform(-3, 3) * HOUR
        step = chance.random()
        if step < 0.1:
            await store.queues.replace(cluster_queue(cpu=str(chance.randint(5, 10))), author=Author("ada"))
        elif len(held) < 5 and step < 0.6:
            known = await store.queues.revision()
            changes = admitted(workload(str(number)), admission(1_000), at=clock.now)
            await store.commit(replace(changes, known=known), epoch=epoch)
            held.append(str(number))
        elif held and step < 0.75:
            smaller = Resized(workload(chance.choice(held)), admission(500), clock.now)
            await store.commit(Changes(resized=(smaller,)), epoch=epoch)
        elif held:
            of = workload(held.pop(chance.randrange(len(held))))
            await store.commit(finished(of, at=clock.now), epoch=epoch)
        if number % 10 == 0:
            await store.roll_up(epoch=epoch)
    for uid in held:
        await store.commit(finished(workload(uid), at=clock.now), epoch=epoch)
    clock.now = begin + 5 * HOUR
    columns = admissions.c
    async with store._database.read() as connection:
        rows = (await connection.execute(select(columns.amount, columns.from_at, columns.to_at))).all()
        unordered = select(func.count()).where(columns.to_revision < columns.from_revision)
        assert await connection.scalar(unordered) == 0
    assert len(rows) > 20
    assert all(to_at >= from_at for _, from_at, to_at in rows)
    total = sum(amount * (to_at - from_at) for amount, from_at, to_at in rows)
    for _ in range(2):  # first from the ledger, then from the roll-ups
        (row,) = (await store.reports.usage(("clusterqueue",), start=0.0, end=math.inf)).rows
        assert row.amount_seconds == pytest.approx(total, abs=0.01)
        assert row.nominal_seconds >= 0 <= row.borrowed_seconds
        await store.roll_up(epoch=epoch)
    assert await store.reports.violations() == ()
