"""A second cluster for tests, and the Cluster object by which it joins."""

from __future__ import annotations

from contextlib import asynccontextmanager, closing
from pathlib import Path

from job_examples import node

from admission.cluster.client import Client
from admission.controller.clusters import Connection
from admission.kinds import all_kinds
from admission.sandbox.sandbox import Sandbox


class Other:
    """A second cluster, and how a controller reaches it."""

    def __init__(self, sandbox: Sandbox, kubeconfig: str) -> None:
        self.sandbox = sandbox
        self.user = sandbox.local("admin")
        self.kubeconfig = kubeconfig

    def join(self, cluster) -> Connection:
        version = Path(self.kubeconfig).read_bytes
        return Connection(Client.from_kubeconfig(self.kubeconfig), all_kinds(), None, version=version)

    async def submit(self, manifest):
        return await self.user.create("jobs", manifest["metadata"]["namespace"], manifest)

    async def job(self, name, until):
        """Wait until a Job satisfies `until`, and return it."""
        with closing(self.user.watch("jobs")) as changes:
            async for batch in changes:
                for _, kind, obj, _ in batch:
                    if obj["metadata"]["name"] == name and kind != "DELETED" and until(obj):
                        return obj
        raise AssertionError("the watch ended")

    def cut(self) -> None:
        """Let no request arrive any more, and end all watches."""
        rules = [{"do": "closeWatches", "abrupt": True}, {"do": "drop"}]
        self.sandbox.faults.install({"rules": rules})

    def mend(self) -> None:
        self.sandbox.faults.remove()


@asynccontextmanager
async def other_cluster(folder, name="other", *, controllers=True):
    """A cluster with the namespaces and nodes of the first one."""
    async with Sandbox(speed=60, controllers=controllers) as sandbox:
        kubeconfig = folder / name
        sandbox.write_kubeconfig(kubeconfig, "sluice")
        other = Other(sandbox, str(kubeconfig))
        for namespace in ("team-a", "team-b"):
            await other.user.create("namespaces", "", {"metadata": {"name": namespace}})
        for number in range(4):
            await other.user.create("nodes", "", node(number))
        yield other


def cluster(name="b", *, labels=None, **spec):
    metadata = {"name": name, "labels": labels or {}}
    return {"apiVersion": "sluice.dev/v1", "kind": "Cluster", "metadata": metadata,
            "spec": {"kubeconfig": "other", **spec}}  # fmt: skip


async def state(world, wanted, name="b"):
    """Wait until the cluster is in this state, and return what is known of it."""

    async def look():
        found = (await world.store.joined_clusters.load()).get(name)
        return found if found is not None and found.state == wanted else None

    return await world.eventually(look)
