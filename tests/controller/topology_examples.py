"""Nodes in racks, and the queue objects that place pods by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from job_examples import TOLERATION, cluster_queue, job, local_queue
from queue_objects import manifest, topology

if TYPE_CHECKING:
    from conftest import World
    from other_clusters import Other

Object = dict[str, Any]

HOSTNAME = "kubernetes.io/hostname"
REQUIRED = "sluice.dev/podset-required-topology"
POOL = {"pool": "gpu"}


def gpu_node(name: str, rack: str, *, cpu: str = "4") -> Object:
    amounts = {"cpu": cpu, "memory": "10Gi", "pods": "110"}
    return {
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {**POOL, "block": f"block-{rack[0]}", "rack": rack, HOSTNAME: name},
        },
        "spec": {"taints": [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}]},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def queues_by(*levels: str, cpu: str = "1000", **spec: Any) -> list[Object]:
    """A flavor of the nodes in the pool, placed by these levels, and its queues."""
    flavor = {"nodeLabels": POOL, "tolerations": [TOLERATION], "topologyName": "dc"}
    return [
        topology("dc", *levels),
        manifest("ResourceFlavor", "gpu", spec=flavor),
        cluster_queue(quotas={"gpu": {"cpu": cpu}}, **spec),
        local_queue(),
    ]


async def racks(cluster: World | Other, nodes: int = 2, *names: str) -> None:
    """Create racks of some nodes each: rack `a1` has nodes `a1-0`, `a1-1` ..."""
    for rack in names or ("a1", "a2", "b1"):
        for number in range(nodes):
            await cluster.user.create("nodes", "", gpu_node(f"{rack}-{number}", rack))


def placed_job(name: str, pods: int, level: str = "rack", *, cpu: str = "1", indexed: bool = False) -> Object:
    """A Job whose pods have to be in one domain of a level; empty: they request nothing of the topology."""
    made = job(name, pods=pods, cpu=cpu)
    if level:
        made["spec"]["template"]["metadata"]["annotations"][REQUIRED] = level
    if indexed:
        made["spec"]["completionMode"] = "Indexed"
    return made


def pods_of(cluster: World | Other, name: str) -> list[Object]:
    """The pods of a Job that are not terminated."""
    return [
        pod
        for pod in cluster.user.list("pods", "team-a")
        if pod["metadata"]["labels"].get("batch.kubernetes.io/job-name") == name
        and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
        and "deletionTimestamp" not in pod["metadata"]
    ]


async def bound(world: World, name: str, pods: int, other: Other | None = None) -> list[Object]:
    """Wait until a Job (of another cluster) has this number of pods and all of them are on nodes; return them."""

    async def look() -> list[Object]:
        found = pods_of(other or world, name)
        return found if len(found) == pods and all(pod["spec"].get("nodeName") for pod in found) else []

    found: list[Object] = await world.eventually(look)
    return found


def racks_of(pods: list[Object]) -> set[str]:
    return {pod["spec"]["nodeName"].partition("-")[0] for pod in pods}


async def fail(cluster: World | Other, node: str) -> None:
    """Let a node become not ready; its pods are evicted, as the node controller does."""
    ready = {"type": "Ready", "status": "False", "reason": "KubeletNotReady"}
    await cluster.user.patch("nodes", "", node, {"status": {"conditions": [ready]}}, subresource="status")
    await lose_pods(cluster, node)


async def lose_pods(cluster: World | Other, node: str) -> None:
    """Delete the pods on a node."""
    for pod in cluster.user.list("pods", "team-a"):
        if pod["spec"].get("nodeName") == node:
            await cluster.user.delete("pods", "team-a", pod["metadata"]["name"], grace=0)
