"""A database server that is killed, or refuses writes, under load: nothing is lost, and Sluice recovers by itself."""

from __future__ import annotations

import asyncio

import pytest
from job_examples import is_done, job, runs


@pytest.fixture
def database_url(own_postgresql) -> str:
    """URL of a database on a server that the test may kill."""
    return own_postgresql.url("sluice_template")


@pytest.mark.costly
async def test_all_jobs_finish_after_database_server_is_killed_and_restarted(world, own_postgresql):
    await world.begin()
    for number in range(10):
        await world.submit(job(f"before-{number}", cpu="500m", seconds=30))
    await world.job("before-0", runs)
    await asyncio.to_thread(own_postgresql.kill)
    for number in range(10):
        await world.submit(job(f"meanwhile-{number}", cpu="500m", seconds=30))
    assert "the database" in str(await world.leading.health())

    await asyncio.to_thread(own_postgresql.start)
    for name in ("before", "meanwhile"):
        for number in range(10):
            await world.job(f"{name}-{number}", is_done)
            assert (await world.record(f"{name}-{number}", "finished")).outcome == "Succeeded"
    assert await world.leading.health() is None
    assert {obj["metadata"]["generation"] for obj in world.user.list("jobs")} == {2}  # each was started once


@pytest.mark.costly
async def test_read_only_database_is_reported_and_jobs_start_once_writable(world, own_postgresql):
    await world.begin()
    await world.submit(job("before"))
    await world.job("before", runs)
    switch = "ALTER SYSTEM SET default_transaction_read_only = {}"
    await asyncio.to_thread(own_postgresql.execute, switch.format("on"), "SELECT pg_reload_conf()")
    await world.submit(job("meanwhile"))

    async def told() -> bool:
        return "cannot be written" in str(await world.leading.health())

    await world.eventually(told)
    assert runs(world.user.get("jobs", "team-a", "before"))
    undo = ("SET default_transaction_read_only = off", switch.format("off"), "SELECT pg_reload_conf()")
    await asyncio.to_thread(own_postgresql.execute, *undo)
    await world.job("meanwhile", runs)
    assert await world.leading.health() is None
