"""The real TorchX with its MCAD scheduler, as a user runs it: AppWrappers that `sluice serve` dispatches.

MCAD is not installed. `tests/cli/test_torchx.py` describes how to install TorchX.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from custom_kinds import definition
from external_clients import SECONDS, queued_in, set_stop_policy
from grouped_kinds import pods_until, running
from test_torchx import DDP, TORCHX, Client, until_pods_are_gone

from admission.kinds import all_kinds
from admission.sandbox.sandbox import Sandbox

pytestmark = [
    pytest.mark.client,
    pytest.mark.skipif(not TORCHX, reason="the variable TORCHX does not name the command of TorchX"),
    pytest.mark.timeout(SECONDS),
]

APP_WRAPPER = "workload.codeflare.dev/appwrapper"
INTEGRATIONS = {
    "frameworks": ["batch/job", APP_WRAPPER, "mcad.ibm.com/appwrapper"],
    "rules": [{"queue": "test", "kinds": [APP_WRAPPER]}],  # TorchX sets no label
}


def name_of(handle: str) -> str:
    return handle.rpartition(":")[2]


async def test_torchx_works_unchanged_with_its_mcad_scheduler(tmp_path: Path, database_url: str):
    (tmp_path / "t.py").write_text("")
    torchx = Client(tmp_path, "kubernetes_mcad")
    app_wrapper = all_kinds(frameworks=(APP_WRAPPER,)).get("workload.codeflare.dev", "AppWrapper")
    async with Sandbox(speed=1) as sandbox:
        admin = sandbox.local("admin")
        await admin.create("customresourcedefinitions", "", definition(app_wrapper, "v1beta1"))
        async with queued_in(sandbox, tmp_path, database_url, INTEGRATIONS) as replica:
            await _queued(torchx, admin)
            await set_stop_policy(replica, "None")
            handle = await _running(torchx, admin)
            await set_stop_policy(replica, "HoldAndDrain")
            await until_pods_are_gone(admin)
            await torchx.until(handle, "PENDING")
            assert "PENDING" in await torchx("list", "-s", "kubernetes_mcad")
            assert "'num_replicas': 2" in await torchx("describe", handle)
            await set_stop_policy(replica, "None")
            await torchx.until(handle, "RUNNING")
            await _finished(torchx, admin, handle)
            await _failed(torchx, admin)


async def _queued(torchx: Client, admin: Any) -> None:
    handle = await torchx.submit("utils.echo", "--image", "alpine:latest", "--msg", "hello")
    assert "echo[0]:PENDING" in (await torchx.until(handle, "PENDING")).replace(" ", "")
    assert handle in (listed := await torchx("list", "-s", "kubernetes_mcad"))
    assert "PENDING" in listed
    assert "'name': 'echo'" in await torchx("describe", handle)
    await torchx("log", f"{handle}/echo/0", fails=True)  # there is no pod
    assert not admin.list("pods", "default")
    await torchx("cancel", handle)
    assert not admin.list("appwrappers", "default")


async def _running(torchx: Client, admin: Any) -> str:
    handle = await torchx.submit(*DDP)
    await pods_until(admin, "default", running(2))
    status = await torchx.until(handle, "RUNNING")
    assert status.count("RUNNING") == 3  # the app, and both replicas
    assert "'num_replicas': 2" in await torchx("describe", handle)
    assert "RUNNING" in await torchx("list", "-s", "kubernetes_mcad")
    await torchx("log", f"{handle}/t/0")
    return handle


async def _finished(torchx: Client, admin: Any, handle: str) -> None:
    for name in await pods_until(admin, "default", running(2)):
        await admin.patch("pods", "default", name, {"status": {"phase": "Succeeded"}}, subresource="status")
    # MCAD leaves AppWrappers without `completionstatus` in the state Running, and TorchX shows them so.
    while (status := await torchx.until(handle, "RUNNING")).count("SUCCEEDED") != 2:
        pass
    assert "State: RUNNING" in status
    assert "RUNNING" in await torchx("list", "-s", "kubernetes_mcad")
    assert "'num_replicas': 2" in await torchx("describe", handle)
    await torchx("log", f"{handle}/t/0")
    await torchx("cancel", handle)
    await until_pods_are_gone(admin)


async def _failed(torchx: Client, admin: Any) -> None:
    """An app whose pods fail is reported as failed; another one that runs is cancelled."""
    handle = await torchx.submit("utils.sh", "--image", "alpine:latest", "--num_replicas", "2", "false")
    for name in await pods_until(admin, "default", running(2)):
        await admin.patch("pods", "default", name, {"status": {"phase": "Failed"}}, subresource="status")
    await torchx.until(handle, "FAILED")
    other = await torchx.submit(*DDP)
    await pods_until(
        admin,
        "default",
        lambda found: (
            sum(
                pod["status"].get("phase") == "Running"
                for name, pod in found.items()
                if name.startswith(name_of(other))
            )
            == 2
        ),
    )
    await torchx("cancel", other)
    await torchx("cancel", handle, fails=True)
    await admin.delete("appwrappers", "default", name_of(handle), propagation="Background")
    await until_pods_are_gone(admin)
