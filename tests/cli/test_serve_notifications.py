"""Notifications of `sluice serve` about Jobs, with a receiver that starts late and a SIGKILL."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import orjson
import pytest
from aiohttp import web
from ports import free_port
from serve_processes import NODE, QUEUES, all_complete, job, serving

from admission.sandbox.sandbox import Sandbox
from admission.store.database.migrations import migrate
from tests.queue_objects import create_objects

SUBSCRIPTION = """
---
apiVersion: sluice.dev/v1
kind: Subscription
metadata: {name: all, namespace: default}
spec: {receiver: pager, events: [Admitted, Finished]}
"""


@pytest.mark.costly
async def test_notifications_reach_a_late_receiver_although_serve_was_killed(tmp_path: Path) -> None:
    port, url = free_port(), f"sqlite:///{tmp_path / 'sluice.db'}"
    (tmp_path / "secret").write_text("a secret")
    config = tmp_path / "sluice.yaml"
    config.write_text(f"""
notifications:
  receivers: [{{name: pager, url: "http://127.0.0.1:{port}/", secretFile: {tmp_path / "secret"}}}]
  allowedNetworks: [127.0.0.0/8]
""")
    received: dict[str, str] = {}
    both = asyncio.Event()

    async def take(request: web.Request) -> web.Response:
        assert request.headers["webhook-signature"].startswith("v1,")
        event = orjson.loads(await request.read())
        received[event["type"].rpartition(".")[2], event["subject"]] = event["data"]["message"]
        if len(received) == 6:
            both.set()
        return web.Response()

    await migrate(url)
    await create_objects(url, QUEUES + SUBSCRIPTION)
    async with Sandbox(speed=60) as sandbox:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        admin = sandbox.local("admin")
        await admin.create("nodes", "", NODE)
        async with serving(tmp_path, url, f"--config={config}") as replica:
            await replica.until_ready()
            for number in range(3):
                await admin.create("jobs", "default", job(f"j{number}"))
            await all_complete(admin, 3)
            while b"a notification was not delivered" not in replica.log:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            replica.send(signal.SIGKILL)
            await replica.process.wait()
        app = web.Application()
        app.router.add_post("/", take)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        try:
            async with serving(tmp_path, url, f"--config={config}"):
                await both.wait()
        finally:
            await runner.cleanup()
    assert set(received) == {
        (what, f"namespaces/default/workloads/j{number}") for what in ("admitted", "finished") for number in range(3)
    }
