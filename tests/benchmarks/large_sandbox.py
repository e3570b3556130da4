"""A sandbox with many nodes, and pods of others on them, as a process: `python -m tests.benchmarks.large_sandbox`.

Arguments: a directory for the kubeconfigs `admin` and `sluice`, numbers of nodes and pods. It has no controllers: Jobs
are not run. It prints a line when it is filled, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from admission.model.topology import HOSTNAME
from admission.sandbox.sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from admission.sandbox.local import LocalClient

GPU = "nvidia.com/gpu"
_IN_RACK, _RACKS_IN_BLOCK = 16, 40
_ROOM = 10_000
"""Number of nodes of 8 GPUs each whose room a smaller cluster has, too, on larger nodes."""


@asynccontextmanager
async def large_sandbox(directory: Path, *, nodes: int, pods: int) -> AsyncIterator[int]:
    """Run it for the duration of the block, which begins when it is filled; gives its pid."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.benchmarks.large_sandbox", str(directory), str(nodes), str(pods)),
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


async def _run(directory: Path, nodes: int, pods: int) -> None:
    async with Sandbox(controllers=False) as sandbox:
        await _fill(sandbox.local("admin"), nodes, pods)
        for user in ("admin", "sluice"):
            sandbox.write_kubeconfig(directory / user, user)
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


if __name__ == "__main__":
    gc.set_threshold(50_000, 20, 100)  # as in `sluice sandbox`
    asyncio.run(_run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
