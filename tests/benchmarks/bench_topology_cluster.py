"""`sluice serve` beside 10,000 nodes in three levels and 100,000 pods: admissions, failing nodes, ungating, restart.

The sandbox is in this process, and has no controllers: Jobs are not run, and the benchmark itself creates pods.
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from admission.cli.demo.children import alongside, free_port, guarded, sluice
from admission.kinds.topology import GATE, REQUIRED_KEY
from admission.model.manifests import parse_manifest
from admission.model.topology import HOSTNAME
from admission.sandbox.sandbox import Sandbox
from admission.store.audit_log import Author
from admission.store.database.migrations import migrate
from admission.store.store import Store
from tests.benchmarks.measure import Figure, at_least, at_most, cpu_seconds, peak_mib, resident_mib

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from admission.sandbox.local import LocalClient

NODES = 10_000
PODS = 100_000
_IN_RACK, _RACKS_IN_BLOCK = 16, 40
_JOBS = 1_000
_UNGATED = 10_000
_FAILING = 0.05
"""Share of the nodes that fail in a minute, each for half a minute."""
_GPU = "nvidia.com/gpu"


async def run(nodes: int = NODES, pods: int = PODS) -> list[Figure]:
    """Measure all on SQLite."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        async with Sandbox(controllers=False) as sandbox:
            bench = _Bench(sandbox, Path(folder), nodes)
            bare = await bench.memory_without_topology()
            await bench.fill(pods)
            return [figure async for figure in bench.figures(bare)]


