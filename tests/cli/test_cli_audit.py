"""`sluice audit` as an admin runs it, against the Sluice that decides, and against one that does not."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from command_runner import TOKEN, Sluice
from serve_processes import NODE, QUEUES, job

from admission.api.application import create_app, listening
from admission.cluster.client import Client
from admission.controller import Controller
from admission.engine.events import WorkloadGone
from admission.kinds import all_kinds
from admission.sandbox.sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from admission.store.store import Store


@pytest.fixture
async def deciding(store: Store, tmp_path: Path) -> AsyncIterator[tuple[Controller, Sluice, Any]]:
    async with Sandbox(speed=60) as sandbox:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        admin = sandbox.local("admin")
        await admin.create("nodes", "", NODE)
        async with Client.from_kubeconfig(str(tmp_path / "kubeconfig")) as client:
            (kind,) = all_kinds()
            controller = Controller(store=store, client=client, kind=kind)
            controller.auditor.grace = 0.0
            epoch = await store.lead("here")
            running = asyncio.gather(controller.watch(), controller.decide(epoch=epoch))
            app = create_app(store, token=TOKEN, checks={"cluster": controller.health}, deciding=controller)
            async with listening(app, "127.0.0.1", 0) as url:
                sluice = Sluice({"SLUICE_SERVER": url, "SLUICE_ADMIN_TOKEN": TOKEN})
                assert (await sluice("apply", "-f", "-", stdin=QUEUES)).exit_code == 0
                while await controller.health() is not None:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
                yield controller, sluice, admin
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


async def test_what_differs_is_told_and_repaired(deciding, store):
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
    assert "  repair: the leader begins anew from the database" in told.stdout

    while (done := await sluice("audit", "--repair", "-o", "json")).exit_code:
        pass  # the leader needs a moment, and here none is waited for
    assert all(item["left"] == "false" for item in json.loads(done.stdout)["items"])


async def test_whoever_does_not_decide_says_who_does(sluice: Sluice, store: Store):
    nobody = await sluice("audit")
    assert nobody.exit_code == 1
    assert nobody.stderr.endswith("only the Sluice that leads can audit, and this one does not: nobody does yet\n")

    await store.lead("rack-7_12_ab")
    other = await sluice("audit", "--repair")
    assert 'this one does not: "rack-7_12_ab" leads; ask it' in other.stderr
