"""The real TorchX, as a user runs it, against a simulated cluster with Volcano and `sluice serve`.

Its manifests are in `tests/kinds/manifests/volcano-torchx-*.yaml`, and `tests/controller` uses them without TorchX.
TorchX is no dependency: install it anywhere (`pip install torchx kubernetes`), and name the command in `TORCHX`.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from external_clients import SECONDS, queued_in, set_stop_policy
from grouped_kinds import GROUPED, JOBS, grouped_served, pods_until, running

from admission.sandbox.sandbox import Sandbox

TORCHX = os.environ.get("TORCHX", "")

pytestmark = [
    pytest.mark.client,
    pytest.mark.skipif(not TORCHX, reason="the variable TORCHX does not name the command of TorchX"),
    pytest.mark.timeout(SECONDS),
]

INTEGRATIONS = {"frameworks": ["batch/job", "pod", *GROUPED]}
SUBMIT = ("run", "--workspace=", "--scheduler_args", "namespace=default,queue=test", "--scheduler")
DDP = ("dist.ddp", "-j", "2x4", "--cpu", "4", "--memMB", "4096", "--gpu", "4", "--max_retries", "2", "--script", "t.py")


async def until_pods_are_gone(admin: Any) -> None:
    if admin.list("pods", "default"):
        await pods_until(admin, "default", lambda found: not found)


class Client:
    """TorchX's command line, with one of its schedulers."""

    def __init__(self, folder: Path, scheduler: str = "kubernetes") -> None:
        self._folder = folder
        self._scheduler = scheduler

    async def __call__(self, *arguments: str, fails: bool = False) -> str:
        """Run a command of TorchX; returns its output."""
        process = await asyncio.create_subprocess_exec(
            TORCHX, *arguments,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=self._folder,
            env={**os.environ, "KUBECONFIG": str(self._folder / "user.kubeconfig"), "HOME": str(self._folder)},
        )  # fmt: skip
        printed, _ = await process.communicate()
        assert fails or process.returncode == 0, printed.decode()
        return printed.decode()

    async def submit(self, *component: str) -> str:
        """Submit a component; returns the handle of the app."""
        printed = await self(*SUBMIT, self._scheduler, *component)
        return next(line for line in printed.splitlines() if line.startswith(f"{self._scheduler}://")).strip()

    async def until(self, handle: str, state: str) -> str:
        """Wait until TorchX reports a state for an app; returns the printed status."""
        while f"State: {state}" not in (printed := await self("status", handle)):
            pass
        return printed


async def test_torchx_works_unchanged_with_its_volcano_scheduler(tmp_path: Path, database_url: str):
    (tmp_path / "t.py").write_text("")
    torchx = Client(tmp_path)
    async with Sandbox(speed=1) as sandbox, grouped_served(sandbox):
        admin = sandbox.local("admin")
        async with queued_in(sandbox, tmp_path, database_url, INTEGRATIONS) as replica:
            await _queued(torchx, admin)
            await set_stop_policy(replica, "None")
            handle = await _running(torchx, admin)
            await set_stop_policy(replica, "HoldAndDrain")
            await pods_until(admin, "default", running(0, 2))
            await torchx.until(handle, "PENDING")
            await set_stop_policy(replica, "None")
            await torchx.until(handle, "RUNNING")
            await _finished(torchx, admin, handle)
            await _cancelled(torchx, admin)


async def _queued(torchx: Client, admin: Any) -> None:
    handle = await torchx.submit("utils.echo", "--image", "alpine:latest", "--msg", "hello")
    await pods_until(admin, "default", running(0, 1))
    assert "echo[0]:PENDING" in (await torchx.until(handle, "PENDING")).replace(" ", "")
    assert handle in (listed := await torchx("list", "-s", "kubernetes"))
    assert "PENDING" in listed
    assert "'name': 'echo'" in await torchx("describe", handle)
    await torchx("log", f"{handle}/echo/0", fails=True)  # a pending pod has no log
    await torchx("cancel", handle)
    await until_pods_are_gone(admin)


async def _running(torchx: Client, admin: Any) -> str:
    handle = await torchx.submit(*DDP)
    await pods_until(admin, "default", running(2))
    status = await torchx.until(handle, "RUNNING")
    assert "RUNNING" in status.rpartition("State:")[2]
    assert "'num_replicas': 2" in await torchx("describe", handle)
    assert "RUNNING" in await torchx("list", "-s", "kubernetes")
    await torchx("log", f"{handle}/t/0")
    return handle


async def _finished(torchx: Client, admin: Any, handle: str) -> None:
    for name in await pods_until(admin, "default", running(2)):
        await admin.patch("pods", "default", name, {"status": {"phase": "Succeeded"}}, subresource="status")
    await torchx.until(handle, "SUCCEEDED")
    job = admin.get(JOBS, "default", handle.rpartition(":")[2])
    assert "retryCount" not in job["status"]
    assert "SUCCEEDED" in await torchx("list", "-s", "kubernetes")
    await torchx("log", f"{handle}/t/0")
    await torchx("cancel", handle)  # does nothing: TorchX cancels only what has not ended
    await admin.delete(JOBS, "default", handle.rpartition(":")[2], propagation="Background")
    await until_pods_are_gone(admin)


async def _cancelled(torchx: Client, admin: Any) -> None:
    handle = await torchx.submit(*DDP)
    await pods_until(admin, "default", running(2))
    await torchx("cancel", handle)
    await until_pods_are_gone(admin)
