"""Kubeflow's real Python clients against a simulated Kubeflow and `sluice serve`.

The clients are no dependency: `pip install kubeflow kubeflow-training` into an environment of its own, whose python the
variable KUBEFLOW names. JobSet has no Python client on PyPI.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from custom_kinds import served
from external_clients import SECONDS, driven, queued_in, set_stop_policy
from grouped_kinds import pods_until
from trainer import FRAMEWORKS, trainer

from admission.kinds import all_kinds
from admission.sandbox.sandbox import Sandbox

PYTHON = os.environ.get("KUBEFLOW", "")
Object = dict[str, Any]

pytestmark = [
    pytest.mark.client,
    pytest.mark.skipif(not PYTHON, reason="the variable KUBEFLOW names no python with Kubeflow's clients"),
    pytest.mark.timeout(SECONDS),
]

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


RUNS = {"trainer": "Created", "training": "Running"}
"""State of a job that runs. The SDK of Trainer says Running only without conditions; Trainer keeps Suspended=False."""


def running(number: int) -> Any:
    def until(found: dict[str, Object]) -> bool:
        alive = [obj for obj in found.values() if "deletionTimestamp" not in obj["metadata"]]
        return sum(obj["status"].get("phase") == "Running" for obj in alive) == number == len(found)

    return until


@pytest.mark.parametrize("client", ["trainer", "training"])
async def test_kubeflow_clients_work_unchanged_apart_from_the_queue_name(
    tmp_path: Path, database_url: str, client: str
):
    (pytorch,) = all_kinds(frameworks=(PYTORCH,))
    async with Sandbox(speed=1) as sandbox, trainer(sandbox, "2.2"), served(sandbox, pytorch):
        admin = sandbox.local("admin")
        await admin.create("trainingruntimes", "default", RUNTIME)
        async with (
            queued_in(sandbox, tmp_path, database_url, {"frameworks": [*FRAMEWORKS, PYTORCH]}) as replica,
            driven(PYTHON, "kubeflow_driver.py", tmp_path, os.environ) as sdk,
        ):
            waits = ("Created", "Suspended")
            assert await sdk(client, "submit", "first") == "first"
            await sdk.until(client, "first", *waits)
            assert await sdk(client, "list") == ["first"]
            assert await sdk(client, "logs", "first") == []
            await sdk(client, "delete", "first")
            while await sdk(client, "list"):
                pass
            await sdk(client, "submit", "second")
            await set_stop_policy(replica, "None")
            await pods_until(admin, "default", running(2))
            await sdk.until(client, "second", RUNS[client])
            assert await sdk(client, "logs", "second")
            await set_stop_policy(replica, "HoldAndDrain")
            await pods_until(admin, "default", lambda found: not found)
            await sdk.until(client, "second", *waits)
            await set_stop_policy(replica, "None")
            for name in await pods_until(admin, "default", running(2)):
                await admin.patch("pods", "default", name, {"status": {"phase": "Succeeded"}}, subresource="status")
            await sdk.until(client, "second", "Complete", "Succeeded")
            assert await sdk(client, "list") == ["second"]
            await sdk(client, "logs", "second")
            await sdk(client, "delete", "second")
            await pods_until(admin, "default", lambda found: not found)
