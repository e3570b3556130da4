"""The database goes away for a moment: what is decided afterwards follows from what was really written."""

from __future__ import annotations

import asyncio

import pytest
from job_examples import cluster_queue, flavor, job, local_queue, runs


@pytest.fixture
def database_kind() -> str:
    """Only PostgreSQL can lose a connection."""
    return "postgresql"


async def test_commits_of_unknown_outcome_lose_nothing_and_double_nothing(world, postgresql):
    await world.apply(flavor(), cluster_queue(), local_queue())
    await world.start()
    database = world.url.rpartition("/")[2]
    cut = (
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}' AND query LIKE '%INSERT%'"
    )
    for number in range(12):
        await world.submit(job(f"j{number}", cpu="500m"))
        await asyncio.to_thread(postgresql.execute, cut)

    for number in range(8):
        await world.job(f"j{number}", runs)
    for number in range(8, 12):
        await world.record(f"j{number}", "pending", reason="WaitingForQuota")
    status = (await world.store.workloads.cluster_queue_status())["cq"]
    assert status.usage == {("default", "cpu"): 4000}
    assert status.reserving == 8
