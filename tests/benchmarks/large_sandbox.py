"""Sandboxes with many nodes, pods of others on them, and Jobs that wait: `python -m tests.benchmarks.large_sandbox`.

Arguments: a directory for the kubeconfigs, the number of clusters, and of nodes, pods and Jobs in each. The first
cluster has the kubeconfigs `admin` and `sluice`, each further one, such as `c01`, `admin-c01` and
`credentials/c01.yaml`. They are one process, and have no controllers: Jobs are not run. It prints a line when all are
filled, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from admission.model.topology import HOSTNAME
from admission.sandbox.local import LocalClient
from admission.sandbox.sandbox import Sandbox

GPU = "nvidia.com/gpu"
QUEUE = "jobs"
"""LocalQueue of the Jobs, in the namespace `default`."""
_IN_RACK, _RACKS_IN_BLOCK = 16, 40
_ROOM = 10_000
"""Number of nodes of 8 GPUs each whose room a smaller cluster has, too, on larger nodes."""


@asynccontextmanager
async def large_sandbox(
    directory: Path, *, nodes: int, pods: int, clusters: int = 1, jobs: int = 0
) -> AsyncIterator[int]:
    """Run them for the duration of the block, which begins when they are filled; gives the pid."""
    sizes = map(str, (clusters, nodes, pods, jobs))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.benchmarks.large_sandbox", str(directory), *sizes),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        process_group=0,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert await process.stdout.readline(), "the sandbox has ended"
        yield process.pid
    finally:
        process.stdin.close()
        await process.wait()


def others(clusters: int) -> list[str]:
    """Return the names of all clusters but the first one."""
    return [f"c{number:02}" for number in range(1, clusters)]


async def _run(directory: Path, clusters: int, nodes: int, pods: int, jobs: int) -> None:
    (directory / "credentials").mkdir(exist_ok=True)
    async with AsyncExitStack() as stack:
        for name in ("", *others(clusters)):
            sandbox = await stack.enter_async_context(Sandbox(controllers=False))
            await _fill(sandbox.local("admin"), nodes, pods)
            for number in range(jobs):
                await sandbox.local("admin").create("jobs", "default", waiting_job(f"{name or 'local'}-{number:05}"))
            sandbox.write_kubeconfig(directory / (f"admin-{name}" if name else "admin"), "admin")
            sandbox.write_kubeconfig(directory / (f"credentials/{name}.yaml" if name else "sluice"), "sluice")
        print("filled", flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def _fill(admin: LocalClient, nodes: int, pods: int) -> None:
    for number in range(nodes):
        node = await admin.create("nodes", "", _node(number, nodes))
        name = node["metadata"]["name"]
        await admin.patch("nodes", "", name, {"spec": {"taints": None}})  # it has that of a node that is not ready
        await admin.patch("nodes", "", name, readiness("True"), subresource="status")
    await admin.create("namespaces", "", {"metadata": {"name": "agents"}})
    for number in range(pods):
        await admin.create("pods", "agents", _pod(number, number % nodes))


def readiness(status: str) -> dict[str, Any]:
    """Return the merge patch that makes a node ready or not."""
    return {"status": {"conditions": [{"type": "Ready", "status": status}]}}


def _node(number: int, nodes: int) -> dict[str, Any]:
    rack, name = number // _IN_RACK, f"node-{number:05}"
    labels = {"pool": "gpu", "block": f"block-{rack // _RACKS_IN_BLOCK:02}", "rack": f"rack-{rack:03}", HOSTNAME: name}
    times = max(1, _ROOM // nodes)
    amounts = {GPU: str(8 * times), "cpu": str(96 * times), "memory": f"{times}Ti", "pods": str(110 * times)}
    return {"metadata": {"name": name, "labels": labels}, "status": {"capacity": amounts, "allocatable": amounts}}


def _pod(number: int, node: int) -> dict[str, Any]:
    container = {"name": "agent", "image": "x", "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}
    return {"metadata": {"name": f"agent-{number}"}, "spec": {"nodeName": f"node-{node:05}", "containers": [container]}}


def waiting_job(name: str, queue: str = QUEUE) -> dict[str, Any]:
    """Return a Job of one pod with one CPU that waits in a queue."""
    requests = {"cpu": "1"}
    container = {"name": "main", "image": "x", "resources": {"requests": requests}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    metadata = {"name": name, "labels": {"sluice.dev/queue-name": queue}}
    return {"metadata": metadata, "spec": {"suspend": True, "template": template}}


if __name__ == "__main__":
    gc.set_threshold(50_000, 20, 100)  # as in `sluice sandbox`
    asyncio.run(_run(Path(sys.argv[1]), *map(int, sys.argv[2:])))
