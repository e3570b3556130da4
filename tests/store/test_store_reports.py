"""Usage reports from roll-ups and ledger, compared with sums over the ledger alone."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import shutil
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import pytest_asyncio
from sqlalchemy import select
from store_examples import admission, admitted, cluster_queue, finished, workload
from usage_examples import DAY, EVER, HOUR, START, busy_days, close, from_the_ledger, read_ledger, reported

from admission.model.topology import DomainCount, TopologyAssignment
from admission.model.workload import Admission, PodSetAssignment
from admission.store.audit_log import Author
from admission.store.database.tables import admissions, head, usage_days, usage_rollups
from admission.store.ledger import rollup
from admission.store.ledger.usage_reports import GROUPINGS
from admission.store.records import Changes, Closed, Resized
from admission.store.store import Store
from tests.conftest import Clock

on_shared_days = pytest.mark.asyncio(loop_scope="module")
"""Mark for tests that only read `shared_days`."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((kind, state), marks=marks, id=f"{kind}-{state}")
        for kind, marks in (("sqlite", ()), ("postgresql", pytest.mark.postgres))
        for state in ("partly-rolled-up", "rolled-up")
    ],
)
def shared_database(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, bool]]:
    """URL of a database, and whether all is to be rolled up in it."""
    kind, state = request.param
    if kind == "sqlite":
        template: Path = request.getfixturevalue("sqlite_template")
        yield (
            f"sqlite:///{shutil.copyfile(template, tmp_path_factory.mktemp('days') / 'sluice.db')}",
            state == "rolled-up",
        )
    else:
        with request.getfixturevalue("migrated_databases").one() as url:
            yield url, state == "rolled-up"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared_days(shared_database: tuple[str, bool], shared_clock: Clock) -> AsyncIterator[tuple[Store, Clock]]:
    """Store with busy days, for tests that only read, and its clock."""
    url, rolled_up = shared_database
    async with Store.open(url, clock=shared_clock, elapsed=shared_clock) as store:
        epoch = await busy_days(store, shared_clock, random.Random(int(rolled_up)))
        if rolled_up:
            await store.roll_up(epoch=epoch)
        yield store, shared_clock


@pytest.mark.costly
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 4))])
async def test_usage_reports_equal_sums_over_the_ledger(store: Store, clock: Clock, seed: int):
    chance = random.Random(seed)
    epoch = await busy_days(store, clock, chance)
    ledger = await read_ledger(store)
    for _ in range(2):
        for _ in range(15):
            start, end = sorted(START + chance.random() * (clock.now - START) for _ in range(2))
            start, end = (round(at / HOUR) * HOUR if chance.random() < 0.3 else at for at in (start, end))
            by = chance.sample(list(GROUPINGS), chance.randrange(1, 4))
            assert close(await reported(store, by, start, end), from_the_ledger(ledger, by, start, end)), (start, end)
            covered = await store.reports.usage(by, start=start, end=end)
            assert (covered.start, covered.end) == (start, end)
        await store.roll_up(epoch=epoch)
    assert close(await reported(store, ["user"], 0.0, EVER), from_the_ledger(ledger, ["user"], 0.0, clock.now))


