"""Processor time of a Job whose pod has a ResourceClaim, in a burst of 1000, compared with one without."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.measure import Figure, Running, at_most, running
from tests.queue_objects import cluster_queue, flavor, local_queue

_COUNT: Final = 1000
_NODES: Final = 20
_REPETITIONS: Final = 3
_GOAL: Final = 1.3
_GPU: Final = "example.com/gpu"
_DRIVER: Final = "gpu.example.com"
_JOBS: Final = "/apis/batch/v1/namespaces/default/jobs"
_DEVICES: Final = "/apis/resource.k8s.io/v1"
_AT_ONCE: Final = 8


async def run() -> list[Figure]:
    """Measure bursts from arrival to end: without claims and the setting, then with both; the cheapest of each."""
    figures = {claims: [await _burst(claims=claims)] for claims in (False, True)}
    for _ in range(_REPETITIONS - 1):
        for claims, found in figures.items():
            found.append(await _burst(claims=claims))
    without, with_claims = min(figures[False]), min(figures[True])
    return [
        Figure("CPU of `sluice serve` per Job, without a claim", f"{without:.2f} ms"),
        Figure("CPU of `sluice serve` per Job, with a claim", f"{with_claims:.2f} ms"),
        at_most("ratio", with_claims / without, _GOAL, ""),
    ]


async def _burst(*, claims: bool) -> float:
    """Return the processor time of a Job in ms."""
    mapping = {"name": _GPU, "deviceClassNames": ["gpu"]}
    settings = {"resources": {"deviceClassMappings": [mapping]}} if claims else {}
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        async with running(Path(folder), _queues(), speed=60.0, settings=settings) as sluice:
            await _prepare(sluice)
            before = sluice.cpu_seconds()
            numbers = iter(range(_COUNT))
            async with asyncio.TaskGroup() as users:
                for _ in range(_AT_ONCE):
                    users.create_task(_submit(sluice, numbers, claims=claims))
            while await _unfinished(sluice):  # noqa: ASYNC110  the API server is asked
                await asyncio.sleep(0.5)
            await asyncio.sleep(1.0)  # until the last events are processed
            return 1000 * (sluice.cpu_seconds() - before) / _COUNT


async def _submit(sluice: Running, numbers: Any, *, claims: bool) -> None:
    for number in numbers:
        await sluice.client.create(_JOBS, _job(f"job-{number}", claims=claims))


async def _unfinished(sluice: Running) -> int:
    jobs = (await sluice.client.get(_JOBS))["items"]
    return sum(not job["status"].get("succeeded") for job in jobs)


async def _prepare(sluice: Running) -> None:
    """Create nodes with devices for all Jobs, a DeviceClass and a template."""
    for number in range(_NODES):
        amounts = {"cpu": _COUNT, "memory": "1Ti", "pods": _COUNT}
        metadata = {"name": f"node-{number}", "annotations": {"kwok.x-k8s.io/node": "fake"}}
        node = {"metadata": metadata, "status": {"allocatable": amounts, "capacity": amounts}}
        await sluice.client.create("/api/v1/nodes", node)
        devices = [{"name": f"gpu-{each}"} for each in range(_COUNT // _NODES)]
        pool = {"name": f"node-{number}", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": _DRIVER, "pool": pool, "nodeName": f"node-{number}", "devices": devices}
        await sluice.client.create(f"{_DEVICES}/resourceslices", {"metadata": {"name": f"node-{number}"}, "spec": spec})
    selectors = [{"cel": {"expression": f'device.driver == "{_DRIVER}"'}}]
    device_class = {"metadata": {"name": "gpu"}, "spec": {"selectors": selectors}}
    await sluice.client.create(f"{_DEVICES}/deviceclasses", device_class)
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]
    template = {"metadata": {"name": "gpu"}, "spec": {"spec": {"devices": {"requests": requests}}}}
    await sluice.client.create(f"{_DEVICES}/namespaces/default/resourceclaimtemplates", template)


def _job(name: str, *, claims: bool) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "100m"}}}
    spec: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
    if claims:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    annotations = {"sandbox.sluice.dev/run-seconds": "1200"}
    template = {"metadata": {"annotations": annotations}, "spec": spec}
    return {"metadata": {"name": name, "labels": {"sluice.dev/queue-name": "all"}}, "spec": {"template": template}}


def _queues() -> list[dict[str, Any]]:
    quotas = {"default": dict.fromkeys(("cpu", _GPU), _COUNT)}
    return [flavor(), cluster_queue("all", quotas=quotas), local_queue("all", target="all")]
