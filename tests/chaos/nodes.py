"""Storm with topology: nodes in racks that fail, go and come again, and a check of what is placed on them."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

from admission.cli.demo.live_pods import is_gated, requests_of
from admission.cli.demo.plan import node_document, queue_documents
from admission.cluster.errors import NotFound
from admission.cluster.informer import Informer
from admission.kinds.topology import OWN_UNCONSTRAINED, POD_SET, PREFERRED_KEY, REQUIRED_KEY
from admission.model.topology import HOSTNAME

if TYPE_CHECKING:
    from admission.cli.demo.plan import Document, ScenePlan
    from admission.cluster.client import Client

_IN_RACK, _IN_BLOCK = 4, 16
"""Number of nodes."""
_RACK: Final = "rack"
_LEVELS: Final = ("block", _RACK, HOSTNAME)
_REQUESTS: Final = (
    {REQUIRED_KEY: _RACK},
    {REQUIRED_KEY: HOSTNAME},
    {PREFERRED_KEY: _RACK},
    {OWN_UNCONSTRAINED: "true"},
)
"""Annotations of the pods of each fourth Job."""
_NODES: Final = "/api/v1/nodes"


def queue_objects(plan: ScenePlan) -> list[Document]:
    """Return the queue objects of a plan, whose flavor names a topology."""
    levels = [{"nodeLabel": label} for label in _LEVELS]
    documents = queue_documents(plan)
    for document in documents:
        if document["kind"] == "ResourceFlavor":
            document["spec"]["topologyName"] = "floor"
    topology = {"kind": "Topology", "metadata": {"name": "floor"}, "spec": {"levels": levels}}
    return [{"apiVersion": "sluice.dev/v1", **topology}, *documents]


def placed(job: Document) -> Document:
    """Return a Job with a request of the topology; each second one is Indexed, and none fails for lost pods."""
    chance = crc32(job["metadata"]["name"].encode())
    template = job["spec"]["template"]
    annotations = (template.setdefault("metadata", {}).get("annotations") or {}) | _REQUESTS[chance // 8 % 4]
    template["metadata"]["annotations"] = annotations
    job["spec"] |= {"backoffLimit": 1000, "completionMode": ("Indexed", "NonIndexed")[chance // 32 % 2]}
    return job


class _PlacedPod(NamedTuple):
    """A pod that was sent to a node, and has neither ended nor is being deleted."""

    name: str
    node: str
    job: str
    """Uid of the Job that requires one rack for its pods; empty: it does not."""
    cpu: int
    """Thousandths of a CPU."""


class Floor:
    """The nodes: their labels and faults, and the check. `exceeded`: what was placed beyond a node or a rack."""

    def __init__(self, client: Client, plan: ScenePlan) -> None:
        self._client = client
        self._nodes = {f"kwok-node-{number}": _node(plan, number) for number in range(plan.nodes.count)}
        self._room = plan.nodes.allocatable["cpu"]
        self._informer = Informer(client, "/api/v1/pods", page=0)
        self._pods: dict[str, _PlacedPod] = {}
        """By uid."""
        self._deleted: set[str] = set()
        """Nodes that are deleted now."""
        self._lost: set[str] = set()
        """Uids of pods whose node was deleted. A Job that has lost all of its pods so may go on in another rack."""
        self.checked = 0
        """Number of pods that were placed."""
        self.exceeded: list[str] = []

    async def build(self) -> None:
        """Label the nodes of the plan."""
        for name, node in self._nodes.items():
            await self._client.patch(f"{_NODES}/{name}", {"metadata": {"labels": node["metadata"]["labels"]}})

    # --- faults

    async def fail(self, draw: float) -> None:
        """Let a node be not ready, evict its pods, and let it recover."""
        name = self._drawn(draw)
        await self._report(name, "False")
        await asyncio.sleep(draw)
        await self._lose_pods(name)
        await asyncio.sleep(2 * draw)
        await self._report(name, "True")

    async def replace(self, draw: float) -> None:
        """Delete a node with its pods, and create another one of its name."""
        name = self._drawn(draw)
        self._deleted.add(name)
        self._lost |= {uid for uid, pod in self._pods.items() if pod.node == name}
        await self._client.delete(f"{_NODES}/{name}")
        await self._lose_pods(name)
        await asyncio.sleep(3 * draw)
        await self._client.create(_NODES, self._nodes[name])
        self._deleted.discard(name)

    def _drawn(self, draw: float) -> str:
        """Return a node on which pods are, if there is one."""
        used = sorted({pod.node for pod in self._pods.values()}) or sorted(self._nodes)
        return used[int(draw * len(used))]

    async def _report(self, name: str, ready: str) -> None:
        status = {"conditions": [{"type": "Ready", "status": ready, "reason": "Reported"}]}
        await self._client.patch(f"{_NODES}/{name}/status", {"status": status})

    async def _lose_pods(self, node: str) -> None:
        for pod in (await self._client.get("/api/v1/pods", params={"fieldSelector": f"spec.nodeName={node}"}))["items"]:
            path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
            with suppress(NotFound):
                await self._client.delete(path, {"gracePeriodSeconds": 0})

    # --- check

    async def run(self) -> None:
        """Watch pods until cancelled."""
        async with aclosing(self._informer.batches()) as batches:
            async for batch in batches:
                for change in batch:
                    self._pods.pop(change.uid, None)
                    if change.type != "DELETED" and change.object is not None and _is_placed(change.object):
                        self._see(change.uid, change.object)

    async def synced(self) -> None:
        """Wait until all pods are listed."""
        await self._informer.synced.wait()

    def _see(self, uid: str, pod: Document) -> None:
        metadata, node = pod["metadata"], pod["spec"]["nodeSelector"][HOSTNAME]
        owner = metadata["ownerReferences"][0]["uid"] if metadata["annotations"].get(REQUIRED_KEY) == _RACK else ""
        self._pods[uid] = _PlacedPod(metadata["name"], node, owner, int(requests_of(pod["spec"], ("cpu",))["cpu"]))
        if node in self._deleted:
            self._lost.add(uid)
        self.checked += 1
        there = [each for each in self._pods.values() if each.node == node]
        if (taken := sum(each.cpu for each in there)) > self._room:
            names = ", ".join(each.name for each in there)
            self.exceeded.append(f"{taken}m of {self._room}m cpu of {node} by {names}")
        racks = {
            self._nodes[each.node]["metadata"]["labels"][_RACK]
            for key, each in self._pods.items()
            if each.job == owner and key not in self._lost
        }
        if owner and len(racks) > 1:
            self.exceeded.append(f"{metadata['name']} requires one rack, and its Job is in {sorted(racks)}")


def _node(plan: ScenePlan, number: int) -> Document:
    node: dict[str, Any] = node_document(plan, number)
    node["metadata"]["labels"] |= {"block": f"b{number // _IN_BLOCK}", _RACK: f"r{number // _IN_RACK}"}
    return node


def _is_placed(pod: Document) -> bool:
    """Whether Sluice has given a pod its node, and it counts there: a pod that is being deleted is replaced."""
    metadata = pod["metadata"]
    ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed") or "deletionTimestamp" in metadata
    ours = POD_SET in (metadata.get("annotations") or {}) and HOSTNAME in (pod["spec"].get("nodeSelector") or {})
    return ours and not ended and not is_gated(pod)
