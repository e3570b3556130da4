"""`sluice serve` beside 100 to 10,000 nodes in three levels, with ten pods each: admissions, ungating, restart.

The sandbox (`large_sandbox`) has no controllers: the benchmark itself creates the pods of Jobs. What happens is seen by
watches. `serve`, sandbox and benchmark share the processors; the processor time of each is listed.
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from admission.cli.demo.children import alongside, free_port, guarded, sluice
from admission.cluster.client import Client
from admission.cluster.informer import Informer
from admission.kinds.topology import GATE, REQUIRED_KEY
from admission.model.manifests import parse_manifest
from admission.model.topology import HOSTNAME
from admission.store.audit_log import Author
from admission.store.database.migrations import migrate
from admission.store.store import Store
from tests.benchmarks.large_sandbox import GPU, large_sandbox, readiness
from tests.benchmarks.measure import Figure, Watched, at_least, at_most, cpu_seconds, peak_mib, resident_mib
from tests.queue_objects import cluster_queue, flavor, local_queue, manifest, topology

SIZES = (100, 1_000, 10_000)
"""Numbers of nodes."""
_PODS = 10
"""Pods of others on each."""
_JOBS = 1_000
_UNGATED = 10_000
_FAILING = 0.05
"""Share of the nodes that fail in a minute, each for half a minute."""
_AT_ONCE = 16
"""Requests of the benchmark that are under way."""
_JOBS_PATH = "/apis/batch/v1/namespaces/default/jobs"
_PODS_PATH = "/api/v1/namespaces/default/pods"


async def run() -> list[Figure]:
    """Measure clusters of all sizes. There are goals for the largest one."""
    return [figure for nodes in SIZES for figure in await measured(nodes)]


async def measured(nodes: int) -> list[Figure]:
    """Measure one cluster, with SQLite."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        directory = Path(folder)
        async with (
            large_sandbox(directory, nodes=nodes, pods=_PODS * nodes) as sandbox,
            Client.from_kubeconfig(str(directory / "admin")) as admin,
        ):
            bench = _Bench(admin, directory, nodes, sandbox)
            async with alongside(bench.jobs.follow()), alongside(bench.pods.follow()):
                return [figure async for figure in bench.figures(judged=nodes == max(SIZES))]


@dataclass
class _Spent:
    """What something took."""

    number: int
    """How often it happened; 0: it is not divided."""
    seconds: float = 0.0
    processor: dict[str, float] = field(default_factory=dict)
    """Processor time in seconds by process."""

    def figure(self) -> Figure:
        unit, factor = ("ms", 1000 / self.number) if self.number else ("s", 1.0)
        used = (f"{name} {factor * seconds:.2f} {unit}" for name, seconds in self.processor.items())
        return Figure(f"processor time{' of each' if self.number else ''}", ", ".join(used))


