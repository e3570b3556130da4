"""A frozen API server: its connections stay open, but neither data nor errors arrive."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from command_runner import Sluice
from serve_processes import NODE, QUEUES, TOKEN, Replica, job, serving

from admission.cli.demo.stage import DemoCluster, running_sandbox
from admission.cluster.client import Client
from tests.queue_objects import create_objects

NOTICED = 60.0
"""Seconds within which /readyz has to fail."""
QUEUE = "/apis/sluice.dev/v1/clusterqueues/cq"
JOBS = "/apis/batch/v1/namespaces/default/jobs"


@asynccontextmanager
async def frozen(cluster: DemoCluster) -> AsyncIterator[None]:
    cluster.child.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        cluster.child.process.send_signal(signal.SIGCONT)


async def states(replica: Replica) -> dict[str, str]:
    """The recorded state of each workload, by the name of its Job."""
    status, body = await replica.get("/apis/sluice.dev/v1/workloads")
    assert status == 200, body
    return {each["spec"]["object"]["name"]: each["status"]["state"] for each in json.loads(body)["items"]}


async def until(replica: Replica, expected: dict[str, str]) -> None:
    while await states(replica) != expected:  # noqa: ASYNC110  another process decides
        await asyncio.sleep(0.05)


async def outages(replica: Replica) -> list[dict[str, Any]]:
    """Wait until an outage is recorded, and return all."""
    found: list[dict[str, Any]] = []
    while not found:
        await asyncio.sleep(0.05)
        _, body = await replica.get("/apis/sluice.dev/v1/auditrecords?fieldSelector=kind%3DOutage")
        found = json.loads(body)["items"]
    return found


async def submit(client: Client, name: str) -> None:
    body = job(name, seconds=600)
    body["spec"]["suspend"] = True
    await client.create(JOBS, body)


@pytest.mark.long
async def test_frozen_api_server_fails_readiness_and_pauses_decisions(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'sluice.db'}"
    async with (
        running_sandbox(tmp_path, speed=1) as cluster,
        Client.from_kubeconfig(str(cluster.kubeconfig)) as client,
    ):
        (tmp_path / "kubeconfig").write_bytes(cluster.sluice_kubeconfig.read_bytes())
        await client.create("/api/v1/nodes", NODE)
        async with serving(tmp_path, url) as replica:
            await replica.until_ready()
            await create_objects(url, QUEUES)
            for name in ("a", "b", "c", "d"):
                await submit(client, name)
            running = dict.fromkeys(("a", "b", "c", "d"), "admitted")
            await until(replica, running)
            await submit(client, "e")
            await until(replica, running | {"e": "pending"})
            async with frozen(cluster):
                since = time.monotonic()
                while (answer := await replica.get("/readyz?verbose"))[0] == 200:
                    assert time.monotonic() - since < NOTICED
                    await asyncio.sleep(0.1)
                assert "[-]cluster failed: https://" in answer[1]
                assert "does not answer" in answer[1]
                assert "\nsluice_deciding 0.0\n" in (await replica.get("/metrics"))[1]  # the alert SluiceNobodyDecides
                asked = await Sluice({"SLUICE_SERVER": replica.url, "SLUICE_TOKEN": TOKEN})("why", "new")
                assert asked.exit_code == 1
                assert asked.stderr.startswith(
                    "warning: Sluice makes no decisions at the moment, because the API server"
                )
                assert asked.stderr.count("warning") == 1
                asked = await Sluice({"SLUICE_SERVER": replica.url, "SLUICE_TOKEN": TOKEN})("audit")
                assert (asked.exit_code, "no audit can be made while the API server" in asked.stderr) == (1, True)
                _, text = await replica.get(QUEUE)
                queue = json.loads(text)
                queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = 8
                assert await replica.put(QUEUE, queue) == 200
                for _ in range(20):  # a second or more: long enough for a decision
                    assert await states(replica) == running | {"e": "pending"}
                    await asyncio.sleep(0.05)
                assert (await replica.get("/livez"))[0] == 200
            await replica.until_ready()
            assert "\nsluice_deciding 1.0\n" in (await replica.get("/metrics"))[1]
            await until(replica, running | {"e": "admitted"})
            (outage,) = await outages(replica)
            assert outage["reason"].startswith("The API server did not answer")
            while (await client.get(f"{JOBS}/e")).get("status", {}).get("ready") != 1:  # noqa: ASYNC110  the sandbox
                await asyncio.sleep(0.05)
