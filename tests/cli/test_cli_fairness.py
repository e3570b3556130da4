"""`sluice report fairness`: shares and loans as tables, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping

import pytest
from command_runner import Sluice

from admission.model.workload import Admission, PodSet, PodSetAssignment, Workload
from admission.store.records import Changes, Closed, Opened, State, WorkloadRecord
from admission.store.store import Store
from tests.conftest import Clock
from tests.queue_objects import cluster_queue, create_objects

HOUR = 3600.0
NOW = 480_000 * HOUR
GPU = "nvidia.com/gpu"


async def lend(store: Store, clock: Clock, lenders: Mapping[str, int]) -> None:
    clock.now = NOW
    epoch = await store.lead("test")
    for name, gpus in {"ml": 4, **lenders}.items():
        await create_objects(store, cluster_queue(name, quotas={"h100": {GPU: gpus}}, cohortName="all"))
    workload = Workload("1", "a", "train", "main", 0, NOW, (PodSet("main", 1, {GPU: 6}),))
    holds = Admission("ml", (PodSetAssignment("main", {GPU: "h100"}, {GPU: 6}, 1),))
    record = WorkloadRecord(workload, State.FINISHED, NOW, finished_at=NOW + 2 * HOUR)
    await store.commit(Changes(workloads=(record,), opened=(Opened(workload, holds, NOW),)), epoch=epoch)
    await store.commit(Changes(closed=(Closed("1", NOW + 2 * HOUR, "Finished"),)), epoch=epoch)
    clock.now = NOW + 3 * HOUR


@pytest.fixture
async def lent(store: Store, clock: Clock) -> None:
    await lend(store, clock, {"vision": 8})


@pytest.mark.usefixtures("lent")
async def test_shares_and_loans_are_printed_in_hours(sluice: Sluice):
    done = await sluice("report", "fairness", "--from", "3h")
    assert done.exit_code == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()[2:]]
    assert lines == [
        ["ml", "all", GPU, "12.00", "12.00", "12.00", "12.00", "4.00", "0.00", "100%"],
        ["vision", "all", GPU, "24.00", "0.00", "0.00", "0.00", "0.00", "4.00", "-"],
    ]
    done = await sluice("report", "fairness", "--from", "3h", "--loans")
    assert done.stdout.splitlines()[1:] == ["LENDER  RESOURCE          ml", f"vision  {GPU}  4.00"]


async def test_what_others_than_the_largest_lent_is_one_row(sluice: Sluice, store: Store, clock: Clock):
    await lend(store, clock, {"vision": 41, **{f"q-{n:02}": 1 for n in range(59)}})
    done = await sluice("report", "fairness", "--from", "3h", "--loans", "-o", "csv")
    assert done.exit_code == 0, done.stderr
    header, *rows = csv.reader(io.StringIO(done.stdout))
    assert header == ["LENDER", "RESOURCE", "ml"]
    # For two hours, 2 GPUs of 100.
    assert [(lender, lent) for lender, _, lent in rows[:2]] == [("(others)", "0.40"), ("q-00", "0.04")]
    assert (len(rows), rows[-1][0], rows[-1][2]) == (51, "vision", "1.64")


@pytest.mark.usefixtures("lent")
async def test_csv_and_json_have_the_same_and_filters_apply(sluice: Sluice):
    done = await sluice("report", "fairness", "--from", "3h", "-o", "csv")
    ml, _ = csv.DictReader(io.StringIO(done.stdout))
    assert (ml["CLUSTERQUEUE"], ml["RECEIVED"]) == ("ml", "12.00")
    report = json.loads((await sluice("report", "fairness", "--from", "3h", "-o", "json")).stdout)
    assert report["items"][0]["borrowedSeconds"] == 4 * HOUR
    (loan,) = report["loans"]
    assert (loan["lender"], loan["borrower"], loan["amountSeconds"]) == ("vision", "ml", 4 * HOUR)
    done = await sluice("report", "fairness", "--from", "3h", "--resource", "cpu")
    assert "no quota, and no demand" in done.stdout
    done = await sluice("report", "fairness", "--from", "3h", "--cohort", "other", "--loans")
    assert "nothing was lent" in done.stdout
    assert (await sluice("report", "fairness", "--from", "3h", "--month", "this")).exit_code == 2
