"""Short database outages: decisions after an outage follow from the committed state."""

from __future__ import annotations

import asyncio

import pytest
from job_examples import is_done, job, runs


@pytest.fixture
def database_kind() -> str:
    """PostgreSQL: SQLite has no connections to lose."""
    return "postgresql"


@pytest.mark.costly
async def test_commits_of_unknown_outcome_neither_lose_nor_duplicate_jobs(world, postgresql):
    await world.begin()
    for number in range(12):
        await world.submit(job(f"j{number}", cpu="500m"))
        await cut(world, postgresql)

    async def settled() -> bool:
        running = [obj for obj in world.user.list("jobs") if runs(obj)]
        records = (await world.store.workloads.list()).workloads
        waiting = [record for record in records if (record.state, record.reason) == ("pending", "WaitingForQuota")]
        return (len(running), len(waiting), len(records)) == (8, 4, 12)

    await world.eventually(settled)
    status = (await world.store.workloads.cluster_queue_status())["cq"]
    assert status.usage == {("default", "cpu"): 4000}
    assert status.reserving == 8


@pytest.mark.costly
async def test_jobs_finished_during_failing_commits_are_recorded_as_succeeded(world, postgresql):
    await world.begin()
    for number in range(8):
        await world.submit(job(f"j{number}", cpu="500m", seconds=30))
    for number in range(8):
        await cut(world, postgresql)
        await world.job(f"j{number}", is_done)
        await cut(world, postgresql)

    for number in range(8):
        assert (await world.record(f"j{number}", "finished")).outcome == "Succeeded"
    assert "cq" not in await world.store.workloads.cluster_queue_status()


async def cut(world, postgresql) -> None:
    """Terminate the database connections whose last statement was an INSERT."""
    database = world.url.rpartition("/")[2]
    sessions = f"FROM pg_stat_activity WHERE datname = '{database}' AND query LIKE '%INSERT%'"
    await asyncio.to_thread(postgresql.execute, f"SELECT pg_terminate_backend(pid) {sessions}")