@dataclass
class _Bench:
    admin: Client
    directory: Path
    nodes: int
    sandbox: int
    """Its pid."""
    serve: int | None = None
    """The pid of `sluice serve`."""

    def __post_init__(self) -> None:
        self.url = f"sqlite:///{self.directory / 'sluice.db'}"
        self.numbers = count()
        self.jobs = Watched(Informer(self.admin, _JOBS_PATH), lambda job: not job["spec"]["suspend"])
        pods = Informer(self.admin, _PODS_PATH, label_selector="batch.kubernetes.io/job-completion-index")
        self.pods = Watched(pods, lambda pod: not _gated(pod) and HOSTNAME in pod["spec"].get("nodeSelector", {}))

    async def memory_without_topology(self) -> float:
        """Return the memory of `serve` in MiB while no flavor names a topology; then one does."""
        await migrate(self.url)
        topology, plain = _queues()
        await self.write(plain)
        async with self.serving() as pid:
            await self.create([_job("plain", pods=1, queue="plain")])
            await self.jobs.until(["plain"])
            bare = resident_mib(pid)
        await self.write(topology)
        return bare

    async def write(self, documents: Iterable[dict[str, Any]]) -> None:
        async with Store.open(self.url) as store:
            for document in documents:
                await store.queues.create(parse_manifest(document), author=Author("benchmark"))

    async def create(self, objects: Iterable[dict[str, Any]], path: str = _JOBS_PATH) -> None:
        """Create Jobs or pods, several at once."""
        left = iter(objects)

        async def user() -> None:
            for item in left:
                await self.admin.create(path, item)

        async with asyncio.TaskGroup() as users:
            for _ in range(_AT_ONCE):
                users.create_task(user())

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[int]:
        """Run `sluice serve` during the block; gives its pid."""
        arguments = ("serve", "--kubeconfig", str(self.directory / "sluice"), "--database-url", self.url)
        arguments += (f"--api-address=127.0.0.1:{free_port()}",)
        environment = {"SLUICE_ADMIN_TOKEN": secrets.token_hex(16)}
        log = self.directory / "serve.log"
        async with sluice("Sluice", *arguments, log=log, environment=environment) as child, guarded(child):
            self.serve = child.process.pid
            yield child.process.pid
        self.serve = None

    async def figures(self, *, judged: bool) -> AsyncIterator[Figure]:
        """Yield all figures; those of goals if `judged`."""
        async for figure in self._figures():
            yield replace(figure, what=f"{self.nodes:,} nodes: {figure.what}", met=figure.met if judged else None)

    async def _figures(self) -> AsyncIterator[Figure]:
        bare = await self.memory_without_topology()
        async with self.timed_start("first start until a Job is placed") as (pid, figures):
            for figure in figures:
                yield figure
            yield at_most("memory of trees, nodes and pods", resident_mib(pid) - bare, 400, "MiB", digits=0)
            for what, disturbed in (("", False), (", while 5 % of the nodes fail a minute", True)):
                async with self.spent(_JOBS) as spent, AsyncExitStack() as stack:
                    if disturbed:
                        await stack.enter_async_context(alongside(self.failing_nodes()))
                    await self.burst()
                what = f"burst of {_JOBS} Jobs of 8 pods in a rack{what}"
                yield at_least(what, _JOBS / spent.seconds, 100, "admissions/s")
                yield spent.figure()
            large = f"large-{next(self.numbers)}"
            await self.create([_job(large, pods=_UNGATED, level="", indexed=True)])
            await self.jobs.until([large])
            yield at_most("memory with workloads and what they left", resident_mib(pid) - bare, 400, "MiB", digits=0)
            yield Figure("memory of `sluice serve` at its highest", f"{peak_mib(pid):.0f} MiB")
        async with self.timed_start(f"restart with {2 * _JOBS} workloads until a Job is placed") as (_, figures):
            for figure in figures:
                yield figure
        for figure in await self.ungated(large):
            yield figure

    @asynccontextmanager
    async def timed_start(self, what: str) -> AsyncIterator[tuple[int, list[Figure]]]:
        """Start `serve` with one Job more; gives the pid, and how long that took until it was placed."""
        name = f"first-{next(self.numbers)}"
        await self.create([_job(name)])
        async with AsyncExitStack() as stack:
            async with self.spent() as spent:
                pid = await stack.enter_async_context(self.serving())
                await self.jobs.until([name])
            yield pid, [at_most(what, spent.seconds, 20, "s", digits=1), spent.figure()]

    async def ungated(self, name: str) -> list[Figure]:
        """Measure how fast gated pods of one Job, which are there when `serve` starts, get their nodes."""
        pods = [_pod_of(self.jobs.done[name], number) for number in range(_UNGATED)]
        await self.create(pods, _PODS_PATH)
        names = [pod["metadata"]["name"] for pod in pods]
        async with self.serving():
            await self.pods.any()
            async with self.spent(_UNGATED) as spent:
                await self.pods.until(names)
        rate = at_least(f"pods of a Job of {_UNGATED}, ungated after a start", _UNGATED / spent.seconds, 1000, "pods/s")
        return [rate, spent.figure()]

    @asynccontextmanager
    async def spent(self, number: int = 0) -> AsyncIterator[_Spent]:
        """Measure the duration of the block, and the processor time that each process used meanwhile.

        `number` of things that happen in it; 0: it is not divided.
        """
        spent = _Spent(number)
        before, began = self._processor(), time.perf_counter()
        yield spent
        spent.seconds = time.perf_counter() - began
        spent.processor = {name: used - before.get(name, 0.0) for name, used in self._processor().items()}

    def _processor(self) -> dict[str, float]:
        serve = cpu_seconds(self.serve) if self.serve is not None else 0.0
        return {"`serve`": serve, "sandbox": cpu_seconds(self.sandbox), "benchmark": time.process_time()}

    async def burst(self) -> None:
        names = [f"burst-{next(self.numbers)}" for _ in range(_JOBS)]
        await self.create(map(_job, names))
        await self.jobs.until(names)

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
        await self.admin.patch(f"/api/v1/nodes/{name}/status", readiness(status))


def _gated(pod: dict[str, Any]) -> bool:
    return any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates") or ())


def _job(
    name: str, *, pods: int = 8, level: str = "rack", indexed: bool = False, queue: str = "training"
) -> dict[str, Any]:
    requests = {"cpu": "1", GPU: "1"} if queue == "training" else {"cpu": "1"}
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


def _queues() -> Iterator[list[dict[str, Any]]]:
    """Yield the objects that need a topology, and those that need none."""
    spec = {"nodeLabels": {"pool": "gpu"}, "topologyName": "dc"}
    placed = (topology("dc", "block", "rack", HOSTNAME), manifest("ResourceFlavor", "gpu", spec=spec))
    yield [*placed, *_queue("training", "gpu", ("cpu", GPU))]
    yield [flavor("plain"), *_queue("plain", "plain", ("cpu",))]


def _queue(name: str, flavor: str, resources: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    yield cluster_queue(name, quotas={flavor: dict.fromkeys(resources, 10**7)})
    yield local_queue(name, target=name)
