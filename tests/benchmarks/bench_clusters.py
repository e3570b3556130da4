"""Twenty clusters of 500 nodes with 50,000 Jobs that wait, beside one cluster with as many nodes and Jobs.

Both run at the same time, each with a `sluice serve`, and get quota in turns, so that other load of the machine slows
both. Nothing runs (`large_sandbox`): what is measured is a Job's way to its unsuspension, seen by watches. Then Jobs of
a hub arrive at a constant rate, and are dispatched to 19 other clusters; none of these has other Jobs.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import text

from admission.cli.demo.children import alongside, guarded
from admission.cli.demo.stage import SLUICE_USER, DemoSluice, apply, running_sluice
from admission.cluster.client import Client
from admission.cluster.informer import Informer
from admission.store.database.connection import Location, connect
from tests.benchmarks.large_sandbox import GPU, QUEUE, large_sandbox, others, waiting_job
from tests.benchmarks.measure import Figure, Watched, at_least, at_most, cpu_seconds, percentile, resident_mib
from tests.queue_objects import cluster_queue, flavor, local_queue, manifest, resource_group

_CLUSTERS, _NODES, _WAITING = 20, 500, 50_000
_ROUNDS, _OF_ROUND = 5, 2_000
"""How often quota becomes free, and for how many Jobs."""
_DISPATCHED = ((100, 4), (200, 25))
"""How many Jobs are dispatched, and how many of them arrive in a second: one by one, and in the batches of a burst."""
_IDLE = 20.0
"""Seconds for which nothing is admitted."""
_DISPATCH = "dispatched"
_JOBS = "/apis/batch/v1/namespaces/default/jobs"
_API = "/apis/sluice.dev/v1"


async def run() -> list[Figure]:
    """Measure both."""
    async with AsyncExitStack() as stack:
        benches = [_Bench(clusters, _WAITING, _bench_folder(stack)) for clusters in (1, _CLUSTERS)]
        for bench in benches:
            await bench.enter(stack)
        one, many = benches
        async with asyncio.TaskGroup() as group:
            for bench in benches:
                group.create_task(bench.until_waiting())
        idle = [bench.processor() for bench in benches]
        await asyncio.sleep(_IDLE)
        idle = [bench.processor() - before for bench, before in zip(benches, idle, strict=True)]
        memory = [bench.memory() for bench in benches]
        for _ in range(_ROUNDS):
            for bench in benches:
                await bench.admit()
        each = _CLUSTERS - 1
        rates = [statistics.median(bench.rates) for bench in benches]
        figures = [
            Figure("one cluster: admissions", f"{rates[0]:.0f}/s; {one.cost()}"),
            Figure(f"{_CLUSTERS} clusters: admissions", f"{rates[1]:.0f}/s; {many.cost()}"),
            at_least("of one cluster's", 100 * rates[1] / rates[0], 90, "%"),
            Figure("memory of `serve`", f"{memory[0]:.0f} MiB with one cluster, {memory[1]:.0f} MiB with {_CLUSTERS}"),
            Figure("for each further cluster", f"{(memory[1] - memory[0]) / each:.1f} MiB"),
            Figure(
                "processor time of `serve` while it writes the Events of waiting Jobs",
                f"{1000 * idle[0] / _IDLE:.0f}m with one cluster, {1000 * idle[1] / _IDLE:.0f}m with {_CLUSTERS}",
            ),
            Figure("for each further cluster", f"{1000 * (idle[1] - idle[0]) / _IDLE / each:.1f}m"),
        ]
    async with AsyncExitStack() as stack:
        bench = _Bench(_CLUSTERS, 0, _bench_folder(stack))
        await bench.enter(stack)
        await asyncio.sleep(_IDLE)
        began = bench.processor()
        await asyncio.sleep(_IDLE)
        used = 1000 * (bench.processor() - began) / _IDLE
        at_rest = f"{used:.1f}m and {bench.memory():.0f} MiB with {_CLUSTERS} clusters"
        figures.append(Figure("`serve`, while nothing happens", at_rest))
        return [*figures, *[each for load in _DISPATCHED for each in await bench.dispatch(*load)]]


def _bench_folder(stack: AsyncExitStack) -> Path:
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-bench-")))


@dataclass
class _Bench:
    """Some clusters, and Sluice for them."""

    clusters: int
    waiting: int
    """Number of Jobs that wait in all of them."""
    directory: Path
    clients: dict[str, Client] = field(default_factory=dict)
    """An admin's, by cluster."""
    jobs: dict[str, Watched] = field(default_factory=dict)
    """The Jobs that are not suspended, by cluster."""
    rates: list[float] = field(default_factory=list)
    """Admissions in a second, by round."""
    spent: list[float] = field(default_factory=list)
    """Processor time of `serve` for each admission in seconds, by round."""

    async def enter(self, stack: AsyncExitStack) -> None:
        """Start all, until the end of the stack."""
        nodes, jobs = _NODES * _CLUSTERS // self.clusters, self.waiting // self.clusters
        sizes = {"clusters": self.clusters, "nodes": nodes, "pods": 0, "jobs": jobs}
        await stack.enter_async_context(large_sandbox(self.directory, **sizes))
        self.serving: DemoSluice = await stack.enter_async_context(
            running_sluice(self.directory, self.directory / "sluice", credentials=self.directory / "credentials")
        )
        await stack.enter_async_context(guarded(self.serving.child))
        for name in ("local", *others(self.clusters)):
            file = self.directory / ("admin" if name == "local" else f"admin-{name}")
            client = await stack.enter_async_context(Client.from_kubeconfig(str(file)))
            self.clients[name] = client
            self.jobs[name] = Watched(Informer(client, _JOBS), lambda job: not job["spec"]["suspend"])
            await stack.enter_async_context(alongside(self.jobs[name].follow()))
        self.hub = self.clients["local"]
        await apply(self.directory, self.serving, [*_queues(self.clusters)])

    async def until_waiting(self) -> None:
        """Wait until Sluice knows all Jobs of all clusters."""
        waiting = 0
        while waiting < self.waiting:
            await asyncio.sleep(0.5)
            report = await self.hub.get(f"{_API}/reports/clusters")
            waiting = sum(cluster["pendingWorkloads"] for cluster in report["items"])

    def processor(self) -> float:
        """Return the processor time of `serve` so far in seconds."""
        return cpu_seconds(self.serving.child.process.pid)

    def memory(self) -> float:
        """Return the memory of `serve` in MiB."""
        return resident_mib(self.serving.child.process.pid)

    async def admit(self) -> None:
        """Let quota become free for more Jobs, and measure how long it takes until they are unsuspended."""
        count = (len(self.rates) + 1) * _OF_ROUND
        began, spent = time.perf_counter(), self.processor()
        patch = {"spec": {"resourceGroups": [resource_group(**_waiting_quotas(count))]}}
        await self.hub.patch(f"{_API}/clusterqueues/waiting", patch)
        while sum(len(jobs.done) for jobs in self.jobs.values()) < count:  # noqa: ASYNC110  watches update it
            await asyncio.sleep(0.01)
        self.rates.append(_OF_ROUND / (time.perf_counter() - began))
        self.spent.append((self.processor() - spent) / _OF_ROUND)

    def cost(self) -> str:
        """Return the processor time of an admission, as text."""
        rates = ", ".join(f"{rate:.0f}" for rate in self.rates)
        return f"{1000 * statistics.median(self.spent):.2f} ms of processor time each (rounds: {rates})"

    async def dispatch(self, count: int, rate: int) -> list[Figure]:
        """Dispatch Jobs; measure the time from the decision, as the ledger has it, to the unsuspended copy."""
        names = [f"sent-{rate}-{number:04}" for number in range(count)]
        before, spent, began = await self.writes(), self.processor(), time.perf_counter()
        for number, name in enumerate(names):
            await asyncio.sleep(max(0.0, number / rate - (time.perf_counter() - began)))
            job = waiting_job(name, _DISPATCH)
            await self.hub.create(_JOBS, {**job, "spec": {**job["spec"], "managedBy": "sluice.dev/dispatch"}})
        await self.jobs["local"].until(names)
        writes, spent = await self.writes() - before, self.processor() - spent
        copied = {
            name: seen
            for cluster, jobs in self.jobs.items()
            if cluster != "local"
            for name, seen in jobs.times.items()
            if name in names
        }
        used = sum(any(name in jobs.done for name in names) for jobs in self.jobs.values()) - 1
        decided = await self.decided()
        latencies = [1000 * (copied[name] - decided[name]) for name in names]
        of_jobs = sum(number for which, number in writes.items() if which.endswith(" jobs"))
        return [
            Figure(f"dispatched, {rate} a second", f"{count} Jobs, to {used} clusters"),
            at_most("writes for each until copy and Job are unsuspended", of_jobs / count, 2, ""),
            Figure("all writes meanwhile", ", ".join(f"{number} {which}" for which, number in sorted(writes.items()))),
            Figure("from decision to unsuspended copy, median", f"{percentile(latencies, 0.5):.0f} ms"),
            at_most("from decision to unsuspended copy, p99", percentile(latencies, 0.99), 100, "ms", digits=0),
            Figure("processor time of `serve` for each", f"{1000 * spent / count:.2f} ms"),
        ]

    async def writes(self) -> Counter[str]:
        """Return the number of Sluice's writes to all clusters so far, by method and resource."""
        found = Counter[str]()
        for client in self.clients.values():
            for each in (await client.get("/sandbox/requests"))["requests"]:
                if each["user"] == SLUICE_USER and each["method"] in ("POST", "PUT", "PATCH", "DELETE"):
                    found[f"{each['method']} {each['resource']}"] += each["count"]
        return found

    async def decided(self) -> dict[str, float]:
        """Return when the admission of each dispatched Job was decided, by name."""
        database = connect(Location.parse(f"sqlite:///{self.directory / 'sluice.db'}"))
        try:
            async with database.read() as connection:
                return {name: microseconds / 1e6 for name, microseconds in await connection.execute(_DECIDED)}
        finally:
            await database.close()


_DECIDED = text(f"SELECT name, admitted_at FROM workloads WHERE cluster_queue = '{_DISPATCH}'")


def _queues(clusters: int) -> Iterator[dict[str, Any]]:
    """Yield the clusters and queue objects."""
    for name in others(clusters):
        yield manifest("Cluster", name, spec={"kubeconfig": f"{name}.yaml"})
        yield manifest("ResourceFlavor", f"in-{name}", spec={"clusters": [name]})
    yield flavor("all")
    yield cluster_queue("waiting", quotas=_waiting_quotas(0))
    yield local_queue(QUEUE, target="waiting")
    if clusters > 1:
        room = 2 * sum(count for count, _ in _DISPATCHED) // clusters
        yield cluster_queue(_DISPATCH, quotas={f"in-{name}": {"cpu": room} for name in others(clusters)}, dispatch={})
        yield local_queue(_DISPATCH, target=_DISPATCH)


def _waiting_quotas(cpus: int) -> dict[str, dict[str, Any]]:
    """Return quota for Jobs of one CPU, and for GPUs as the nodes have them, which are counted for it."""
    return {"all": {"cpu": cpus, GPU: {"nominalQuota": 0, "fromNodes": {"percent": 100}}}}
