"""Simulated scheduler: binds pods to simulated nodes with sufficient free amounts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from admission.sandbox.clock import rfc3339
from admission.sandbox.controllers.allocation import Allocation
from admission.sandbox.controllers.base import SimulatedController, is_over
from admission.sandbox.controllers.fit import PodShape, allocatable_of, fits, matches_node, shape_key, shape_of
from admission.sandbox.controllers.podlife import start_fault

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.clock import Clock
    from admission.sandbox.local import LocalClient

Key = tuple[str, str]

# Seconds of real time that a scheduling pass waits for further pods.
_DELAY = 0.005
_SIMULATED = "kwok.x-k8s.io/node"
_NAMES = ("default-scheduler", "kai-scheduler", "volcano", "yunikorn")
"""`schedulerName` of the pods that are scheduled; of others only the requests are counted once they are bound.

One scheduler stands for all of these: several that do not know of each other would assign the same free amounts.
"""


def is_simulated(node: Object) -> bool:
    """Return whether the sandbox simulates a node: `kwok.x-k8s.io/node: fake` in its annotations or labels."""
    metadata = node["metadata"]
    return "fake" in (metadata.get("annotations", {}).get(_SIMULATED), metadata.get("labels", {}).get(_SIMULATED))


@dataclass(slots=True)
class _Queue:
    """Pending pods with equal requirements, oldest first.

    `unreported` are pods without a condition Unschedulable yet. `nodes` match the pods, apart from free amounts; the
    search for one starts at index `start`.
    """

    shape: PodShape
    pods: dict[Key, None] = field(default_factory=dict)
    unreported: list[Key] = field(default_factory=list)
    nodes: list[str] | None = None
    start: int = 0


class PodScheduler(SimulatedController[str]):
    """Its only key is "", a pass over all queues of pending pods, each until its next pod does not fit.

    Without any simulated node it does nothing, not even report pods as unschedulable.
    """

    plurals: tuple[str, ...] = ("nodes", "pods", "deviceclasses", "resourceslices", "resourceclaims")

    def __init__(self, local: LocalClient, clock: Clock) -> None:
        served = local.plurals()
        self.plurals = tuple(plural for plural in self.plurals if plural in served)
        super().__init__(local, clock)
        self._devices = Allocation(local)
        self._nodes: dict[str, Object] = {}
        self._free: dict[str, dict[str, int]] = {}
        self._placed: dict[str, tuple[str, PodShape]] = {}
        self._queues: dict[bytes, _Queue] = {}
        self._waiting: dict[Key, bytes] = {}
        self._delay = _DELAY * clock.speed

    def observe(self, plural: str, change: str, obj: Object, before: Object | None) -> None:
        if plural == "nodes":
            self._observe_node(change, obj)
        elif plural == "pods":
            self._observe_pod(change, obj)
        else:
            self._devices.observe(plural, change, obj)
            if self._waiting:
                self.enqueue("", self._delay)

    def _observe_node(self, change: str, node: Object) -> None:
        name = node["metadata"]["name"]
        if change == "DELETED" or not is_simulated(node):
            self._nodes.pop(name, None)
            self._free.pop(name, None)
        else:
            self._nodes[name] = node
            self._free[name] = allocatable_of(node)
            for where, shape in self._placed.values():
                if where == name:
                    self._reserve(where, shape, 1)
        for queue in self._queues.values():
            queue.nodes = None
        self.enqueue("", self._delay)

    def _observe_pod(self, change: str, pod: Object) -> None:
        metadata, spec = pod["metadata"], pod["spec"]
        key, uid, node = (metadata["namespace"], metadata["name"]), metadata["uid"], spec.get("nodeName")
        released = change == "DELETED" or is_over(pod)
        if released and uid in self._placed:
            self._reserve(*self._placed.pop(uid), -1)
            self.enqueue("", self._delay)
        elif not released and node is not None and uid not in self._placed:
            self._place(uid, node, shape_of(spec))
        if released or node is not None or "schedulingGates" in spec or "deletionTimestamp" in metadata:
            self._dequeue(key)
        elif key not in self._waiting and spec["schedulerName"] in _NAMES:
            unschedulable = start_fault(pod) == "unscheduled"
            text = self._waiting[key] = shape_key(spec) + (b" unschedulable" if unschedulable else b"")
            if text not in self._queues:
                shape = shape_of(spec)
                self._queues[text] = _Queue(replace(shape, terms=()) if unschedulable else shape)
            self._queues[text].pods[key] = None
            self._queues[text].unreported.append(key)
            self.enqueue("", self._delay)

    def _place(self, uid: str, node: str, shape: PodShape) -> None:
        self._placed[uid] = (node, shape)
        self._reserve(node, shape, 1)

    def _reserve(self, node: str, shape: PodShape, sign: int) -> None:
        free = self._free.get(node)
        if free is not None:
            for name, needed in shape.requests:
                free[name] = free.get(name, 0) - sign * needed

    def _dequeue(self, key: Key) -> None:
        text = self._waiting.pop(key, None)
        if text is not None:
            del self._queues[text].pods[key]

    async def sync(self, key: str) -> None:
        if not self._nodes:
            return
        busy = [queue for queue in self._queues.values() if queue.pods]
        for queue in sorted(busy, key=lambda queue: -queue.shape.priority):
            while queue.pods:
                pod_key = next(iter(queue.pods))
                pod = self.local.get("pods", *pod_key)
                if pod is not None and "nodeName" not in pod["spec"] and "deletionTimestamp" not in pod["metadata"]:
                    claims = self._devices.claims(pod) if "resourceClaims" in pod["spec"] else []
                    node = None if claims is None else self._find(queue, claims)
                    if node is not None and claims:
                        devices = self._devices.find(claims, node)
                        assert devices is not None, node
                        await self._devices.reserve(claims, devices, pod, node)
                    if node is None:
                        await self._report_unschedulable(queue)
                        break
                    await self.local.bind(*pod_key, node)
                    self._place(pod["metadata"]["uid"], node, queue.shape)
                    await self.yield_to_loop()
                self._dequeue(pod_key)

    def _find(self, queue: _Queue, claims: list[Object]) -> str | None:
        """Return the next node that fits; the search starts after the last result, which spreads the pods."""
        if queue.nodes is None:
            queue.nodes = [name for name, node in self._nodes.items() if matches_node(queue.shape, node)]
        count = len(queue.nodes)
        for step in range(count):
            position = (queue.start + step) % count
            fitting = fits(self._free[queue.nodes[position]], queue.shape)
            if fitting and (not claims or self._devices.find(claims, queue.nodes[position]) is not None):
                queue.start = position + 1
                return queue.nodes[position]
        return None

    async def _report_unschedulable(self, queue: _Queue) -> None:
        """Set the condition Unschedulable on the queue's pods that do not have it yet."""
        possible = len(queue.nodes or ())
        message = (
            f"0/{len(self._nodes)} nodes are available: {possible} have too little room, "
            f"{len(self._nodes) - possible} do not match the pod's node selector, affinity or tolerations."
        )
        while queue.unreported:
            pod = self.local.get("pods", *queue.unreported.pop())
            if pod is None or "nodeName" in pod["spec"] or "deletionTimestamp" in pod["metadata"]:
                continue
            others = [entry for entry in pod["status"].get("conditions", ()) if entry["type"] != "PodScheduled"]
            entry = {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": rfc3339(self.clock.now()),
                "reason": "Unschedulable",
                "message": message,
            }
            status = {**pod["status"], "conditions": [*others, entry]}
            namespace: str = pod["metadata"]["namespace"]
            await self.local.update("pods", namespace, {**pod, "status": status}, subresource="status")
            await self.yield_to_loop()