@pytest.mark.costly
@pytest.mark.parametrize(("seed", "zone"), [(0, UTC), (2, ZoneInfo("Europe/Berlin")), (1, ZoneInfo("Asia/Kolkata"))])
async def test_usage_by_day_and_month_equals_sums_over_the_ledger(store: Store, clock: Clock, seed: int, zone: tzinfo):
    """A month begins in the middle of the reported time, part of which has been rolled up."""
    chance = random.Random(seed)
    october = datetime(2024, 10, 30, tzinfo=zone).timestamp()
    await busy_days(store, clock, chance, october)
    start, end = october + 0.3 * DAY, clock.now
    midnights = (october + number * DAY for number in range(1, 9))
    bounds = [start, *(at for at in midnights if start < at < end), end]
    by_day = await store.reports.usage(["user"], start=start, end=end, period="day", zone=zone)
    expected: dict[tuple[Any, ...], tuple[float, float]] = {}
    ledger = await read_ledger(store)
    for begins, ends in itertools.pairwise(bounds):
        day = f"{datetime.fromtimestamp(begins, zone):%Y-%m-%d}"
        found = from_the_ledger(ledger, ["user"], begins, ends)
        expected |= {(day, *key): seconds for key, seconds in found.items()}
    found = {tuple(row.group.values()): (row.nominal_seconds, row.borrowed_seconds) for row in by_day.rows}
    assert close(found, expected)
    assert len({row.group["period"] for row in by_day.rows}) > 2

    by_month = await store.reports.usage(["user"], start=start, end=end, period="month", zone=zone)
    assert {row.group["period"] for row in by_month.rows} == {"2024-10", "2024-11"}
    totals: defaultdict[tuple[Any, ...], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for (day, *key), seconds in expected.items():
        for place, amount in enumerate(seconds):
            totals[day[:7], *key][place] += amount
    found = {tuple(row.group.values()): (row.nominal_seconds, row.borrowed_seconds) for row in by_month.rows}
    assert close(found, {key: (a, b) for key, (a, b) in totals.items()})


@on_shared_days
@pytest.mark.parametrize("step", [0.25 * HOUR, HOUR, 5 * HOUR, DAY, 2 * DAY])
async def test_buckets_of_a_usage_series_equal_sums_over_the_ledger(shared_days: tuple[Store, Clock], step: float):
    store, clock = shared_days
    start, end = START + 0.4 * DAY, clock.now
    series = await store.usage_series(["user"], start=start, end=EVER, step=step, where={"local_queue": {"main"}})
    parts = dict(series.buckets)
    first = math.floor(start / step) * step
    assert (series.start, series.end) == (first, end)
    asked = [first + number * step for number in range(math.ceil((end - first) / step))]
    assert parts.keys() <= set(asked)
    ledger = await read_ledger(store)
    for begins in random.Random(int(step)).sample(asked, min(len(asked), 12)):
        ends = min(begins + step, end)
        expected = from_the_ledger(ledger, ["user", "queue"], begins, ends)
        expected = {(user, kind): used for (user, _, queue, kind), used in expected.items() if queue == "main"}
        found = {
            tuple(row.group.values()): (row.nominal_seconds, row.borrowed_seconds) for row in parts.get(begins, ())
        }
        assert close(found, expected), begins


@on_shared_days
async def test_series_without_a_step_begins_with_the_first_usage(shared_days: tuple[Store, Clock]):
    """So that a chart of the first days has no empty part, and their average is no average over an empty time."""
    store, clock = shared_days
    begins = min(row.begins for row in (await read_ledger(store)).held) / 1_000_000
    for start, step in ((begins - 300 * DAY, HOUR), (clock.now - 90 * 60.0, 300.0), (clock.now - HOUR * 24, HOUR)):
        series = await store.usage_series(["user"], start=start, end=EVER, step=None, where={})
        assert (series.start, series.step) == (math.floor(max(start, begins) / step) * step, step)
        assert series == await store.usage_series(["user"], start=series.start, end=EVER, step=step, where={})


@on_shared_days
async def test_usage_series_of_workloads_adds_up_to_that_of_their_queues(shared_days: tuple[Store, Clock]):
    """Series of queues are read from hourly and daily sums, those of workloads from the ledger."""
    store, _ = shared_days
    window = {"start": START, "end": EVER, "step": DAY, "where": {"cluster_queue": {"cq"}}}
    expected = await store.usage_series(["queue"], **window)
    by_cluster = ["cluster", "queue"], {"cluster": {"local"}}
    for by, where in ((["workload", "queue"], {}), (["queue"], {"kind": {"Job", "RayJob"}}), by_cluster):
        found = await store.usage_series(by, **window | {"where": window["where"] | where})
        assert (found.start, found.end) == (expected.start, expected.end)
        assert [at for at, _ in found.buckets] == [at for at, _ in expected.buckets]
        for (_, rows), (_, wanted) in zip(found.buckets, expected.buckets, strict=True):
            sums: defaultdict[tuple[Any, ...], list[float]] = defaultdict(lambda: [0.0, 0.0])
            for row in rows:
                seconds = sums[tuple(row.group[name] for name in ("namespace", "local_queue", "resource"))]
                seconds[0] += row.nominal_seconds
                seconds[1] += row.borrowed_seconds
            assert close(
                {key: (a, b) for key, (a, b) in sums.items()},
                {tuple(row.group.values()): (row.nominal_seconds, row.borrowed_seconds) for row in wanted},
            )
    rays = await store.usage_series(["kind"], **window | {"where": {"kind": {"RayJob"}}})
    assert {row.group["kind"] for _, rows in rays.buckets for row in rows} == {"RayJob"}


@on_shared_days
async def test_filtered_report_equals_its_part_of_the_unfiltered_report(shared_days: tuple[Store, Clock]):
    store, _ = shared_days
    everything = await reported(store, ["user", "queue", "flavor"], 0.0, EVER)
    where = {"submitted_by": {"ada"}, "flavor": {"spot", "absent"}, "local_queue": {"main"}}
    report = await store.reports.usage(["user", "queue", "flavor"], start=0.0, end=EVER, where=where)
    found = {tuple(row.group.values()): (row.nominal_seconds, row.borrowed_seconds) for row in report.rows}
    assert found
    assert close(
        found, {key: part for key, part in everything.items() if (key[0], key[2], key[3]) == ("ada", "main", "spot")}
    )
    nobody = await store.reports.usage(["user"], start=0.0, end=EVER, where={"namespace": {"team-x"}})
    assert nobody.rows == ()


async def test_report_separates_nominal_from_borrowed_usage(store: Store, clock: Clock):
    clock.now = START
    await store.queues.create(cluster_queue(cpu="10"), author=Author("ada"))
    epoch = await store.lead("test")
    first, second = workload("1", user="ada"), workload("2", user="bob", namespace="team-b", priority=7)
    await store.commit(admitted(first, admission(8_000), at=START + 600), epoch=epoch)
    await store.commit(admitted(second, admission(6_000), at=START + 600.5), epoch=epoch)
    clock.now = START + 1200
    await store.queues.replace(cluster_queue(cpu="6"), author=Author("ada"))
    clock.now = START + 1800
    await store.commit(finished(first, at=START + 1800), epoch=epoch)
    clock.now = START + 3000
    report = await store.reports.usage(["queue", "user", "priority"], start=START, end=EVER)
    assert (report.start, report.end) == (START, START + 3000)
    ada, bob = report.rows
    common = {"resource": "cpu", "local_queue": "main"}
    assert ada.group == common | {"namespace": "team-a", "submitted_by": "ada", "priority": 0}
    assert (ada.nominal_seconds, ada.borrowed_seconds) == (8_000 * 600 + 6_000 * 600, 2_000 * 600)
    assert bob.group == common | {"namespace": "team-b", "submitted_by": "bob", "priority": 7}
    assert bob.nominal_seconds == 2_000 * 599.5 + 6_000 * 1200
    assert bob.borrowed_seconds == 4_000 * 599.5 + 6_000 * 600
    assert bob.amount_seconds == bob.nominal_seconds + bob.borrowed_seconds == 6_000 * 2399.5


async def test_resized_admission_keeps_its_precedence_over_later_admissions(store: Store, clock: Clock):
    """A smaller admission releases quota, and still uses nominal quota before later admissions do."""
    clock.now = START
    await store.queues.create(cluster_queue(cpu="5"), author=Author("ada"))
    epoch = await store.lead("test")
    first, second = workload("1", user="ada"), workload("2", user="bob")
    await store.commit(admitted(first, admission(5_000), at=START), epoch=epoch)
    await store.commit(admitted(second, admission(4_000), at=START + 10), epoch=epoch)
    await store.commit(Changes(resized=(Resized(first, admission(2_000), START + 100),)), epoch=epoch)
    await store.commit(Changes(resized=(Resized(first, admission(1_000), START + 200),)), epoch=epoch)
    clock.now = START + 300
    rows = (await store.reports.usage(["user"], start=START, end=EVER)).rows
    ada, bob = ((row.nominal_seconds, row.borrowed_seconds) for row in rows)
    assert ada == (5_000 * 100 + 2_000 * 100 + 1_000 * 100, 0)
    assert bob == (3_000 * 100 + 4_000 * 100, 4_000 * 90 + 1_000 * 100)
    async with store._database.read() as connection:
        columns = admissions.c.amount, admissions.c.from_at, admissions.c.to_at, admissions.c.end_reason
        ledger = (await connection.execute(select(*columns).where(admissions.c.workload_uid == "1"))).all()
    assert [tuple(row) for row in ledger] == [
        (5_000, START, START + 100, "Resized"),
        (2_000, START + 100, START + 200, "Resized"),
        (1_000, START + 200, None, None),
    ]
    assert {r.workload.uid: r.admission for r in (await store.load()).workloads}["1"] == admission(1_000)


async def test_resize_of_a_closed_admission_is_ignored(store: Store, clock: Clock):
    epoch = await store.lead("test")
    one = workload("1")
    await store.commit(admitted(one, admission(5), at=START), epoch=epoch)
    over = Changes(closed=(Closed("1", START + 1, "Finished"),), resized=(Resized(one, admission(3), START + 1),))
    await store.commit(over, epoch=epoch)
    clock.now = START + 10
    (row,) = (await store.reports.usage(["user"], start=0.0, end=EVER)).rows
    assert row.amount_seconds == 5


async def test_resize_after_the_clock_was_set_back_leaves_no_gap(store: Store, clock: Clock):
    epoch = await store.lead("test")
    one = workload("1")
    await store.commit(admitted(one, admission(5), at=START), epoch=epoch)
    await store.commit(Changes(resized=(Resized(one, admission(3), START - 1000),)), epoch=epoch)
    clock.now = START + 10
    (row,) = (await store.reports.usage(["user"], start=0.0, end=EVER)).rows
    assert row.amount_seconds == 30


@pytest.mark.costly
async def test_late_commits_are_reported_at_once_and_rolled_up_later(store: Store, clock: Clock):
    """After an outage or with a clock that was set back, commits fall into hours that are rolled up already."""
    epoch = await store.lead("test")
    one, other = workload("1"), workload("2")
    await store.commit(admitted(one, admission(10), at=START + 60), epoch=epoch)
    clock.now = START + 30 * HOUR
    assert await store.roll_up(epoch=epoch) == 29
    await store.commit(finished(one, at=START + 2.5 * HOUR), epoch=epoch)
    await store.commit(admitted(other, admission(1), at=START + 3.5 * HOUR), epoch=epoch)
    expected = {(0, 10 * (HOUR - 60)), (1, 10 * HOUR), (2, 10 * HOUR / 2)}
    expected |= {(3, HOUR / 2)} | {(hour, HOUR) for hour in range(4, 29)}
    for _ in range(2):
        for hour, amount in expected:
            (row,) = (
                await store.reports.usage(["user"], start=START + hour * HOUR, end=START + (hour + 1) * HOUR)
            ).rows
            assert row.amount_seconds == amount, hour
        await store.roll_up(epoch=epoch)
    async with store._database.read() as connection:
        sums = await connection.execute(select(usage_rollups.c.hour, usage_rollups.c.amount_seconds))
        assert {((at - START) / HOUR, amount) for at, amount in sums} == expected
        days = (await connection.execute(select(usage_days.c.day, usage_days.c.amount_seconds))).all()
    assert [tuple(day) for day in days] == [(START, sum(amount for hour, amount in expected if hour < 24))]


async def test_quota_written_late_counts_from_its_timestamp(store: Store, clock: Clock):
    """A replica whose clock is behind writes the quota."""
    clock.now = START
    await store.queues.create(cluster_queue(cpu="10"), author=Author("ada"))
    epoch = await store.lead("test")
    await store.commit(admitted(workload("1"), admission(10_000), at=START), epoch=epoch)
    clock.now = START + 3 * HOUR
    await store.roll_up(epoch=epoch)
    clock.now = START + HOUR
    await store.queues.replace(cluster_queue(cpu="4"), author=Author("ada"))
    clock.now = START + 3 * HOUR
    await store.roll_up(epoch=epoch)
    (row,) = (await store.reports.usage(["user"], start=START, end=START + 2 * HOUR)).rows
    assert (row.nominal_seconds, row.borrowed_seconds) == (14_000 * HOUR, 6_000 * HOUR)


async def test_roll_up_of_an_hour_that_changed_meanwhile_is_not_written(store: Store, clock: Clock):
    epoch = await store.lead("test")
    before = await store.commit(admitted(workload("1"), admission(1), at=START), epoch=epoch)
    database = store._database

    async def written(revision: int) -> bool:
        return await rollup._write(database, START, START + HOUR, [], revision=revision, epoch=epoch)

    revision = await store.commit(admitted(workload("2"), admission(1), at=START + 10), epoch=epoch)
    assert not await written(before), "an admission began in it"
    await store.commit(finished(workload("2"), at=START + 20), epoch=epoch)
    assert not await written(revision), "one ended in it"
    clock.now = START + 30
    revision = (await store.queues.create(cluster_queue(), author=Author("ada"))).metadata.resource_version
    assert not await written(int(revision) - 1), "quota changed in it"
    await store.commit(finished(workload("1"), at=START + HOUR), epoch=epoch)
    await store.commit(admitted(workload("3"), admission(1), at=START + HOUR), epoch=epoch)
    assert await written(int(revision)), "all that happened after it is of no consequence"
    assert not await written(int(revision)), "it is done"


async def test_roll_up_counts_a_quota_that_is_written_while_it_sums_up_earlier_days(store: Store, clock: Clock):
    clock.now = START
    await store.queues.create(cluster_queue(cpu="10"), author=Author("ada"))
    epoch = await store.lead("test")
    await store.commit(admitted(workload("1"), admission(10_000), at=START), epoch=epoch)

    clock.now = START + 6 * DAY
    rolling = asyncio.create_task(rollup.roll_up(store._database, now=START + 10 * DAY, epoch=epoch))
    while await rolled_up_to(store) is None:
        pass
    await store.queues.replace(cluster_queue(cpu="4"), author=Author("ada"))
    await rolling
    clock.now = START + 10 * DAY
    (row,) = (await store.reports.usage(["user"], start=START, end=START + 8 * DAY)).rows
    assert (row.nominal_seconds, row.borrowed_seconds) == ((10_000 * 6 + 4_000 * 2) * DAY, 6_000 * 2 * DAY)


async def rolled_up_to(store: Store) -> float | None:
    async with store._database.read() as connection:
        found: float | None = await connection.scalar(select(head.c.rolled_up_to))
    return found


async def test_usage_by_the_levels_of_a_topology_adds_up(store: Store, clock: Clock):
    clock.now = START
    epoch = await store.lead("test")
    domains = (DomainCount(("r1", "n1"), 2), DomainCount(("r1", "n2"), 1), DomainCount(("r2", "n3"), 1))
    placed = TopologyAssignment(("rack", "kubernetes.io/hostname"), domains)
    by_rack = TopologyAssignment(("rack",), (DomainCount(("r2",), 3),))
    sets = (
        PodSetAssignment("workers", {"gpu": "a", "cpu": "a"}, {"gpu": 32, "cpu": 7}, 4, placed),
        PodSetAssignment("driver", {"gpu": "a"}, {"gpu": 3}, 3, by_rack),
    )
    await store.commit(admitted(workload("1"), Admission("cq", sets), at=START), epoch=epoch)
    await store.commit(admitted(workload("2"), admission(500), at=START + 50), epoch=epoch)
    clock.now = START + 100
    levels = "level:rack", "level:kubernetes.io/hostname"
    racks = await store.reports.usage(levels[:1], start=START, end=EVER)
    found = {(*row.group.values(),): row.amount_seconds for row in racks.rows}
    assert found == {
        ("", "cpu"): 25_000,
        ("r1", "cpu"): 500,
        ("r2", "cpu"): 200,
        ("r1", "gpu"): 2400,
        ("r2", "gpu"): 1100,
    }
    nodes = await store.reports.usage(["user", *levels], start=START, end=EVER, where={"resource": {"gpu"}})
    amounts = {(*row.group.values(),)[1:3]: row.amount_seconds for row in nodes.rows}
    assert amounts == {("r1", "n1"): 1600, ("r1", "n2"): 800, ("r2", "n3"): 800, ("r2", ""): 300}
    series = await store.usage_series(levels[:1], start=START, end=START + 100, step=50.0, where={"resource": {"gpu"}})
    assert [[row.amount_seconds for row in rows] for _, rows in series.buckets] == [[1200, 550], [1200, 550]]


async def test_places_after_two_changes_in_one_commit_are_the_last_ones(store: Store, clock: Clock):
    clock.now = START
    epoch = await store.lead("test")

    def placed(cpu: int, **pods: int) -> Admission:
        domains = tuple(DomainCount((name,), count) for name, count in pods.items())
        places = TopologyAssignment(("kubernetes.io/hostname",), domains)
        assigned = PodSetAssignment("workers", {"cpu": "a"}, {"cpu": cpu}, sum(pods.values()), places)
        return Admission("cq", (assigned,))

    await store.commit(admitted(workload("1"), placed(400, n1=2, n2=2), at=START), epoch=epoch)
    for at, end in ((START + 10, {"n2": 1}), (START + 20, {"n1": 1})):
        sizes = [placed(100, n1=2, n2=2), placed(100, **end)]
        changes = tuple(Resized(workload("1"), size, at, "Reclaimed") for size in sizes)
        await store.commit(Changes(resized=changes), epoch=epoch)
    clock.now = START + 30
    stays = {
        node: [
            (stay.pods, stay.start - START, None if stay.end is None else stay.end - START)
            for stay in await store.reports.stays(node, start=START, end=EVER)
        ]
        for node in ("n1", "n2")
    }
    assert stays == {"n1": [(2, 0, 10), (1, 20, None)], "n2": [(2, 0, 10), (1, 10, 20)]}
    rows = (await store.reports.usage(["level:kubernetes.io/hostname"], start=START, end=EVER)).rows
    assert {row.group["level:kubernetes.io/hostname"]: row.amount_seconds for row in rows} == {"n1": 3000, "n2": 3000}
