"""Retention: pruning of old workloads, ledger rows and audit records, and its effect on usage reports."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import select, update
from store_examples import admission, admitted, cluster_queue, finished, workload
from usage_examples import DAY, EVER, HOUR, START, reported

from admission.store.audit_log import Author
from admission.store.database.tables import admissions, head, queue_object_versions
from admission.store.errors import StaleEpoch
from admission.store.ledger.measured_usage import Measured
from admission.store.maintenance import run_maintenance
from admission.store.records import Changes
from admission.store.retention import Retention
from admission.store.store import Store
from tests.conftest import Clock


async def aged(store: Store, clock: Clock, *, days: int = 8) -> int:
    """Commit 52 workloads, each overlapping the next a little, the last unfinished; set the clock to the end."""
    clock.now = START
    await store.queues.create(cluster_queue(cpu="10"), author=Author("ada"))
    epoch = await store.lead("test")
    each = round(days * DAY / 52, 3)
    many = [workload(str(number), user=("ada", "bob")[number % 2]) for number in range(52)]
    starts = [START + number * each for number in range(52)]
    begun = [admitted(one, admission(6_000), at=at) for one, at in zip(many, starts, strict=True)]
    ended = [finished(one, at=at + each * 1.2) for one, at in zip(many[:-1], starts[:-1], strict=True)]
    for parts in (begun, ended):
        await store.commit(combined(parts), epoch=epoch)
    clock.now = START + days * DAY + 1234.5
    return epoch


def combined(parts: list[Changes]) -> Changes:
    """Return changes of different workloads as those of one commit."""
    return Changes(
        workloads=tuple(record for part in parts for record in part.workloads),
        closed=tuple(closed for part in parts for closed in part.closed),
        opened=tuple(opened for part in parts for opened in part.opened),
    )


async def counts(store: Store) -> dict[str, int]:
    from sqlalchemy import func

    from admission.store.database.tables import audit_records, pod_sets, transitions, workloads

    async with store._database.read() as connection:
        tables = (workloads, admissions, transitions, pod_sets, audit_records)
        return {t.name: (await connection.execute(select(func.count()).select_from(t))).scalar_one() for t in tables}


@pytest.mark.costly
async def test_usage_reports_are_unchanged_after_pruning(store: Store, clock: Clock):
    epoch = await aged(store, clock, days=20)
    await store.roll_up(epoch=epoch)
    asked = [(0.0, EVER), (START + 3 * HOUR, START + 11 * DAY), (START + 16 * DAY + 17.25, START + 18 * DAY + 0.5)]
    before = [await reported(store, ["user"], *span) for span in asked]
    assert sum(row[1] for row in before[0].values()) > 0, "something was borrowed"

    pruned = await store.prune(Retention(finished=5 * DAY), epoch=epoch)

    assert pruned > 30
    assert await store.prune(Retention(finished=5 * DAY), epoch=epoch) == 0
    left = await counts(store)
    assert left["workloads"] == left["admissions"] == 52 - pruned
    assert [await reported(store, ["user"], *span) for span in asked] == before
    # Days that begin at half an hour of UTC: nothing is lost or doubled where an hour can no longer be divided.
    by_day = await store.reports.usage(["user"], start=0.0, end=EVER, period="day", zone=ZoneInfo("Asia/Kolkata"))
    total = sum(map(sum, before[0].values()))
    assert sum(row.amount_seconds for row in by_day.rows) == pytest.approx(total)


async def test_report_times_are_extended_to_full_hours_where_rows_were_pruned(store: Store, clock: Clock):
    epoch = await aged(store, clock)
    await store.roll_up(epoch=epoch)
    await store.prune(Retention(finished=2 * DAY), epoch=epoch)
    report = await store.reports.usage(["user"], start=START + HOUR + 1, end=START + 2 * HOUR + 1)
    assert (report.start, report.end) == (START + HOUR, START + 3 * HOUR)
    assert sum(row.amount_seconds for row in report.rows) == 6_000 * 2 * HOUR


async def test_usage_by_workload_starts_where_the_pruned_ledger_starts(store: Store, clock: Clock):
    epoch = await aged(store, clock)
    await store.roll_up(epoch=epoch)
    await store.prune(Retention(finished=2 * DAY), epoch=epoch)
    async with store._database.read() as connection:
        pruned_to = (await connection.execute(select(head.c.pruned_to))).scalar_one()
    report = await store.reports.usage(["workload"], start=START, end=EVER)
    assert (report.start, report.end) == (pruned_to, clock.now)
    by_user = await store.reports.usage(["user"], start=pruned_to, end=EVER)
    assert len(report.rows) > 1
    total = sum(row.amount_seconds for row in by_user.rows)
    assert sum(row.amount_seconds for row in report.rows) == pytest.approx(total)
    for step in (0.25 * HOUR, DAY):
        series = await store.usage_series(["kind"], start=START, end=EVER, step=step, where={})
        assert 0 <= series.start - pruned_to < step
        assert min(at for at, _ in series.buckets) >= series.start


async def test_series_without_a_step_begins_with_the_first_sums_where_rows_were_pruned(store: Store, clock: Clock):
    epoch = await aged(store, clock)
    before = await store.usage_series(["user"], start=0.0, end=EVER, step=None, where={})
    await store.roll_up(epoch=epoch)
    assert await store.prune(Retention(finished=2 * DAY), epoch=epoch) > 0
    after = await store.usage_series(["user"], start=0.0, end=EVER, step=None, where={})
    assert (after.start, after.end, after.step) == (before.start, before.end, before.step)


async def test_workloads_not_rolled_up_or_not_finished_are_not_pruned(store: Store, clock: Clock):
    epoch = await aged(store, clock)
    assert await store.prune(Retention(finished=0.0), epoch=epoch) == 0
    await store.roll_up(epoch=epoch)
    assert await store.prune(Retention(finished=0.0), epoch=epoch) == 51
    assert [r.workload.uid for r in (await store.load()).workloads] == ["51"]


async def test_admission_dated_into_pruned_hours_does_not_change_their_usage(store: Store, clock: Clock):
    epoch = await aged(store, clock)
    await store.roll_up(epoch=epoch)
    await store.prune(Retention(finished=2 * DAY), epoch=epoch)
    before = await reported(store, ["user"], 0.0, START + 4 * DAY)
    await store.commit(admitted(workload("x"), admission(1), at=START), epoch=epoch)
    await store.roll_up(epoch=epoch)
    assert await reported(store, ["user"], 0.0, START + 4 * DAY) == before
    async with store._database.read() as connection:
        rolled_up_to, pruned_to = (await connection.execute(select(head.c.rolled_up_to, head.c.pruned_to))).one()
    assert rolled_up_to > pruned_to


async def test_pod_sets_transitions_and_audit_records_are_pruned_too(store: Store, clock: Clock):
    from store_examples import ELABORATE_POD_SETS, pending

    from admission.store.records import Transition

    clock.now = START
    await store.queues.create(cluster_queue(), author=Author("ada"))
    epoch = await store.lead("test")
    old, new = workload("old", pod_sets=ELABORATE_POD_SETS), workload("new")
    await store.commit(admitted(old, admission(1), at=START), epoch=epoch)
    story = Changes(
        transitions=(Transition("old", START, pending(old).state), Transition("new", START, pending(new).state))
    )
    await store.commit(Changes(workloads=(pending(new),)), epoch=epoch)
    await store.commit(story, epoch=epoch)
    await store.commit(finished(old, at=START + 1), epoch=epoch)
    measured = [Measured(START, uid, "cq", "lq", "default", "cpu", 1.0, 0.5) for uid in ("old", "new")]
    await store.measured_usage.add(measured, epoch=epoch)
    clock.now = START + 10 * DAY
    await store.queues.replace(cluster_queue(cpu="1"), author=Author("ada"))
    await store.roll_up(epoch=epoch)
    assert await store.prune(Retention(finished=9 * DAY, audit=5 * DAY), epoch=epoch) == 1
    assert await counts(store) == {"workloads": 1, "admissions": 0, "transitions": 1, "pod_sets": 1, "audit_records": 1}
    sums = await store.measured_usage.sums(["workload"], start=0, end=clock.now, where={})
    assert sums == {(new.name,): (1.0, 0.5)}
    assert len(await store.queues.versions("ClusterQueue", "cq")) == 2


@pytest.mark.long
async def test_many_workloads_are_pruned_in_several_transactions(store: Store, clock: Clock):
    epoch = await store.lead("test")
    many = [workload(str(number)) for number in range(1_200)]
    for build in (lambda one: admitted(one, admission(1), at=START), lambda one: finished(one, at=START + 1)):
        await store.commit(combined([build(one) for one in many]), epoch=epoch)
    clock.now = START + 2 * DAY
    await store.roll_up(epoch=epoch)
    before = store.statistics.write_transactions
    assert await store.prune(Retention(finished=DAY), epoch=epoch) == 1_200
    assert store.statistics.write_transactions - before >= 3
    assert (await counts(store))["workloads"] == 0


async def test_pruning_by_a_deposed_leader_is_rejected(store: Store, clock: Clock):
    epoch = await aged(store, clock)
    await store.roll_up(epoch=epoch)
    await store.lead("another")
    with pytest.raises(StaleEpoch):
        await store.prune(Retention(finished=0.0), epoch=epoch)


async def test_maintenance_prunes_until_the_leader_is_deposed(store: Store, clock: Clock):
    epoch = await aged(store, clock)
    periods: list[float] = []

    async def sleep(seconds: float) -> None:
        periods.append(seconds)
        clock.advance(seconds)
        if len(periods) == 3:
            await store.lead("another")

    with pytest.raises(StaleEpoch):
        await run_maintenance(store, lambda: Retention(finished=2 * DAY), epoch=epoch, sleep=sleep)
    assert len(periods) == 3
    assert (await counts(store))["workloads"] < 20


async def test_version_of_a_queue_object_that_cannot_be_read_does_not_end_maintenance(store, clock, caplog):
    epoch = await aged(store, clock)
    async with store._database.write() as connection:
        await connection.execute(update(queue_object_versions).values(content={}))
    periods: list[float] = []

    async def sleep(seconds: float) -> None:
        periods.append(seconds)
        if len(periods) == 2:
            await store.lead("another")

    with pytest.raises(StaleEpoch):
        await run_maintenance(store, lambda: Retention(finished=2 * DAY), epoch=epoch, sleep=sleep)
    assert len(periods) == 2
    assert "KeyError: 'spec'" in caplog.text
