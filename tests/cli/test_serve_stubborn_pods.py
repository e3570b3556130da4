"""Pods that never terminate hold quota until they are gone, whatever happens to their Job; checked by pods alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from admission.cli.demo.children import alongside
from admission.cli.demo.live_pods import LivePods
from admission.cli.demo.stage import DemoSluice as Serving
from admission.cli.demo.stage import apply, running_sandbox, running_sluice
from admission.client import Sluice
from admission.cluster.client import Client
from admission.cluster.informer import Informer
from tests.chaos.kill_serve import kill
from tests.queue_objects import cluster_queue, flavor, local_queue, priority_class

Object = dict[str, Any]

NEVER = {"sandbox.sluice.dev/stop-seconds": "never"}
BRIEF = {"sandbox.sluice.dev/run-seconds": "4"}
QUOTA = 4
"""CPUs of each namespace's queue; each Job has as many pods of one CPU."""


def job(name: str, notes: Object, labels: Object | None = None, **spec: Any) -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    template = {"metadata": {"annotations": notes}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"sluice.dev/queue-name": "lq", **(labels or {})}},
        "spec": {"parallelism": QUOTA, "completions": QUOTA, **spec, "template": template},
    }


class Team:
    """A namespace with its own queue, a Job whose pods never terminate, and a Job that waits for its quota."""

    def __init__(self, client: Client, name: str) -> None:
        self.client, self.name = client, name
        self.jobs = f"/apis/batch/v1/namespaces/{name}/jobs"
        self.pods = f"/api/v1/namespaces/{name}/pods"

    async def begin(self) -> None:
        await self.client.create(self.jobs, job("stubborn", NEVER))
        await self.until("stubborn", ready=QUOTA)
        await self.client.create(self.jobs, job("next", BRIEF))

    async def until(self, name: str, **counts: int) -> None:
        while True:
            status = (await self.client.get(f"{self.jobs}/{name}")).get("status", {})
            if counts.items() <= status.items():
                return
            await asyncio.sleep(0.1)

    async def delete(self, policy: str) -> None:
        await self.client.delete(f"{self.jobs}/stubborn", {"propagationPolicy": policy})

    async def patch(self, spec: Object) -> None:
        await self.client.patch(f"{self.jobs}/stubborn", {"spec": spec})

    async def delete_pods(self, *, seconds: int | None = None) -> None:
        for pod in (await self.client.get(self.pods))["items"]:
            options = None if seconds is None else {"gracePeriodSeconds": seconds}
            await self.client.delete(f"{self.pods}/{pod['metadata']['name']}", options)

    async def preempt(self) -> None:
        await self.client.create(self.jobs, job("urgent", BRIEF, {"sluice.dev/priority-class": "urgent"}))


ACTS: dict[str, Callable[[Team], Awaitable[None]]] = {
    "background": lambda team: team.delete("Background"),
    "foreground": lambda team: team.delete("Foreground"),
    "orphan": lambda team: team.delete("Orphan"),
    "lowered": lambda team: team.patch({"parallelism": 1}),
    "suspended": lambda team: team.patch({"suspend": True}),
    "pods-deleted": lambda team: team.delete_pods(),
    "preempted": lambda team: team.preempt(),
}
DELETED = ("background", "foreground", "orphan")
WHILE_DOWN = (*DELETED, "pods-deleted")
"""Actions that users can take while Sluice is down: other changes of a queued Job are refused."""


def manifests() -> list[Object]:
    made = [flavor(), priority_class("urgent", 1000)]
    for name in (*ACTS, "marker"):
        made += [
            cluster_queue(name, cpu=QUOTA, preemption={"withinClusterQueue": "LowerPriority"}),
            local_queue(namespace=name, target=name),
        ]
    return made


async def held(serving: Serving) -> dict[str, str]:
    """CPUs of quota that workloads hold, by ClusterQueue of a team."""
    async with Sluice(serving.server, token=serving.token, ca=serving.ca) as sluice:
        found = {each["metadata"]["name"]: each async for each in sluice.cluster_queues.documents.list()}
    return {name: found[name]["status"]["flavorsUsage"][0]["resources"][0]["total"] for name in ACTS}


async def watch(client: Client, live: LivePods) -> None:
    async for batch in Informer(client, "/api/v1/pods", page=0).batches():
        for change in batch:
            live.pod(change.key, None if change.type == "DELETED" else change.object, 0.0)


@pytest.mark.usefixtures("warm_children")
@pytest.mark.long
@pytest.mark.parametrize("down", [False, True], ids=["served", "while it is down"])
async def test_pods_that_never_terminate_keep_quota_until_they_are_deleted(tmp_path: Path, down: bool) -> None:
    live = LivePods({name: {"cpu": QUOTA * 1000} for name in ACTS}, {"cpu": len(ACTS) * QUOTA * 1000})
    async with (
        running_sandbox(tmp_path, speed=4) as cluster,
        Client.from_kubeconfig(str(cluster.kubeconfig)) as client,
        alongside(watch(client, live)),
        AsyncExitStack() as stack,
    ):
        room = {"cpu": "200", "pods": "1000"}
        node = {"name": "n", "annotations": {"kwok.x-k8s.io/node": "fake"}}
        await client.create("/api/v1/nodes", {"metadata": node, "status": {"allocatable": room}})
        for name in (*ACTS, "marker"):
            await client.create("/api/v1/namespaces", {"metadata": {"name": name}})
        serving = await stack.enter_async_context(running_sluice(tmp_path, cluster.sluice_kubeconfig))
        await apply(tmp_path, serving, manifests())
        teams = {name: Team(client, name) for name in ACTS}
        await asyncio.gather(*(team.begin() for team in teams.values()))
        if down:
            await kill(serving)
        await asyncio.gather(*(ACTS[name](teams[name]) for name in (WHILE_DOWN if down else ACTS)))
        if down:
            serving = await stack.enter_async_context(running_sluice(tmp_path, cluster.sluice_kubeconfig))
            await apply(tmp_path, serving, manifests())  # waits until it is ready
        marker = Team(
            client, "marker"
        )  # when the Job of another team is complete, the others have had time for violations
        await client.create(marker.jobs, job("marker", BRIEF))
        await marker.until("marker", succeeded=QUOTA)
        assert live.violations == []
        assert {name: live.alive[name]["cpu"] for name in ACTS} == dict.fromkeys(ACTS, QUOTA * 1000)
        assert await held(serving) == dict.fromkeys(ACTS, str(QUOTA)), "until the pods are gone"
        for name in DELETED:
            await teams[name].delete_pods(seconds=0)
        await asyncio.gather(*(teams[name].until("next", succeeded=QUOTA) for name in DELETED))
        assert live.violations == []
