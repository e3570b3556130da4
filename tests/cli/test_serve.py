"""`sluice serve` as a process: it decides, it explains in one sentence why it cannot, it survives being killed."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
import pytest
import yaml

from admission.sandbox.sandbox import Sandbox
from admission.store.store import Store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from admission.store.records import WorkloadRecord

TOKEN = "a-token"

QUEUES = """
apiVersion: sluice.dev/v1
kind: ResourceFlavor
metadata: {name: default}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - {name: default, resources: [{name: cpu, nominalQuota: 4}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: default}
spec: {clusterQueue: cq}
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def sluice(*arguments: str, **environment: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "admission.cli.main",
        *arguments,
        env={"PATH": "/usr/bin:/bin", "SLUICE_ADMIN_TOKEN": TOKEN, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def finished(*arguments: str, **environment: str) -> tuple[int | None, str, str]:
    process = await sluice(*arguments, **environment)
    output, errors = await process.communicate()
    return process.returncode, output.decode(), errors.decode()


def error_of(text: str) -> str:
    """The one line that tells the user; the log before it is for others."""
    assert "Traceback" not in text, text
    (line,) = [line for line in text.splitlines() if line.startswith("error: ")]
    return line


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with Sandbox(speed=60) as sandbox:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        yield sandbox


@asynccontextmanager
async def serving(folder: Path, port: int, *more: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await sluice(
        "serve",
        f"--kubeconfig={folder / 'kubeconfig'}",
        f"--database-url=sqlite:///{folder / 'sluice.db'}",
        f"--api-address=127.0.0.1:{port}",
        *more,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


async def test_jobs_go_in_and_out_and_a_kill_loses_nothing(sandbox, tmp_path):
    """With webhooks over TLS, killed in the middle, started again."""
    port, webhook_port = free_port(), free_port()
    webhooks = (
        f"--webhook-url=https://127.0.0.1:{webhook_port}",
        f"--webhook-address=127.0.0.1:{webhook_port}",
        f"--certificate-directory={tmp_path / 'certificates'}",
    )
    (tmp_path / "queues.yaml").write_text(QUEUES)
    server = {"SLUICE_SERVER": f"http://127.0.0.1:{port}"}
    alice = sandbox.local("alice")
    admin = sandbox.local("admin")
    await admin.create("nodes", "", NODE)

    async with serving(tmp_path, port, *webhooks) as process:
        code, output, _ = await finished("apply", "-f", str(tmp_path / "queues.yaml"), **server)
        assert (code, output.splitlines()[-1]) == (0, "localqueue.sluice.dev/lq created")
        for number in range(12):
            created = await alice.create("jobs", "default", job(f"j{number}"))
            assert created["spec"]["suspend"] is True
            assert created["metadata"]["annotations"]["sluice.dev/submitted-by"] == "alice"
        process.send_signal(signal.SIGKILL)
        await process.wait()

    async with serving(tmp_path, port, *webhooks) as process:
        await all_complete(admin, 12)
        async with Store.open(f"sqlite:///{tmp_path / 'sluice.db'}") as store:
            records = await all_finished(store, 12)
        process.terminate()
        await process.wait()
        assert process.returncode == 0
    pods = [pod for pod in admin.list("pods") if pod["status"]["phase"] == "Succeeded"]
    assert len(pods) == 12
    assert {(record.state, record.outcome, record.workload.user) for record in records} == {
        ("finished", "Succeeded", "alice")
    }


async def test_a_second_sluice_on_the_same_file_says_so_and_stops(sandbox, tmp_path):
    port = free_port()
    async with serving(tmp_path, port) as first:
        await until_ready(port)
        code, _, errors = await finished(
            "serve", f"--kubeconfig={tmp_path / 'kubeconfig'}", f"--database-url=sqlite:///{tmp_path / 'sluice.db'}"
        )
        assert code == 1
        assert "another Sluice" in error_of(errors)
        assert first.returncode is None


async def test_a_port_that_is_taken(sandbox, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        async with serving(tmp_path, taken.getsockname()[1]) as process:
            _, errors = await process.communicate()
    assert process.returncode == 1
    assert "choose another address" in error_of(errors.decode())


async def test_the_token_is_asked_for(sandbox, tmp_path):
    port = free_port()
    async with serving(tmp_path, port), aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        await until_ready(port)
        for token in (None, "wrong"):
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            async with session.get("/debug/statistics", headers=headers) as response:
                assert response.status == 401
        async with session.get("/debug/statistics", headers={"Authorization": f"Bearer {TOKEN}"}) as response:
            assert response.status == 200
            assert (await response.json())["writeTransactions"] >= 1


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"SLUICE_ADMIN_TOKEN": ""}, "SLUICE_ADMIN_TOKEN is not set"),
        ({"SLUICE_KUBECONFIG": "/nowhere/kubeconfig"}, "no kubeconfig at /nowhere/kubeconfig"),
        ({"SLUICE_DATABASE_URL": "mysql://localhost/x"}, "postgresql://"),
        ({"SLUICE_DATABASE_URL": "sqlite:////nowhere/sluice.db"}, "/nowhere"),
        ({"SLUICE_DATABASE_URL": "postgresql://u:p@127.0.0.1:1/x"}, "127.0.0.1:1"),
        ({"SLUICE_LOG_LEVEL": "loud"}, "SLUICE_LOG_LEVEL"),
    ],
)
async def test_what_keeps_it_from_starting_is_one_sentence(tmp_path, environment, says):
    environment = {"SLUICE_DATABASE_URL": f"sqlite:///{tmp_path / 's.db'}", **environment}
    code, _, errors = await finished("serve", **environment)
    assert code == 1
    assert says in error_of(errors)


async def test_an_api_server_that_nobody_answers_at(tmp_path):
    dead = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"https://127.0.0.1:{free_port()}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(dead))
    async with serving(tmp_path, free_port()) as process:
        _, errors = await process.communicate()
    assert process.returncode == 1
    assert "check that the server is running" in error_of(errors.decode())


async def test_a_wrong_token_for_the_cluster(sandbox, tmp_path):
    config = sandbox.kubeconfig("sluice")
    config["users"][0]["user"]["token"] = "wrong"
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    async with serving(tmp_path, free_port()) as process:
        _, errors = await process.communicate()
    assert process.returncode == 1
    assert "401" in error_of(errors.decode())


async def test_an_unmigrated_postgresql_asks_for_sluice_migrate(sandbox, tmp_path, postgresql):
    await asyncio.to_thread(postgresql.execute, "DROP DATABASE IF EXISTS unmigrated", "CREATE DATABASE unmigrated")
    code, _, errors = await finished(
        "serve",
        f"--kubeconfig={tmp_path / 'kubeconfig'}",
        f"--database-url={postgresql.url('unmigrated')}",
        f"--api-address=127.0.0.1:{free_port()}",
    )
    assert code == 1
    assert "sluice migrate" in error_of(errors)


async def until_ready(port: int) -> None:
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        while True:
            try:
                async with session.get("/readyz") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientConnectionError:
                pass  # it is still starting: asked again until the test's time is over
            await asyncio.sleep(0.02)


async def all_complete(local, count: int) -> None:
    watcher = local.watch("jobs")
    done: set[str] = set()
    async for batch in watcher:
        for _, _, obj, _ in batch:
            conditions = obj.get("status", {}).get("conditions", ())
            if any(c["type"] == "Complete" and c["status"] == "True" for c in conditions):
                done.add(obj["metadata"]["name"])
        if len(done) == count:
            watcher.close()


async def all_finished(store: Store, count: int) -> tuple[WorkloadRecord, ...]:
    while True:
        records = (await store.workloads.list()).workloads
        if [record.state for record in records] == ["finished"] * count:
            return records
        await asyncio.sleep(0.02)


def job(name: str) -> dict:
    return {
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {
            "template": {
                "metadata": {"annotations": {"sandbox.sluice.dev/run-seconds": "30"}},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1"}}}],
                },
            }
        },
    }


NODE = {
    "metadata": {"name": "node", "annotations": {"kwok.x-k8s.io/node": "fake"}},
    "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}, "capacity": {"cpu": "8"}},
}
