"""`sluice audit` against the leader, against a follower, behind a Service, and offline."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from command_runner import TOKEN, Sluice
from serve_processes import NODE, QUEUES, job

from admission.api.application import create_app, listening
from admission.cluster.client import Client
from admission.controller.auditing import audit_sources
from admission.controller.controller import Controller
from admission.engine.events import WorkloadGone
from admission.kinds import all_kinds
from admission.sandbox.sandbox import Sandbox
from admission.store.database.migrations import migrate
from admission.store.store import Store


@pytest.fixture
async def deciding(store: Store, tmp_path: Path) -> AsyncIterator[tuple[Controller, Sluice, Any]]:
    async with Sandbox(speed=60) as sandbox:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        admin = sandbox.local("admin")
        await admin.create("nodes", "", NODE)
        async with Client.from_kubeconfig(str(tmp_path / "kubeconfig")) as client:
            kinds = all_kinds()
            controller = Controller(store=store, client=client, kinds=kinds)
            controller.auditor.grace = 0.0
            epoch = await store.lead("here")
            running = asyncio.gather(controller.watch(), controller.decide(epoch=epoch))
            app = create_app(store, token=TOKEN, checks={"cluster": controller.health}, controller=controller)
            async with listening(app, "127.0.0.1", 0) as url:
                sluice = Sluice({"SLUICE_SERVER": url, "SLUICE_ADMIN_TOKEN": TOKEN})
                assert (await sluice("apply", "-f", "-", stdin=QUEUES)).exit_code == 0
                while await controller.health() is not None:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
                yield controller, sluice, admin
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


@pytest.mark.costly
async def test_audit_reports_and_repairs_a_usage_difference(deciding, store):
    controller, sluice, admin = deciding
    clean = await sluice("audit")
    assert (clean.exit_code, clean.stdout) == (0, "no differences\n"), clean.stderr

    await admin.create("jobs", "default", job("one", seconds=100_000))
    while not (held := [r for r in (await store.workloads.list()).workloads if r.state == "admitted"]):  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    controller.engine().observe(WorkloadGone(held[0].workload.uid), now=0.0)
    told = await sluice("audit")
    assert told.exit_code == 1
    assert "UsageDiffers  ClusterQueue cq: 0 cpu of flavor default in use; should be: " in told.stdout
    assert "  repair: the leader reloads its state from the database" in told.stdout

    while (done := await sluice("audit", "--repair", "-o", "json")).exit_code:
        pass  # until the leader has repaired it; the loop needs no pause
    assert all(item["left"] == "false" for item in json.loads(done.stdout)["items"])


async def test_audit_of_a_follower_names_the_leader(sluice: Sluice, store: Store):
    nobody = await sluice("audit")
    assert nobody.exit_code == 1
    assert "this one does not lead: no replica leads yet; see its log" in nobody.stderr

    await store.lead("rack-7_12_ab")
    other = await sluice("audit", "--repair")
    assert (other.exit_code, other.stderr.count("\n")) == (1, 1)
    assert 'this one does not lead: "rack-7_12_ab" (host, process, random number) leads' in other.stderr
    assert "--server" in other.stderr


@pytest.mark.costly
async def test_audit_behind_a_service_retries_until_the_leader_answers(deciding, store):
    _, leader, _ = deciding
    follower = create_app(store, token=TOKEN, checks={})
    async with (
        listening(follower, "127.0.0.1", 0) as url,
        round_robin(url, url, url, leader.environment["SLUICE_SERVER"]) as service,
    ):
        asked = await Sluice({"SLUICE_SERVER": service, "SLUICE_ADMIN_TOKEN": TOKEN})("audit")
    assert (asked.exit_code, asked.stdout) == (0, "no differences\n"), asked.stderr


@pytest.mark.costly
async def test_offline_audit_compares_database_and_cluster(tmp_path, monkeypatch):
    monkeypatch.setattr(audit_sources, "GRACE", 0.0)
    url, sluice = f"sqlite:///{tmp_path / 'sluice.db'}", Sluice({})
    async with Sandbox(controllers=False) as sandbox:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        await migrate(url)
        offline = ("audit", "--database-url", url, "--kubeconfig", str(tmp_path / "kubeconfig"))
        clean = await sluice(*offline)
        assert (clean.exit_code, clean.stdout) == (0, "no differences\n"), clean.stderr

        await sandbox.local("admin").create("jobs", "default", job("stranger"))
        told = await sluice(*offline, "-o", "json")
        assert told.exit_code == 1
        (item,) = json.loads(told.stdout)["items"]
        assert (item["problem"], item["object"], item["left"]) == ("NotOnRecord", "Job default/stranger", "true")

        wrong = await sluice(*offline, "--repair")
        assert wrong.exit_code == 2
        assert "--repair requires a running server" in wrong.stderr
    down = await sluice(*offline)
    assert (down.exit_code, down.stderr.count("\n")) == (1, 1)


@asynccontextmanager
async def round_robin(*servers: str) -> AsyncIterator[str]:
    """Address whose connections go to the servers in turn, as those to a Service may."""
    turns = cycle(servers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parts = urlsplit(next(turns))
        inner_reader, inner_writer = await asyncio.open_connection(parts.hostname, parts.port)
        async with asyncio.TaskGroup() as group:
            group.create_task(pipe(reader, inner_writer))
            group.create_task(pipe(inner_reader, writer))

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}"
