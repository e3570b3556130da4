"""A cluster for tests of the sandbox's controllers: registry and controllers without the HTTP server."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, closing
from datetime import datetime
from functools import partial

from admission.sandbox.admission.chain import ConfiguredAdmission
from admission.sandbox.apiserver.registry import ObjectRegistry
from admission.sandbox.apiserver.requests import User
from admission.sandbox.builtin.kinds import built_in
from admission.sandbox.clock import Clock
from admission.sandbox.controllers import EXIT_CODE, RUN_SECONDS, controllers
from admission.sandbox.local import LocalClient

# Virtual seconds per real second: minutes pass quickly, yet the order of events can be observed.
SPEED = 200
NAMESPACE = "d"


class Cluster:
    """A registry without HTTP server, with helper methods for tests."""

    def __init__(self, clock):
        self.now = clock.now
        self.registry = ObjectRegistry(clock, partial(ConfiguredAdmission, delay=0))
        for resource in built_in(36):
            self.registry.add(resource)
        self.client = self.local("tester")

    def local(self, user):
        return LocalClient(self.registry, User(user, groups=("system:masters",)))

    async def node(self, name, *, cpu="4", pretend=True, **spec):
        annotations = {"kwok.x-k8s.io/node": "fake"} if pretend else {}
        room = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
        metadata = {"name": name, "annotations": annotations, "labels": {"name": name}}
        await self.client.create("nodes", "", {"metadata": metadata, "spec": spec, "status": {"allocatable": room}})

    async def job(self, name, *, run="30", code="0", cpu="1", notes=None, pod=None, **spec):
        annotations = {EXIT_CODE: code} | ({} if run is None else {RUN_SECONDS: run}) | (notes or {})
        container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu}}}
        template = {
            "metadata": {"annotations": annotations},
            "spec": {"restartPolicy": "Never", "containers": [container], **(pod or {})},
        }
        await self.client.create(
            "jobs", NAMESPACE, {"metadata": {"name": name}, "spec": {**spec, "template": template}}
        )

    def get_job(self, name):
        return self.client.get("jobs", NAMESPACE, name)

    def pods(self, job=None):
        found = self.client.list("pods", NAMESPACE)
        return [pod for pod in found if job is None or pod["metadata"]["labels"]["job-name"] == job]

    def events(self, reason):
        return [event for event in self.client.list("events", NAMESPACE) if event["reason"] == reason]

    async def until(self, predicate):
        """Wait until the predicate returns a true value, checked at each change; return that value."""
        async with asyncio.timeout(120):
            with closing(self.client.watch("jobs", "pods", "events", "nodes", "namespaces")) as watcher:
                async for _ in watcher:
                    if found := predicate():
                        return found
        raise AssertionError("the watch ended")

    async def status(self, name, **wanted):
        """Wait until the Job's status has these fields; `conditions` names the types that are True."""

        def check():
            status = dict(self.get_job(name).get("status", {}))
            status["conditions"] = {c["type"] for c in status.get("conditions", ()) if c["status"] == "True"}
            return status if all(status.get(key) == value for key, value in wanted.items()) else None

        return await self.until(check)


@asynccontextmanager
async def started(speed=SPEED):
    clock = Clock(speed, monotonic=asyncio.get_running_loop().time)
    cluster = Cluster(clock)
    async with controllers(cluster.local, clock):
        await cluster.client.create("namespaces", "", {"metadata": {"name": NAMESPACE}})
        yield cluster


def phases(pods):
    return sorted(pod["status"]["phase"] for pod in pods)


def parse(instant):
    return datetime.fromisoformat(instant).timestamp()
