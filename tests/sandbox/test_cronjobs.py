"""CronJobs in the sandbox: schedules, concurrency policies, suspension and history limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from admission.sandbox import Sandbox
from admission.sandbox.apiserver.errors import ApiError
from admission.sandbox.clock import Clock
from admission.sandbox.controllers import RUN_SECONDS
from admission.sandbox.local import LocalClient
from admission.sandbox.schedules import InvalidSchedule, parse_schedule

Object = dict[str, Any]

pytestmark = pytest.mark.virtual_time


@asynccontextmanager
async def cluster() -> AsyncIterator[LocalClient]:
    async with Sandbox(clock=Clock(200, monotonic=asyncio.get_running_loop().time)) as sandbox:
        admin = sandbox.local("admin")
        room = {"cpu": "64", "memory": "64Gi", "pods": "110"}
        metadata = {"name": "node", "annotations": {"kwok.x-k8s.io/node": "fake"}}
        await admin.create("nodes", "", {"metadata": metadata, "status": {"allocatable": room, "capacity": room}})
        yield admin


def cronjob(*, run: str = "1", **spec: Any) -> Object:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "v1"}]}
    template = {"metadata": {"annotations": {RUN_SECONDS: run}}, "spec": pod}
    labels = {"sluice.dev/queue-name": "q"}
    job = {"metadata": {"labels": labels}, "spec": {"template": template}}
    return {"metadata": {"name": "c"}, "spec": {"schedule": "* * * * *", "jobTemplate": job, **spec}}


async def until(admin: LocalClient, holds: Callable[[list[Object]], bool]) -> list[Object]:
    """Wait until `holds` returns True for the Jobs, oldest first; return them."""
    with closing(admin.watch("jobs", "cronjobs")) as watcher:
        async for _ in watcher:
            jobs = sorted(admin.list("jobs", "default"), key=lambda job: job["metadata"]["name"])
            if holds(jobs):
                return jobs
    raise AssertionError("the watch has ended")


def status(admin: LocalClient) -> Object:
    found = admin.get("cronjobs", "default", "c")
    assert found is not None
    shown: Object = found["status"]
    return shown


async def test_cronjob_creates_labelled_jobs_each_minute_and_deletes_old_ones() -> None:
    async with cluster() as admin:
        await admin.create("cronjobs", "default", cronjob(successfulJobsHistoryLimit=1))
        first = (await until(admin, lambda jobs: len(jobs) == 1))[0]
        jobs = await until(admin, lambda jobs: bool(jobs) and jobs[0]["metadata"]["name"] != first["metadata"]["name"])

    assert first["metadata"]["labels"] == {"sluice.dev/queue-name": "q"}
    assert first["metadata"]["ownerReferences"][0]["kind"] == "CronJob"
    assert first["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"].endswith(":00Z")
    minutes = [int(job["metadata"]["name"].removeprefix("c-")) for job in (first, jobs[0])]
    assert minutes[1] > minutes[0]


async def test_concurrency_policy_forbid_waits_for_the_running_job() -> None:
    async with cluster() as admin:
        await admin.create("cronjobs", "default", cronjob(run="150", concurrencyPolicy="Forbid"))
        jobs = await until(admin, lambda jobs: len(jobs) == 2)

    ended, began = jobs[0]["status"]["completionTime"], jobs[1]["metadata"]["creationTimestamp"]
    assert ended <= began


async def test_concurrency_policy_replace_deletes_the_running_job() -> None:
    async with cluster() as admin:
        await admin.create("cronjobs", "default", cronjob(run="6000", concurrencyPolicy="Replace"))
        first = (await until(admin, lambda jobs: len(jobs) == 1))[0]["metadata"]["name"]
        jobs = await until(admin, lambda jobs: [job["metadata"]["name"] for job in jobs] not in ([first], []))

    assert first not in [job["metadata"]["name"] for job in jobs]


async def test_suspended_cronjob_creates_no_job_until_resumed() -> None:
    async with cluster() as admin:
        await admin.create("cronjobs", "default", cronjob(suspend=True))
        witness = cronjob()
        witness["metadata"]["name"] = "witness"
        await admin.create("cronjobs", "default", witness)
        before = await until(admin, lambda jobs: len(jobs) == 2)
        await admin.patch("cronjobs", "default", "c", {"spec": {"suspend": False}})
        await until(admin, lambda jobs: any(job["metadata"]["name"].startswith("c-") for job in jobs))
        await until(admin, lambda jobs: "lastSuccessfulTime" in status(admin))

    assert {job["metadata"]["ownerReferences"][0]["name"] for job in before} == {"witness"}


async def test_invalid_schedule_and_time_zone_are_rejected() -> None:
    async with cluster() as admin:
        with pytest.raises(ApiError) as refused:
            await admin.create("cronjobs", "default", cronjob(schedule="* * * *", timeZone="Mars/Olympus"))

    wrong = 'spec.schedule: Invalid value: "* * * *": expected exactly 5 fields, found 4: * * * *'
    unknown = 'spec.timeZone: Invalid value: "Mars/Olympus": unknown time zone Mars/Olympus'
    assert str(refused.value) == f'CronJob.batch "c" is invalid: [{wrong}, {unknown}]'


@pytest.mark.parametrize(
    ("schedule", "after", "due"),
    [
        ("* * * * *", "2026-01-31T23:59:30", "2026-02-01T00:00:00"),
        ("*/15 8-9 * * *", "2026-01-01T09:45:00", "2026-01-02T08:00:00"),
        ("30 6 29 feb *", "2026-01-01T00:00:00", "2028-02-29T06:30:00"),
        ("0 0 13 * fri", "2026-11-22T00:00:00", "2026-11-27T00:00:00"),
        ("0 0 * * 7", "2026-11-22T00:00:00", "2026-11-29T00:00:00"),
        ("5,50 0 1 */6 ?", "2026-01-01T00:05:00", "2026-01-01T00:50:00"),
        ("@monthly", "2026-01-01T00:00:00", "2026-02-01T00:00:00"),
    ],
)
def test_schedule_computes_its_next_due_time(schedule: str, after: str, due: str) -> None:
    zone = ZoneInfo("UTC")
    found = parse_schedule(schedule).next_after(datetime.fromisoformat(after).replace(tzinfo=zone).timestamp(), zone)
    assert found == datetime.fromisoformat(due).replace(tzinfo=zone).timestamp()


def test_schedule_uses_its_time_zone_and_impossible_date_is_never_due() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    start = datetime(2026, 7, 1, 12, tzinfo=berlin).timestamp()
    assert parse_schedule("0 13 * * *").next_after(start, berlin) == start + 3600
    assert parse_schedule("0 0 30 2 *").next_after(start) is None


@pytest.mark.parametrize("text", ["", "* * * *", "60 * * * *", "* * 0 * *", "x * * * *", "*/0 * * * *", "5-1 * * * *"])
def test_parsing_an_invalid_schedule_raises_invalid_schedule(text: str) -> None:
    with pytest.raises(InvalidSchedule):
        parse_schedule(text)
