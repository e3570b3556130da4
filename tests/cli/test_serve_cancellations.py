"""Cancellations of workloads by `sluice serve` as a process that is killed."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import aiohttp
import pytest
from serve_processes import NODE, QUEUES, Replica, job, serving

from admission.sandbox.sandbox import Sandbox
from admission.store.database.migrations import migrate
from tests.queue_objects import create_objects

TRAIN = "/apis/sluice.dev/v1/namespaces/default/workloads/train"


async def reasons(replica: Replica) -> list[str]:
    """The reasons of the lines of its history; none while there is no such workload."""
    status, body = await replica.get(f"{TRAIN}/history")
    return [line["reason"] for line in json.loads(body)["items"]] if status == 200 else []


async def until_reason(replica: Replica, reason: str) -> None:
    while reason not in await reasons(replica):  # noqa: ASYNC110  another process writes it
        await asyncio.sleep(0.02)


async def cancel(replica: Replica, token: str) -> int:
    """Cancel it as a user of the cluster; returns the status, 0 without an answer."""
    headers = {"Authorization": f"Bearer {token}"}
    try:
        async with (
            aiohttp.ClientSession(replica.url, headers=headers) as session,
            session.post(f"{TRAIN}/cancel", json={}) as answer,
        ):
            return answer.status
    except aiohttp.ClientError:
        return 0


@pytest.mark.costly
async def test_the_history_says_that_a_killed_process_did_not_delete_what_was_cancelled(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'sluice.db'}"
    await migrate(url)
    await create_objects(url, QUEUES)
    async with Sandbox() as sandbox:
        admin, token = sandbox.local("admin"), sandbox.token("admin")
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        await admin.create("nodes", "", NODE)
        # Of the requests to delete it the second one is not answered: that after the dry run.
        match = {"verb": "delete", "resource": "jobs"}
        rule = {"match": match, "probability": 0.5, "do": "delay", "seconds": 600}
        sandbox.faults.install({"seed": 24, "rules": [rule]})
        async with serving(tmp_path, url) as replica:
            await replica.until("leading")
            await admin.create("jobs", "default", job("train", seconds=3600))
            await until_reason(replica, "Admitted")
            cancelling = asyncio.create_task(cancel(replica, token))
            await until_reason(replica, "DeletionOrdered")
            replica.send(signal.SIGKILL)
            assert await cancelling == 0
            await replica.process.wait()
        async with serving(tmp_path, url) as replica:
            await until_reason(replica, "NotDeleted")
            assert (admin.get("jobs", "default", "train") or {})["metadata"].get("deletionTimestamp") is None
            assert await cancel(replica, token) == 200
            await until_reason(replica, "Deleted")
            assert admin.get("jobs", "default", "train") is None
        sandbox.faults.remove()  # the request of the killed process is still being delayed