@dataclass
class _Bench:
    sandbox: Sandbox
    directory: Path
    nodes: int

    def __post_init__(self) -> None:
        self.admin: LocalClient = self.sandbox.local("admin")
        self.sandbox.write_kubeconfig(self.directory / "kubeconfig", "sluice")
        self.url = f"sqlite:///{self.directory / 'sluice.db'}"
        self.numbers = count()

    async def memory_without_topology(self) -> float:
        """Return the memory of `serve` in MiB before any node or pod exists."""
        await migrate(self.url)
        async with Store.open(self.url) as store:
            for document in _queues():
                await store.queues.create(parse_manifest(document), author=Author("benchmark"))
        async with self.serving() as pid:
            await self.admin.create("jobs", "default", _job("plain", pods=1, queue="plain"))
            await self.started("plain")
            return resident_mib(pid)

    async def fill(self, pods: int) -> None:
        """Create the nodes, and pods of others on them."""
        for number in range(self.nodes):
            node = await self.admin.create("nodes", "", _node(number))
            name = node["metadata"]["name"]
            await self.admin.patch("nodes", "", name, {"spec": {"taints": None}})  # it has that of a node not ready
            await self.ready(name, "True")
        for number in range(pods):
            await self.admin.create("pods", "default", _other_pod(number, number % self.nodes))

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[int]:
        """Run `sluice serve` during the block; gives its pid."""
        arguments = ("serve", "--kubeconfig", str(self.directory / "kubeconfig"), "--database-url", self.url)
        arguments += (f"--api-address=127.0.0.1:{free_port()}",)
        environment = {"SLUICE_ADMIN_TOKEN": secrets.token_hex(16)}
        log = self.directory / "serve.log"
        async with sluice("Sluice", *arguments, log=log, environment=environment) as child, guarded(child):
            yield child.process.pid

    async def started(self, name: str) -> dict[str, Any]:
        """Wait until a Job is started, and return it."""
        while (job := self.admin.get("jobs", "default", name))["spec"]["suspend"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return job

    async def figures(self, bare: float) -> AsyncIterator[Figure]:
        """Yield all figures; `bare`: memory in MiB without nodes and pods."""
        size = f"{self.nodes:,} nodes, "
        async with self.timed_start() as (pid, seconds, cpu):
            yield at_most(f"{size}first start until a Job is placed", seconds, 20, "s", digits=1)
            yield Figure("of which processor time of `sluice serve`", f"{cpu:.1f} s")
            async for figure in self.bursts(pid):
                yield figure
            async for figure in self.ungating(pid):
                yield figure
            yield at_most("memory of trees, nodes and pods", resident_mib(pid) - bare, 400, "MiB", digits=0)
            yield Figure("memory of `sluice serve` at its highest", f"{peak_mib(pid):.0f} MiB")
        async with self.timed_start() as (_, seconds, cpu):
            yield at_most(f"restart with {2 * _JOBS} workloads until a Job is placed", seconds, 20, "s", digits=1)
            yield Figure("of which processor time of `sluice serve`", f"{cpu:.1f} s")

    @asynccontextmanager
    async def timed_start(self) -> AsyncIterator[tuple[int, float, float]]:
        """Start `serve` with one Job more; gives the pid, and the seconds until that is placed, also of processor."""
        name = f"first-{next(self.numbers)}"
        await self.admin.create("jobs", "default", _job(name))
        began = time.perf_counter()
        async with self.serving() as pid:
            await self.started(name)
            yield pid, time.perf_counter() - began, cpu_seconds(pid)

    async def bursts(self, pid: int) -> AsyncIterator[Figure]:
        """Yield the rate at which Jobs that need a rack are admitted, also while nodes fail."""
        for what, disturbed in (("", False), (", while 5 % of the nodes fail a minute", True)):
            cpu, began = cpu_seconds(pid), time.perf_counter()
            if disturbed:
                async with alongside(self.failing_nodes()):
                    await self.burst()
            else:
                await self.burst()
            seconds, cpu = time.perf_counter() - began, cpu_seconds(pid) - cpu
            yield at_least(f"burst of {_JOBS} Jobs of 8 pods in a rack{what}", _JOBS / seconds, 100, "admissions/s")
            yield Figure("processor time of `sluice serve` for each", f"{1000 * cpu / _JOBS:.2f} ms")

    async def burst(self) -> None:
        names = [f"burst-{next(self.numbers)}" for _ in range(_JOBS)]
        for at, name in enumerate(names):
            await self.admin.create("jobs", "default", _job(name))
            if not at % 20:
                await asyncio.sleep(0)  # the sandbox answers in this loop
        for name in names:
            await self.started(name)

    async def failing_nodes(self) -> None:
        """Let one node after the other fail, and recover half a minute later."""
        pause = 60 / (_FAILING * self.nodes)
        down: list[tuple[float, str]] = []
        for number in count(0, 7):
            name = f"node-{number % self.nodes:05}"
            await self.ready(name, "False")
            down.append((time.perf_counter() + 30, name))
            while down[0][0] < time.perf_counter():
                await self.ready(down.pop(0)[1], "True")
            await asyncio.sleep(pause)

    async def ready(self, name: str, status: str) -> None:
        condition = {"type": "Ready", "status": status}
        await self.admin.patch("nodes", "", name, {"status": {"conditions": [condition]}}, subresource="status")

    async def ungating(self, pid: int) -> AsyncIterator[Figure]:
        """Yield how fast gated pods of one Job get their nodes."""
        name = f"large-{next(self.numbers)}"
        await self.admin.create("jobs", "default", _job(name, pods=_UNGATED, level="", indexed=True))
        job = await self.started(name)
        cpu, began = cpu_seconds(pid), time.perf_counter()
        for number in range(_UNGATED):
            await self.admin.create("pods", "default", _pod_of(job, number))
            if not number % 20:
                await asyncio.sleep(0)
        while any(map(_gated, self.pods_of(job))):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        seconds, cpu = time.perf_counter() - began, cpu_seconds(pid) - cpu
        yield at_least(f"pods of a Job of {_UNGATED}, created and ungated", _UNGATED / seconds, 1000, "pods/s")
        yield Figure("processor time of `sluice serve` for each pod", f"{1000 * cpu / _UNGATED:.2f} ms")

    def pods_of(self, job: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for number in range(_UNGATED):
            yield self.admin.get("pods", "default", f"{job['metadata']['name']}-{number}")


def _gated(pod: dict[str, Any]) -> bool:
    return any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates") or ())


def _node(number: int) -> dict[str, Any]:
    rack, name = number // _IN_RACK, f"node-{number:05}"
    labels = {"pool": "gpu", "block": f"block-{rack // _RACKS_IN_BLOCK:02}", "rack": f"rack-{rack:03}", HOSTNAME: name}
    amounts = {_GPU: "8", "cpu": "96", "memory": "1Ti", "pods": "110"}
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def _other_pod(number: int, node: int) -> dict[str, Any]:
    container = {"name": "agent", "image": "x", "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}
    return {"metadata": {"name": f"agent-{number}"}, "spec": {"nodeName": f"node-{node:05}", "containers": [container]}}


def _job(
    name: str, *, pods: int = 8, level: str = "rack", indexed: bool = False, queue: str = "training"
) -> dict[str, Any]:
    requests = {"cpu": "1", _GPU: "1"} if queue == "training" else {"cpu": "1"}
    container = {"name": "main", "image": "x", "resources": {"requests": requests, "limits": requests}}
    annotations = {REQUIRED_KEY: level} if level else {}
    template = {"metadata": {"annotations": annotations}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    spec: dict[str, Any] = {"suspend": True, "parallelism": pods, "completions": pods, "template": template}
    if indexed:
        spec["completionMode"] = "Indexed"
    return {"metadata": {"name": name, "labels": {"sluice.dev/queue-name": queue}}, "spec": spec}


def _pod_of(job: dict[str, Any], index: int) -> dict[str, Any]:
    pod: dict[str, Any] = orjson.loads(orjson.dumps(job["spec"]["template"]))
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
    labels = {**(pod["metadata"].get("labels") or {}), "batch.kubernetes.io/job-completion-index": str(index)}
    pod["metadata"] |= {"name": f"{name}-{index}", "labels": labels, "ownerReferences": [owner]}
    return pod


def _queues() -> Iterator[dict[str, Any]]:
    version = {"apiVersion": "sluice.dev/v1"}
    levels = [{"nodeLabel": label} for label in ("block", "rack", HOSTNAME)]
    yield {**version, "kind": "Topology", "metadata": {"name": "dc"}, "spec": {"levels": levels}}
    spec = {"nodeLabels": {"pool": "gpu"}, "topologyName": "dc"}
    yield {**version, "kind": "ResourceFlavor", "metadata": {"name": "gpu"}, "spec": spec}
    yield {**version, "kind": "ResourceFlavor", "metadata": {"name": "plain"}}
    for name, flavor, resources in (("training", "gpu", ("cpu", _GPU)), ("plain", "plain", ("cpu",))):
        quotas = [{"name": resource, "nominalQuota": 10**7} for resource in resources]
        groups = [{"coveredResources": list(resources), "flavors": [{"name": flavor, "resources": quotas}]}]
        spec = {"namespaceSelector": {}, "resourceGroups": groups}
        yield {**version, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}
        metadata = {"name": name, "namespace": "default"}
        yield {**version, "kind": "LocalQueue", "metadata": metadata, "spec": {"clusterQueue": name}}
