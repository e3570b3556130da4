"""TorchX itself, as a user runs it, against a cluster with Volcano (pretended) and `sluice serve`.

What it submits is in `tests/kinds/manifests/volcano-torchx-*.yaml` and played by `tests/controller`; this needs TorchX,
which is no dependency: install it anywhere (`pip install torchx kubernetes`), and name the command in `TORCHX`.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from grouped_kinds import GROUPED, JOBS, grouped_served, pods_until, running
from ports import free_port
from serve_processes import serving

from admission.model.manifests import parse_documents, parse_manifest
from admission.sandbox.sandbox import Sandbox
from admission.store.audit_log import Author
from admission.store.store import Store

if TYPE_CHECKING:
    from pathlib import Path

TORCHX = os.environ.get("TORCHX", "")
Object = dict[str, Any]

pytestmark = pytest.mark.skipif(not TORCHX, reason="the variable TORCHX does not name the command of TorchX")

QUEUES = """
apiVersion: sluice.dev/v1
kind: ResourceFlavor
metadata: {name: default}
---
apiVersion: sluice.dev/v1
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  stopPolicy: Hold
  resourceGroups:
  - coveredResources: [cpu, memory, nvidia.com/gpu]
    flavors:
    - name: default
      resources:
      - {name: cpu, nominalQuota: 16}
      - {name: memory, nominalQuota: 256Gi}
      - {name: nvidia.com/gpu, nominalQuota: 8}
---
apiVersion: sluice.dev/v1
kind: LocalQueue
metadata: {name: test, namespace: default}
spec: {clusterQueue: cq}
"""
AMOUNTS = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}
NODE: Object = {
    "metadata": {"name": "node", "annotations": {"kwok.x-k8s.io/node": "fake"}},
    "status": {"allocatable": AMOUNTS, "capacity": AMOUNTS},
}
SUBMIT = ("run", "--workspace=", "--scheduler", "kubernetes", "--scheduler_args", "namespace=default,queue=test")
DDP = ("dist.ddp", "-j", "2x4", "--cpu", "4", "--memMB", "4096", "--gpu", "4", "--max_retries", "2", "--script", "t.py")


async def until_pods_are_gone(admin: Any) -> None:
    if admin.list("pods", "default"):
        await pods_until(admin, "default", lambda found: not found)


class Client:
    """TorchX's command line."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def __call__(self, *arguments: str, fails: bool = False) -> str:
        """What it prints."""
        process = await asyncio.create_subprocess_exec(
            TORCHX, *arguments,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=self._folder,
            env={**os.environ, "KUBECONFIG": str(self._folder / "user.kubeconfig"), "HOME": str(self._folder)},
        )  # fmt: skip
        printed, _ = await process.communicate()
        assert fails or process.returncode == 0, printed.decode()
        return printed.decode()

    async def submit(self, *component: str) -> str:
        """The handle."""
        printed = await self(*SUBMIT, *component)
        return next(line for line in printed.splitlines() if line.startswith("kubernetes://")).strip()

    async def until(self, handle: str, state: str) -> str:
        """Its status, once it says so."""
        while f"State: {state}" not in (printed := await self("status", handle)):
            pass
        return printed


async def test_a_user_of_torchx_changes_nothing(tmp_path: Path, database_url: str):
    port = free_port()
    (tmp_path / "sluice.yaml").write_text(
        yaml.safe_dump({"integrations": {"frameworks": ["batch/job", "pod", *GROUPED]}})
    )
    flags = (
        f"--config={tmp_path / 'sluice.yaml'}",
        f"--webhook-url=https://127.0.0.1:{port}",
        f"--webhook-address=127.0.0.1:{port}",
        f"--certificate-directory={tmp_path / 'certificates'}",
    )
    (tmp_path / "t.py").write_text("")
    torchx = Client(tmp_path)
    async with Sandbox(speed=1) as sandbox, grouped_served(sandbox), Store.open(database_url) as store:
        admin = sandbox.local("admin")
        await admin.create("nodes", "", NODE)
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        kubeconfig = sandbox.kubeconfig()
        (tmp_path / "user.kubeconfig").write_text(yaml.safe_dump(kubeconfig))
        queues = [parse_manifest(document.body) for document in parse_documents(QUEUES, source="QUEUES")]
        for obj in queues:
            await store.queues.create(obj, author=Author("test"))
        async with serving(tmp_path, database_url, *flags) as replica:
            await replica.until("leading")
            await _queued(torchx, admin)
            opened, closed = (_stopped(policy) for policy in ("None", "HoldAndDrain"))
            assert await replica.put("/apis/sluice.dev/v1/clusterqueues/cq", opened) == 200
            handle = await _running(torchx, admin)
            assert await replica.put("/apis/sluice.dev/v1/clusterqueues/cq", closed) == 200
            await pods_until(admin, "default", running(0, 2))
            await torchx.until(handle, "PENDING")
            assert await replica.put("/apis/sluice.dev/v1/clusterqueues/cq", opened) == 200
            await torchx.until(handle, "RUNNING")
            await _finished(torchx, admin, handle)
            await _cancelled(torchx, admin)
        log = replica.log.decode()
        assert "Traceback" not in log, log


def _stopped(policy: str) -> Object:
    document: Object = list(yaml.safe_load_all(QUEUES))[1]
    return {**document, "spec": {**document["spec"], "stopPolicy": policy}}


async def _queued(torchx: Client, admin: Any) -> None:
    handle = await torchx.submit("utils.echo", "--image", "alpine:latest", "--msg", "hello")
    await pods_until(admin, "default", running(0, 1))
    assert "echo[0]:PENDING" in (await torchx.until(handle, "PENDING")).replace(" ", "")
    assert handle in (listed := await torchx("list", "-s", "kubernetes"))
    assert "PENDING" in listed
    assert "'name': 'echo'" in await torchx("describe", handle)
    await torchx("log", f"{handle}/echo/0", fails=True)  # a pod that waits has no log
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
