"""`sluice serve` as one or several processes, and the node, queues and Jobs for their tests."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from ports import free_port

from admission.cluster.client import Client
from admission.sandbox.sandbox import Sandbox
from admission.store.database.migrations import ensure_ready
from admission.store.records import WorkloadRecord
from admission.store.store import Store
from tests.forking import Forked
from tests.queue_objects import create_objects

Object = dict[str, Any]

TOKEN = "a-token"
AUTHORIZATION = {"Authorization": f"Bearer {TOKEN}"}
RBAC = Path(__file__).parents[2] / "deploy" / "rbac" / "sluice.yaml"
_TOKEN_OF_SLUICE = "/api/v1/namespaces/sluice-system/serviceaccounts/sluice/token"


async def sluice(*arguments: str, files: int | None = None, forks: bool = True, **environment: str) -> Forked:
    usual = {"PATH": "/usr/bin:/bin", "SLUICE_ADMIN_TOKEN": TOKEN}
    return await Forked.start(*arguments, environment=usual | environment, files=files, forks=forks)


@dataclass
class Replica:
    """One `sluice serve` process."""

    process: Forked
    url: str
    log: bytes = b""

    async def get(self, path: str, *, token: str | None = TOKEN, seconds: float = 20.0) -> tuple[int, str]:
        """Status and body; status 0 without an answer in that time."""
        timeout = aiohttp.ClientTimeout(total=seconds)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            async with (
                aiohttp.ClientSession(self.url, timeout=timeout) as session,
                session.get(path, headers=headers) as response,
            ):
                return response.status, await response.text()
        except (aiohttp.ClientError, TimeoutError):
            return 0, ""

    async def put(self, path: str, body: Object) -> int:
        async with (
            aiohttp.ClientSession(self.url) as session,
            session.put(path, json=body, headers=AUTHORIZATION) as response,
        ):
            return response.status

    async def role(self) -> str:
        """The role that the replica reports; empty without an answer."""
        status, body = await self.get("/debug/statistics")
        if status != 200:
            return ""
        return str(json.loads(body)["role"])

    async def until(self, role: str) -> None:
        """Wait until the replica reports a role that begins so; the time limit of the test ends a wait in vain."""
        with self._log_printed_on_failure():
            while not (await self.role()).startswith(role):
                assert self.process.returncode is None
                await asyncio.sleep(0.02)

    async def until_ready(self) -> None:
        with self._log_printed_on_failure():
            while (await self.get("/readyz"))[0] != 200:
                assert self.process.returncode is None
                await asyncio.sleep(0.02)

    @contextmanager
    def _log_printed_on_failure(self) -> Iterator[None]:
        """Print the log of the replica if a wait fails."""
        try:
            yield
        except (AssertionError, asyncio.CancelledError):
            print(self.log.decode())
            raise

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


async def leader_and_follower(one: Replica, other: Replica) -> tuple[Replica, Replica]:
    """Wait until one of two replicas leads; returns leader and follower."""
    leads = {asyncio.create_task(each.until("leading")): each for each in (one, other)}
    done, waiting = await asyncio.wait(leads, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    return (one, other) if leads[done.pop()] is one else (other, one)


def gate_flags(folder: Path, port: int = 0) -> tuple[str, ...]:
    """Flags of `serve` for its gate, with certificates in a directory of `folder`. `port`: a free one unless given."""
    address = f"127.0.0.1:{port or free_port()}"
    return (
        f"--webhook-url=https://{address}",
        f"--webhook-address={address}",
        f"--certificate-directory={folder / 'certificates'}",
    )


@asynccontextmanager
async def serving(
    folder: Path,
    database_url: str,
    *more: str,
    port: int = 0,
    files: int | None = None,
    forks: bool = True,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Replica]:
    """Run a replica on the sandbox whose kubeconfig is in `folder`; it is terminated at the end of the block.

    `files`: limit of open files. `forks`: whether the process of its gate is forked (`tests/forking.py`).
    """
    port = port or free_port()
    process = await sluice(
        "serve",
        f"--kubeconfig={folder / 'kubeconfig'}",
        f"--database-url={database_url}",
        f"--api-address=127.0.0.1:{port}",
        *more,
        files=files,
        forks=forks,
        **(environment or {}),
    )
    replica = Replica(process, f"http://127.0.0.1:{port}")
    draining = asyncio.create_task(_drain(replica))
    try:
        yield replica
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        await process.wait()
        await draining


@asynccontextmanager
async def sandbox_with_rights(directory: Path, *more: Object) -> AsyncIterator[Sandbox]:
    """Yield a cluster in which `sluice` has the published rights and `more`; its token is in `directory/kubeconfig`."""
    async with Sandbox(speed=60) as opened:
        admin = opened.local("admin")
        await admin.create("namespaces", "", {"metadata": {"name": "sluice-system"}})
        for document in (*yaml.load_all(RBAC.read_text(), yaml.CSafeLoader), *more):
            await admin.create(f"{document['kind'].lower()}s", document["metadata"].get("namespace", ""), document)
        opened.write_kubeconfig(directory / "admin.kubeconfig")
        async with Client.from_kubeconfig(str(directory / "admin.kubeconfig")) as client:
            issued = await client.create(_TOKEN_OF_SLUICE, {"spec": {"expirationSeconds": 10**6}})
        kubeconfig = opened.kubeconfig()
        kubeconfig["users"][0]["user"]["token"] = issued["status"]["token"]
        (directory / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
        await admin.create("nodes", "", NODE)
        yield opened


async def _drain(replica: Replica) -> None:
    """Read the log of the process, since a full pipe would block it."""
    while line := await replica.process.stderr.readline():
        replica.log += line


def job(name: str, *, seconds: int = 30) -> Object:
    return {
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {
            "template": {
                "metadata": {"annotations": {"sandbox.sluice.dev/run-seconds": str(seconds)}},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1"}}}],
                },
            },
        },
    }


NODE = {
    "metadata": {"name": "node", "annotations": {"kwok.x-k8s.io/node": "fake"}},
    "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}, "capacity": {"cpu": "8"}},
}

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


async def until_job(sandbox: Sandbox, name: str, holds: Callable[[Object], bool]) -> None:
    """Wait until `holds` is true for a Job of the sandbox."""
    watcher = sandbox.local("admin").watch("jobs")
    async for batch in watcher:
        if any(obj["metadata"]["name"] == name and holds(obj) for _, _, obj, _ in batch):
            watcher.close()


async def all_complete(local: Any, count: int) -> None:
    """Wait until `count` Jobs have succeeded."""
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
    """Wait until Sluice has recorded the end of all `count` workloads, which is later than `all_complete`."""
    while True:
        records = (await store.workloads.list()).workloads
        if [record.state for record in records] == ["finished"] * count:
            return records
        await asyncio.sleep(0.02)


@asynccontextmanager
async def waits_recorded(folder: Path, database_url: str, *, jobs: int) -> AsyncIterator[str]:
    """Yield the address of a Sluice under which more Jobs have run than its quota of 4 CPUs allows at a time."""
    await ensure_ready(database_url)
    await create_objects(database_url, QUEUES)
    async with Sandbox(speed=60) as sandbox:
        sandbox.write_kubeconfig(folder / "kubeconfig", "sluice")
        local = sandbox.local("admin")
        await local.create("nodes", "", NODE)
        async with serving(folder, database_url) as replica:
            await replica.until_ready()
            for number in range(jobs):
                await local.create("jobs", "default", job(f"job-{number}", seconds=120))
            async with Store.open(database_url) as store:
                await all_finished(store, jobs)
            yield replica.url
