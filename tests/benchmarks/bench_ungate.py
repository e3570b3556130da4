"""Start of a group of 10,000 gated pods: duration, cost, and the delay of other workloads' starts meanwhile.

Once undisturbed, and once with a `kill -9` of `sluice serve` after half of the pods are started.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from admission.cli.demo.children import alongside, guarded
from admission.cli.demo.stage import SLUICE_USER, DemoSluice, apply, running_sandbox, running_sluice
from admission.cluster.client import Client
from admission.model.errors import ClusterError
from tests.benchmarks.measure import Figure, at_most, children, cpu_seconds
from tests.chaos.kill_serve import kill
from tests.queue_objects import cluster_queue, flavor, local_queue

_PODS = 10_000
_AT_ONCE = 16
_GOAL_SECONDS = 60.0
_STALL_SECONDS = 1.0
_PATIENCE = 900.0
_SETTINGS = {"integrations": {"frameworks": ["batch/job", "pod"]}}


@dataclass
class _Account:
    """Measurements of one start; times in seconds."""

    created: float = 0.0
    seconds: float = 0.0
    cpu: float = 0.0
    patches: int = 0
    stall: float = 0.0
    jobs: int = 0


async def run() -> list[Figure]:
    """Measure both cases, each on a sandbox without controllers, whose processor time is left to its API."""
    figures = []
    for name, killed in (("undisturbed", False), ("killed when half are started", True)):
        with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
            account = await _start(Path(folder), killed=killed)
        figures += [
            Figure(f"{name}: {_PODS} pods made and gated after", f"{account.created:.1f} s"),
            at_most("all started, from the last pod on, after", account.seconds, _GOAL_SECONDS, "s", digits=1),
            Figure(
                "PATCHes of pods by Sluice", str(account.patches), f"one each: {_PODS}", met=account.patches == _PODS
            ),
            at_most(f"longest wait of {account.jobs} Jobs of others meanwhile", account.stall, _STALL_SECONDS, "s"),
        ]
        if not killed:
            each = 1000 * account.cpu / _PODS
            figures.append(Figure("processor time of `sluice serve` for each pod", f"{each:.2f} ms"))
    return figures


async def _start(directory: Path, *, killed: bool) -> _Account:
    account = _Account()
    async with (
        running_sandbox(directory, speed=1.0, controllers=False) as cluster,
        Client.from_kubeconfig(str(cluster.kubeconfig)) as client,
    ):
        for namespace in ("gang", "others"):
            await client.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        async with running_sluice(directory, cluster.sluice_kubeconfig, settings=_SETTINGS) as serving:
            async with guarded(serving.child):
                await apply(directory, serving, [flavor(type="kwok"), *_queues("gang"), *_queues("others")])
                began, cpu = time.perf_counter(), _cpu(serving)
                await _create(client)
                account.created, began = time.perf_counter() - began, time.perf_counter()
                async with alongside(_others(client, account)):
                    await _until_patched(client, _PODS // 2 if killed else _PODS)
                    account.cpu, account.seconds = _cpu(serving) - cpu, time.perf_counter() - began
            if killed:
                await kill(serving)
        if killed:
            async with (
                running_sluice(directory, cluster.sluice_kubeconfig, settings=_SETTINGS) as serving,
                guarded(serving.child),
            ):
                await _until_patched(client, _PODS)
                account.seconds = time.perf_counter() - began
        account.patches = await _patches(client)
        pods = (await client.get("/api/v1/namespaces/gang/pods"))["items"]
        assert len(pods) == _PODS, len(pods)
        assert not any(pod["spec"].get("schedulingGates") for pod in pods), "a pod is still gated"
    return account


def _cpu(serving: DemoSluice) -> float:
    pid = serving.child.process.pid
    return cpu_seconds(pid) + sum(map(cpu_seconds, children(pid)))


def _queues(name: str) -> list[dict[str, Any]]:
    return [cluster_queue(name, cpu=_PODS), local_queue("lq", name, name)]


def _container() -> dict[str, Any]:
    return {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}


async def _create(client: Client) -> None:
    numbers = iter(range(_PODS))

    async def user() -> None:
        for number in numbers:
            await client.create("/api/v1/namespaces/gang/pods", _pod(number))

    async with asyncio.TaskGroup() as users:
        for _ in range(_AT_ONCE):
            users.create_task(user())


def _pod(number: int) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"gang-{number}",
            "labels": {"sluice.dev/queue-name": "lq", "kueue.x-k8s.io/pod-group-name": "gang"},
            "annotations": {"kueue.x-k8s.io/pod-group-total-count": str(_PODS)},
        },
        "spec": {"restartPolicy": "Never", "containers": [_container()]},
    }


async def _others(client: Client, account: _Account) -> None:
    """Create Jobs of another team one after the other, each after the start of the last one."""
    path = "/apis/batch/v1/namespaces/others/jobs"
    for number in count():
        template = {"spec": {"restartPolicy": "Never", "containers": [_container()]}}
        metadata = {"name": f"job-{number}", "labels": {"sluice.dev/queue-name": "lq"}}
        began = time.perf_counter()
        try:
            await client.create(path, {"metadata": metadata, "spec": {"template": template}})
            while (await client.get(f"{path}/job-{number}"))["spec"]["suspend"]:
                account.stall = max(account.stall, time.perf_counter() - began)
                await asyncio.sleep(0.02)
        except ClusterError:
            return  # Sluice was killed
        account.stall = max(account.stall, time.perf_counter() - began)
        account.jobs += 1
        await asyncio.sleep(0.1)


async def _until_patched(client: Client, number: int) -> None:
    async with asyncio.timeout(_PATIENCE):
        while await _patches(client) < number:  # noqa: ASYNC110  counted by the sandbox
            await asyncio.sleep(0.05)


async def _patches(client: Client) -> int:
    counted = (await client.get("/sandbox/requests"))["requests"]
    mine = (one for one in counted if one["user"] == SLUICE_USER and one["resource"] == "pods")
    return sum(one["count"] for one in mine if one["method"] == "PATCH")
