"""Kubeflow's Python clients themselves, against Kubeflow (pretended) and `sluice serve`.

This needs them, and they are no dependency: `pip install kubeflow kubeflow-training` into an environment of its own,
whose python the variable KUBEFLOW names. Neither KubeRay's nor JobSet's Python client is on PyPI.
"""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from custom_kinds import served
from grouped_kinds import pods_until
from ports import free_port
from serve_processes import serving
from test_torchx import NODE, QUEUES
from trainer import FRAMEWORKS, trainer

from admission.kinds import all_kinds
from admission.model.manifests import parse_documents, parse_manifest
from admission.sandbox.sandbox import Sandbox
from admission.store.audit_log import Author
from admission.store.store import Store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PYTHON = os.environ.get("KUBEFLOW", "")
Object = dict[str, Any]

pytestmark = pytest.mark.skipif(not PYTHON, reason="the variable KUBEFLOW names no python with Kubeflow's clients")

PYTORCH = "kubeflow.org/pytorchjob"
RUNTIME = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainingRuntime",
    "metadata": {"name": "torch", "namespace": "default", "labels": {"trainer.kubeflow.org/framework": "torch"}},
    "spec": {
        "mlPolicy": {"numNodes": 1, "torch": {}},
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "node",
                        "template": {
                            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                            "spec": {
                                "template": {
                                    "spec": {
                                        "restartPolicy": "Never",
                                        "containers": [{"name": "node", "image": "pytorch"}],
                                    }
                                }
                            },
                        },
                    }
                ]
            }
        },
    },
}


class Driver:
    """A client, by its commands."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def __call__(self, *words: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{' '.join(words)}\n".encode())
        while not (line := await self._process.stdout.readline()).startswith((b'"', b"[", b"null")):
            assert line, "the driver has ended"
        return json.loads(line)

    async def until(self, client: str, name: str, *states: str) -> None:
        while (found := await self(client, "status", name)) not in states:
            assert "Error" not in found, found


@asynccontextmanager
async def driver(folder: Path) -> AsyncIterator[Driver]:
    process = await asyncio.create_subprocess_exec(
        PYTHON, str(Path(__file__).with_name("kubeflow_driver.py")),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=folder,
        env={**os.environ, "KUBECONFIG": str(folder / "user.kubeconfig"), "HOME": str(folder)},
    )  # fmt: skip
    try:
        yield Driver(process)
    finally:
        process.kill()
        await process.wait()


def running(number: int) -> Any:
    def until(found: dict[str, Object]) -> bool:
        alive = [obj for obj in found.values() if "deletionTimestamp" not in obj["metadata"]]
        return sum(obj["status"].get("phase") == "Running" for obj in alive) == number == len(found)

    return until


@pytest.mark.parametrize("client", ["trainer", "training"])
async def test_a_user_of_kubeflow_names_a_queue_and_nothing_else(tmp_path: Path, database_url: str, client: str):
    port = free_port()
    frameworks = [*FRAMEWORKS, PYTORCH]
    (tmp_path / "sluice.yaml").write_text(yaml.safe_dump({"integrations": {"frameworks": frameworks}}))
    flags = (
        f"--config={tmp_path / 'sluice.yaml'}",
        f"--webhook-url=https://127.0.0.1:{port}",
        f"--webhook-address=127.0.0.1:{port}",
        f"--certificate-directory={tmp_path / 'certificates'}",
    )
    (pytorch,) = all_kinds(frameworks=(PYTORCH,))
    async with (
        Sandbox(speed=1) as sandbox,
        trainer(sandbox, "2.2"),
        served(sandbox, pytorch),
        Store.open(database_url) as store,
    ):
        admin = sandbox.local("admin")
        await admin.create("nodes", "", NODE)
        await admin.create("trainingruntimes", "default", RUNTIME)
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        (tmp_path / "user.kubeconfig").write_text(yaml.safe_dump(sandbox.kubeconfig()))
        for document in parse_documents(QUEUES, source="QUEUES"):
            await store.queues.create(parse_manifest(document.body), author=Author("test"))
        async with serving(tmp_path, database_url, *flags) as replica, driver(tmp_path) as sdk:
            await replica.until("leading")

            async def open_queue(policy: str) -> None:
                document: Object = list(yaml.safe_load_all(QUEUES))[1]
                body = {**document, "spec": {**document["spec"], "stopPolicy": policy}}
                assert await replica.put("/apis/sluice.dev/v1/clusterqueues/cq", body) == 200

            waits = ("Created", "Suspended")
            assert await sdk(client, "submit", "first") == "first"
            await sdk.until(client, "first", *waits)
            assert await sdk(client, "list") == ["first"]
            assert await sdk(client, "logs", "first") == []
            await sdk(client, "delete", "first")
            while await sdk(client, "list"):
                pass
            await sdk(client, "submit", "second")
            await open_queue("None")
            await pods_until(admin, "default", running(2))
            await sdk.until(client, "second", "Running")
            assert await sdk(client, "logs", "second")
            await open_queue("HoldAndDrain")
            await pods_until(admin, "default", lambda found: not found)
            await sdk.until(client, "second", *waits)
            await open_queue("None")
            for name in await pods_until(admin, "default", running(2)):
                await admin.patch("pods", "default", name, {"status": {"phase": "Succeeded"}}, subresource="status")
            await sdk.until(client, "second", "Complete", "Succeeded")
            assert await sdk(client, "list") == ["second"]
            await sdk(client, "logs", "second")
            await sdk(client, "delete", "second")
            await pods_until(admin, "default", lambda found: not found)
        assert "Traceback" not in (log := replica.log.decode()), log
