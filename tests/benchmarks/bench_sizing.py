"""Processor and memory use of `sluice serve` and its gate under typical loads, for their pods' resource requests."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.measure import Figure, Running, children, cpu_seconds, resident_mib, running
from tests.queue_objects import cluster_queue, flavor, local_queue

_JOBS = "/apis/batch/v1/namespaces/default/jobs"
_SECONDS = 20.0
_A_SECOND = 10
_BACKLOG = 5_000
_NODES = 10


async def run() -> list[Figure]:
    """Measure three loads: idle, Jobs that start immediately and end after a second, and a backlog of waiting Jobs."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        async with running(Path(folder), _queues()) as sluice:
            for number in range(_NODES):
                await sluice.client.create("/api/v1/nodes", _node(number))
            idle = await _figures("idle", sluice, _nothing())
            steady = await _figures(f"{_A_SECOND} Jobs a second that start at once", sluice, _steady(sluice))
            await _submit(sluice, "waiting", range(_BACKLOG))
            waiting = await _figures(f"{_BACKLOG} Jobs wait", sluice, _nothing())
    return [*idle, *steady, *waiting]


async def _figures(load: str, sluice: Running, working: Any) -> list[Figure]:
    """Return the figures of a load of `_SECONDS`; processor use in milli-CPU, as in pods' requests."""
    serve = sluice.serving.child.process.pid
    began, before, gate_before = time.perf_counter(), cpu_seconds(serve), cpu_seconds(_gate(serve))
    await working
    lasted = time.perf_counter() - began
    used, gate_used = cpu_seconds(serve) - before, cpu_seconds(_gate(serve)) - gate_before
    return [
        Figure(f"{load}: serve", f"{1000 * used / lasted:.0f}m, {resident_mib(serve):.0f} MiB"),
        Figure(f"{load}: gate", f"{1000 * gate_used / lasted:.0f}m, {resident_mib(_gate(serve)):.0f} MiB"),
    ]


def _gate(serve: int) -> int:
    """Return the pid of the gate (webhook server), found by its command line."""
    (found,) = (pid for pid in children(serve) if b"webhooks.gate" in Path(f"/proc/{pid}/cmdline").read_bytes())
    return found


async def _nothing() -> None:
    await asyncio.sleep(_SECONDS)


async def _steady(sluice: Running) -> None:
    for second in range(int(_SECONDS)):
        began = time.perf_counter()
        await _submit(sluice, "steady", range(second * _A_SECOND, (second + 1) * _A_SECOND))
        await asyncio.sleep(max(0.0, 1 - (time.perf_counter() - began)))


async def _submit(sluice: Running, queue: str, numbers: range) -> None:
    for start in range(numbers.start, numbers.stop, 50):
        some = range(start, min(start + 50, numbers.stop))
        await asyncio.gather(*(sluice.client.create(_JOBS, _job(f"{queue}-{number}", queue)) for number in some))


def _job(name: str, queue: str) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "100m"}}}
    pod = {"restartPolicy": "Never", "containers": [container]}
    seconds = "1" if queue == "steady" else "100000"
    template = {"metadata": {"annotations": {"sandbox.sluice.dev/run-seconds": seconds}}, "spec": pod}
    return {"metadata": {"name": name, "labels": {"sluice.dev/queue-name": queue}}, "spec": {"template": template}}


def _node(number: int) -> dict[str, Any]:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    metadata = {"name": f"node-{number}", "annotations": {"kwok.x-k8s.io/node": "fake"}}
    return {"metadata": metadata, "status": {"allocatable": amounts, "capacity": amounts}}


def _queues() -> list[dict[str, Any]]:
    queues = (("steady", 1000), ("waiting", 1))
    clustered = [cluster_queue(name, cpu=quota) for name, quota in queues]
    return [flavor(), *clustered, *(local_queue(name, target=name) for name, _ in queues)]
