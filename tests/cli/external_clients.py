"""Clients of other systems, as their users run them, and `sluice serve` for the objects that they submit.

They are no dependencies: each is installed into an environment of its own, which an environment variable names.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml
from serve_processes import Replica, gate_flags, serving

from admission.sandbox.sandbox import Sandbox
from tests.queue_objects import cluster_queue, create_objects, flavor, local_queue

Object = dict[str, Any]

SECONDS = 1200
"""Time limit of a test with an external client: each call of a command line like TorchX's takes 1 s of CPU time."""
QUOTAS = {"default": {"cpu": 16, "memory": "256Gi", "nvidia.com/gpu": 8}}
QUEUE = cluster_queue(quotas=QUOTAS, stopPolicy="Hold")
AMOUNTS = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}
NODE: Object = {
    "metadata": {"name": "node", "annotations": {"kwok.x-k8s.io/node": "fake"}},
    "status": {"allocatable": AMOUNTS, "capacity": AMOUNTS},
}


@asynccontextmanager
async def queued_in(
    sandbox: Sandbox, folder: Path, database_url: str, integrations: Mapping[str, Any]
) -> AsyncIterator[Replica]:
    """Run `sluice serve` as leader in the block, with a queue on Hold, and write a user's kubeconfig into `folder`."""
    (folder / "sluice.yaml").write_text(yaml.safe_dump({"integrations": dict(integrations)}))
    await sandbox.local("admin").create("nodes", "", NODE)
    sandbox.write_kubeconfig(folder / "kubeconfig", "sluice")
    (folder / "user.kubeconfig").write_text(yaml.safe_dump(sandbox.kubeconfig()))
    await create_objects(database_url, flavor(), QUEUE, local_queue("test"))
    flags = (f"--config={folder / 'sluice.yaml'}", *gate_flags(folder))
    async with serving(folder, database_url, *flags) as replica:
        await replica.until("leading")
        yield replica
    log = replica.log.decode()
    assert "Traceback" not in log, log


async def set_stop_policy(replica: Replica, policy: str) -> None:
    """Set the stop policy of the queue; "None" opens it."""
    document = deepcopy(QUEUE)
    body = {**document, "spec": {**document["spec"], "stopPolicy": policy}}
    assert await replica.put("/apis/sluice.dev/v1/clusterqueues/cq", body) == 200


class Driver:
    """A client library, driven by a script: one line of words in, one line of JSON out."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def __call__(self, *words: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{' '.join(words)}\n".encode())
        while not (line := await self._process.stdout.readline()).startswith((b'"', b"[", b"null", b"{")):
            assert line, "the driver has ended"
        return json.loads(line)

    async def until(self, client: str, name: str, *states: str) -> None:
        """Wait until the client reports one of the states for an object."""
        while (found := await self(client, "status", name)) not in states:
            assert "Error" not in found, found


@asynccontextmanager
async def driven(python: str, script: str, folder: Path, environment: Mapping[str, str]) -> AsyncIterator[Driver]:
    """Run a script in the block, with the Python of another environment."""
    process = await asyncio.create_subprocess_exec(
        python, str(Path(__file__).with_name(script)),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=folder,
        env={**environment, "KUBECONFIG": str(folder / "user.kubeconfig"), "HOME": str(folder)},
    )  # fmt: skip
    try:
        yield Driver(process)
    finally:
        process.kill()
        await process.wait()
