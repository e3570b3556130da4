"""Clients of other systems, as their users run them, and `sluice serve` for what they submit.

They are no dependencies: each is installed into an environment of its own, which a variable names.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from ports import free_port
from serve_processes import serving

from admission.model.manifests import parse_documents, parse_manifest
from admission.store.audit_log import Author
from admission.store.store import Store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from serve_processes import Replica

    from admission.sandbox.sandbox import Sandbox

Object = dict[str, Any]

SECONDS = 1200
"""Of a test with one of them. Each call of a command line like TorchX's takes a second of a processor."""
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


@asynccontextmanager
async def queued_in(
    sandbox: Sandbox, folder: Path, database_url: str, integrations: Mapping[str, Any]
) -> AsyncIterator[Replica]:
    """Sluice leads in the block. It starts nothing before `let` opens the queue; a user's kubeconfig is there."""
    port = free_port()
    (folder / "sluice.yaml").write_text(yaml.safe_dump({"integrations": dict(integrations)}))
    await sandbox.local("admin").create("nodes", "", NODE)
    sandbox.write_kubeconfig(folder / "kubeconfig", "sluice")
    (folder / "user.kubeconfig").write_text(yaml.safe_dump(sandbox.kubeconfig()))
    async with Store.open(database_url) as store:
        for document in parse_documents(QUEUES, source="QUEUES"):
            await store.queues.create(parse_manifest(document.body), author=Author("test"))
    flags = (
        f"--config={folder / 'sluice.yaml'}",
        f"--webhook-url=https://127.0.0.1:{port}",
        f"--webhook-address=127.0.0.1:{port}",
        f"--certificate-directory={folder / 'certificates'}",
    )
    async with serving(folder, database_url, *flags) as replica:
        await replica.until("leading")
        yield replica
    log = replica.log.decode()
    assert "Traceback" not in log, log


async def let(replica: Replica, policy: str) -> None:
    """Give the queue this stop policy; "None" opens it."""
    document: Object = list(yaml.safe_load_all(QUEUES))[1]
    body = {**document, "spec": {**document["spec"], "stopPolicy": policy}}
    assert await replica.put("/apis/sluice.dev/v1/clusterqueues/cq", body) == 200


class Driver:
    """A client that is a library, by a script that drives it: a line of words in, a line of JSON out."""

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
        """Wait until the client says that it is in one of these."""
        while (found := await self(client, "status", name)) not in states:
            assert "Error" not in found, found


@asynccontextmanager
async def driven(python: str, script: str, folder: Path, environment: Mapping[str, str]) -> AsyncIterator[Driver]:
    """The script runs in the block, with another python."""
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
