"""`sluice get --watch` as a process: first the existing objects, then each change, until a signal ends it."""

from __future__ import annotations

import asyncio
import signal
import sys

import pytest


@pytest.fixture
async def start(sluice):
    """`sluice` with these arguments as a process; killed at the end if it still runs."""
    processes = []

    async def start(*arguments: str) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "admission.cli.main", *arguments,
            env={"PATH": "/usr/bin:/bin", **sluice.environment},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        processes.append(process)
        return process

    yield start
    for process in processes:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def line(process: asyncio.subprocess.Process) -> list[str]:
    return (await process.stdout.readline()).decode().split()


@pytest.mark.costly
async def test_watch_prints_existing_objects_and_then_each_change(sluice, start):
    await sluice("create", "cohort", "a")
    process = await start("get", "cohorts", "--watch")
    assert await line(process) == ["NAME", "PARENT", "AGE"]
    assert (await line(process))[:2] == ["a", "<none>"]
    await sluice("create", "cohort", "b", "--parent", "a")
    assert (await line(process))[:2] == ["b", "a"]
    await sluice("create", "cohort", "a-much-longer-name")
    assert (await line(process))[:2] == ["a-much-longer-name", "<none>"]
    process.send_signal(signal.SIGINT)
    assert await process.wait() == 0
    assert await process.stderr.read() == b""


@pytest.mark.costly
async def test_watch_of_nothing_prints_headers_with_the_first_object(sluice, start):
    process = await start("get", "cohorts", "-w")
    assert (await process.stderr.readline()) == b"no cohorts found\n"
    await sluice("create", "cohort", "a")
    assert await line(process) == ["NAME", "PARENT", "AGE"]
    assert (await line(process))[:2] == ["a", "<none>"]


@pytest.mark.costly
async def test_watch_of_one_object_ignores_other_objects(sluice, start):
    await sluice("create", "cohort", "a")
    await sluice("create", "cohort", "b")
    process = await start("get", "cohort/a", "-w", "-o", "name")
    assert await line(process) == ["cohort.sluice.dev/a"]
    await sluice("apply", "-f", "-", stdin=COHORT.format("b"))
    await sluice("apply", "-f", "-", stdin=COHORT.format("a"))
    assert await line(process) == ["cohort.sluice.dev/a"]


COHORT = "{{apiVersion: sluice.dev/v1, kind: Cohort, metadata: {{name: {}}}, spec: {{parentName: c}}}}"
