"""CompositePodGroups and `sluice serve` with its webhook: the next process completes a start after SIGKILL."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from custom_kinds import definition
from serve_processes import NODE, QUEUES, Replica, free_port, serving

from admission.kinds import all_kinds
from admission.sandbox.sandbox import Sandbox
from admission.store.database.migrations import ensure_ready
from tests.queue_objects import create_objects

SIZES = all_kinds(frameworks=("batch/job", "pod")).sizes
COMPOSITE = SIZES["scheduling.k8s.io", "CompositePodGroup"]
POD_GROUP = SIZES["scheduling.k8s.io", "PodGroup"]
GROUPS = "podgroups.scheduling.k8s.io"
COMPOSITES = "compositepodgroups.scheduling.k8s.io"
TREE = ("rc-head-0", "rc-gpu-0", "rc-gpu-1")


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    (tmp_path / "sluice.yaml").write_text("integrations: {frameworks: [batch/job, pod]}\n")
    async with Sandbox(speed=60) as sandbox:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        admin = sandbox.local("admin")
        await admin.create("nodes", "", NODE)
        for kind in (COMPOSITE, POD_GROUP):
            await admin.create("customresourcedefinitions", "", definition(kind))
        yield sandbox


@pytest.fixture
async def serve(sandbox: Sandbox, tmp_path: Path) -> Any:
    """Function that starts `sluice serve` with its webhook and the LocalQueue `lq`, which has 4 CPUs."""
    url = f"sqlite:///{tmp_path / 'sluice.db'}"
    await ensure_ready(url)
    await create_objects(url, QUEUES)
    port = free_port()
    webhook = (f"--webhook-url=https://127.0.0.1:{port}", f"--webhook-address=127.0.0.1:{port}")
    files = (f"--config={tmp_path / 'sluice.yaml'}", f"--certificate-directory={tmp_path / 'certificates'}")
    return lambda: serving(tmp_path, url, *webhook, *files)


async def create_group(admin: Any, kind: Any, name: str, number: int, parent: str | None = None) -> None:
    gang = {"minGroupCount" if kind is COMPOSITE else "minCount": number}
    spec = {"schedulingPolicy": {"gang": gang}, "parentCompositePodGroupName": parent}
    api_version = f"{kind.group}/{kind.versions[0]}"
    obj = {"apiVersion": api_version, "kind": kind.kind, "metadata": {"name": name}, "spec": spec}
    await admin.create(f"{kind.plural}.{kind.group}", "default", obj)


async def create_pod(admin: Any, name: str, pod_group: str) -> None:
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1"}}}
    metadata = {"name": name, "labels": {"sluice.dev/queue-name": "lq"}}
    metadata["annotations"] = {"sandbox.sluice.dev/run-seconds": "1000000"}
    spec = {"restartPolicy": "Never", "containers": [container], "schedulingGroup": {"podGroupName": pod_group}}
    await admin.create("pods", "default", {"metadata": metadata, "spec": spec})


def running(admin: Any) -> set[str]:
    return {pod["metadata"]["name"] for pod in admin.list("pods", "default") if pod["status"].get("phase") == "Running"}


async def workloads(replica: Replica) -> dict[str, tuple[str, int]]:
    """State and number of pods by name of the workload."""
    _, body = await replica.get("/apis/sluice.dev/v1/namespaces/default/workloads")
    return {
        item["spec"]["object"]["name"]: (
            item["status"]["state"],
            sum(each["count"] for each in item["spec"]["podSets"]),
        )
        for item in json.loads(body)["items"]
    }


async def until(replica: Replica, holds: Any) -> None:
    """Wait until a function or coroutine function returns true. The time limit of the test ends a wait in vain."""
    while True:
        found = holds()
        if await found if asyncio.iscoroutine(found) else found:
            return
        assert replica.process.returncode is None, replica.log.decode()
        await asyncio.sleep(0.02)


@pytest.mark.costly
async def test_start_interrupted_by_sigkill_is_completed_after_the_tree_was_edited(sandbox, serve):
    admin = sandbox.local("admin")
    match = {"user": "sluice", "verb": "patch", "resource": "pods", "name": "rc-gpu-1"}
    sandbox.faults.install({"rules": [{"match": match, "do": "delay", "seconds": 600}]})
    async with serve() as replica:
        await replica.until_ready()
        await create_group(admin, COMPOSITE, "rc", 2)
        await create_group(admin, POD_GROUP, "rc-head", 1, "rc")
        await create_group(admin, POD_GROUP, "rc-gpu", 2, "rc")
        for name in TREE:
            await create_pod(admin, name, name.rpartition("-")[0])
        await until(replica, lambda: running(admin) == {"rc-head-0", "rc-gpu-0"})
        replica.send(signal.SIGKILL)
        await replica.process.wait()
    sandbox.faults.remove()
    await admin.delete(COMPOSITES, "default", "rc")
    await admin.patch(GROUPS, "default", "rc-head", {"spec": {"parentCompositePodGroupName": "elsewhere"}})
    async with serve() as replica:
        await until(replica, lambda: running(admin) == {*TREE})
        await replica.until_ready()
        await create_group(admin, POD_GROUP, "beside", 2)
        for name in ("beside-0", "beside-1"):
            await create_pod(admin, name, "beside")
        expected = {"rc": ("admitted", 3), "beside": ("pending", 2)}  # 2 more CPUs do not fit beside 3 of 4

        async def agrees() -> bool:
            return await workloads(replica) == expected

        await until(replica, agrees)
        assert running(admin) == {*TREE}
