"""KubeRay's real Python client against a simulated KubeRay and `sluice serve`.

The client is not on PyPI, but part of `codeflare-sdk`: `pip install codeflare-sdk` into an environment of its own,
whose python the variable KUBERAY names.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from custom_kinds import served
from external_clients import SECONDS, driven, queued_in, set_stop_policy
from grouped_kinds import pods_until

from admission.kinds import all_kinds
from admission.sandbox.sandbox import Sandbox

PYTHON = os.environ.get("KUBERAY", "")
Object = dict[str, Any]

pytestmark = [
    pytest.mark.client,
    pytest.mark.skipif(not PYTHON, reason="the variable KUBERAY names no python with KubeRay's client"),
    pytest.mark.timeout(SECONDS),
]

FRAMEWORKS = ("batch/job", "ray.io/raycluster", "ray.io/rayjob")
KINDS = all_kinds(frameworks=FRAMEWORKS)


def running(number: int) -> Any:
    def until(found: dict[str, Object]) -> bool:
        alive = [obj for obj in found.values() if "deletionTimestamp" not in obj["metadata"]]
        return sum(obj["status"].get("phase") == "Running" for obj in alive) == number == len(found)

    return until


def uids(found: dict[str, Object]) -> set[str]:
    return {obj["metadata"]["uid"] for obj in found.values()}


async def test_kuberay_client_works_unchanged_apart_from_the_queue_label(tmp_path: Path, database_url: str):
    cluster, job = (KINDS.get("ray.io", kind) for kind in ("RayCluster", "RayJob"))
    async with (
        Sandbox(speed=1) as sandbox,
        served(sandbox, cluster),
        served(sandbox, job),
        queued_in(sandbox, tmp_path, database_url, {"frameworks": list(FRAMEWORKS)}) as replica,
        driven(PYTHON, "kuberay_driver.py", tmp_path, os.environ) as client,
    ):
        admin = sandbox.local("admin")

        # A RayCluster: it waits, runs, is scaled, evicted, runs again and is deleted.
        assert await client("cluster", "submit", "ray") == "ray"
        await client.until("cluster", "ray", "suspended")
        assert await client("cluster", "list") == ["ray"]
        assert not admin.list("pods", "default")
        await set_stop_policy(replica, "None")
        assert await client("cluster", "wait", "ray") == "True"
        assert await client("cluster", "scale", "ray", "3") == "True"
        await pods_until(admin, "default", running(4))
        await set_stop_policy(replica, "HoldAndDrain")
        await pods_until(admin, "default", running(0))
        await client.until("cluster", "ray", "suspended")
        await set_stop_policy(replica, "None")
        assert await client("cluster", "wait", "ray") == "True"
        await client("cluster", "delete", "ray")
        await pods_until(admin, "default", running(0))

        # A RayJob: a waiting one that is resumed by its user still waits; one that is suspended by its user runs again.
        await set_stop_policy(replica, "Hold")
        assert await client("job", "submit", "train") == "train"
        assert await client("job", "resubmit", "train") == "True"
        assert admin.get("rayjobs", "default", "train")["spec"]["suspend"] is True
        await set_stop_policy(replica, "None")
        await client.until("job", "train", "Running")
        before = uids(await pods_until(admin, "default", running(2)))
        assert await client("job", "suspend", "train") == "True"
        await pods_until(admin, "default", lambda found: running(2)(found) and not before & uids(found))
        await set_stop_policy(replica, "HoldAndDrain")
        await pods_until(admin, "default", running(0))
        await set_stop_policy(replica, "None")
        await pods_until(admin, "default", running(2))
        # Without a submitter KubeRay asks Ray for the end of a job; here nobody can be asked.
        over = {"status": {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}}
        await admin.patch("rayjobs", "default", "train", over, subresource="status")
        assert await client("job", "wait", "train") == "True"
        assert await client("job", "status", "train") == "Complete"
        assert await client("job", "list") == ["train"]
        await client("job", "delete", "train")
        await pods_until(admin, "default", running(0))
