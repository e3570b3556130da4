"""Outcomes of failed workloads say how their last pod ended."""

from __future__ import annotations

from contextlib import closing

import pytest
from job_examples import cluster_queue, flavor, job, local_queue
from pod_examples import gated, pod

from admission.kinds import all_kinds

KINDS = all_kinds(frameworks=("batch/job", "pod"))


async def message(world, name: str) -> str:
    """Wait for the outcome of a failed workload, and for the exit code in it."""

    async def look() -> str:
        record = await world.store.workloads.get("team-a", name)
        return record.message if record is not None and "exit code" in record.message else ""

    assert (await world.record(name, "finished")).outcome == "Failed"
    return await world.eventually(look)


@pytest.mark.costly
async def test_outcome_of_a_failed_job_or_pod_begins_with_its_exit_code(world, tmp_path):
    await world.apply(flavor(), cluster_queue(), local_queue())
    failing, killed, alone = job("failing", seconds=1), job("killed"), pod("alone", seconds=1)
    for annotated in (failing["spec"]["template"], alone):
        annotated["metadata"]["annotations"]["sandbox.sluice.dev/exit-code"] = "3"
    for each in (failing, killed):
        each["spec"]["backoffLimit"] = 0
    async with gated(world.user, KINDS, tmp_path / "certificates"):
        await world.start(kinds=KINDS)
        await world.user.create("pods", "team-a", alone)
        for each in (failing, killed):
            await world.submit(each)
        await kill(world.user, "killed")
        assert (await message(world, "failing")).startswith("exit code 3: Job has reached the specified backoff")
        assert (await message(world, "killed")).startswith("exit code 137 (OOMKilled): Job has reached")
        assert await message(world, "alone") == "exit code 3"


async def kill(admin, name: str) -> None:
    """Let the pod of a Job end as if the kernel had killed it for its memory."""
    with closing(admin.watch("pods")) as changes:
        async for batch in changes:
            for _, _, obj, _ in batch:
                if obj["metadata"]["name"].startswith(name) and obj["status"].get("phase") == "Running":
                    ended = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-01-01T00:00:00Z"}
                    status = {
                        "phase": "Failed",
                        "containerStatuses": [{"name": "main", "state": {"terminated": ended}, "ready": False}],
                    }
                    name = obj["metadata"]["name"]
                    await admin.patch("pods", "team-a", name, {"status": status}, subresource="status")
                    return
