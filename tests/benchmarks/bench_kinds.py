"""What it costs to queue all kinds, where no custom resource is installed, beside batch/v1 Jobs alone."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from admission.cli.demo.stage import SLUICE_USER
from tests.benchmarks.measure import Figure, Running, resident_mib, running
from tests.queue_objects import cluster_queue, flavor, local_queue

_JOBS = "/apis/batch/v1/namespaces/default/jobs"
_COUNT = 400
_SECONDS = 65.0
_SETTINGS: dict[str, dict[str, Any]] = {
    "Jobs alone": {"integrations": {"frameworks": ["batch/job"]}},
    "all kinds": {},
}


async def run() -> list[Figure]:
    """Measure an idle Sluice, and one that starts Jobs, with each setting."""
    figures: list[Figure] = []
    for name, settings in _SETTINGS.items():
        with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
            async with running(Path(folder), _queues(), settings=settings) as sluice:
                figures.append(await _figure(f"{name}: idle for {_SECONDS:g} s", sluice, asyncio.sleep(_SECONDS)))
                figures.append(await _figure(f"{name}: {_COUNT} Jobs are started", sluice, _start_jobs(sluice)))
    return figures


async def _figure(what: str, sluice: Running, working: Awaitable[None]) -> Figure:
    before, requests = sluice.cpu_seconds(), await _requests(sluice)
    await working
    used, sent = sluice.cpu_seconds() - before, await _requests(sluice) - requests
    memory = resident_mib(sluice.serving.child.process.pid)
    return Figure(what, f"{sent} requests, {used:.2f} s of processor time, {memory:.0f} MiB")


async def _requests(sluice: Running) -> int:
    counted = await sluice.client.get("/sandbox/requests")
    return sum(each["count"] for each in counted["requests"] if each["user"] == SLUICE_USER)


async def _start_jobs(sluice: Running) -> None:
    for number in range(_COUNT):
        await sluice.client.create(_JOBS, _job(f"job-{number}"))
    while any(job["spec"]["suspend"] for job in (await sluice.client.get(_JOBS))["items"]):  # noqa: ASYNC110
        await asyncio.sleep(0.5)


def _job(name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "100m"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {"metadata": {"name": name, "labels": {"sluice.dev/queue-name": "all"}}, "spec": {"template": template}}


def _queues() -> list[dict[str, Any]]:
    return [flavor(), cluster_queue("all", cpu=_COUNT), local_queue("all", target="all")]
