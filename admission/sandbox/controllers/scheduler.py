"""The pretend scheduler: binds pods to the pretend nodes that have room for them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from admission.sandbox.clock import rfc3339
from admission.sandbox.controllers.base import Controller, is_over
from admission.sandbox.controllers.fit import Shape, has_room, matches_node, room_on, shape_key, shape_of
from admission.sandbox.controllers.podlife import start_of

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.clock import Clock
    from admission.sandbox.local import LocalClient

Key = tuple[str, str]

# Pods that arrive together are placed together, after this pause (wall seconds).
_WALL_PAUSE = 0.005
_FAKE = "kwok.x-k8s.io/node"
_NAMES = ("default-scheduler", "kai-scheduler", "volcano", "yunikorn")
"""The `schedulerName` of the pods that are placed; of others only the room is counted.

Two schedulers that do not know of each other would give the same room away.
"""


def is_pretend(node: Object) -> bool:
    """Whether a node is run by the sandbox: `kwok.x-k8s.io/node: fake` among its annotations or labels."""
    metadata = node["metadata"]
    return "fake" in (metadata.get("annotations", {}).get(_FAKE), metadata.get("labels", {}).get(_FAKE))


@dataclass(slots=True)
class _Queue:
    """Equal pods that wait, oldest first; `untold` have not been told that they fit nowhere.

    `nodes` would take them if they had room; the search goes on at `start`.
    """

    shape: Shape
    pods: dict[Key, None] = field(default_factory=dict)
    untold: list[Key] = field(default_factory=list)
    nodes: list[str] | None = None
    start: int = 0


class Scheduler(Controller[str]):
    """Its only piece of work is a pass over all shapes of waiting pods, each tried until it does not fit.

    It leaves every pod alone while there is no pretend node.
    """

    plurals = ("nodes", "pods")

    def __init__(self, local: LocalClient, clock: Clock) -> None:
        super().__init__(local, clock)
        self._nodes: dict[str, Object] = {}
        self._free: dict[str, dict[str, int]] = {}
        self._placed: dict[str, tuple[str, Shape]] = {}
        self._queues: dict[bytes, _Queue] = {}
        self._waiting: dict[Key, bytes] = {}
        self._pause_between = _WALL_PAUSE * clock.speed

    def observe(self, plural: str, change: str, obj: Object, before: Object | None) -> None:
        if plural == "nodes":
            self._observe_node(change, obj)
        else:
            self._observe_pod(change, obj)

    def _observe_node(self, change: str, node: Object) -> None:
        name = node["metadata"]["name"]
        if change == "DELETED" or not is_pretend(node):
            self._nodes.pop(name, None)
            self._free.pop(name, None)
        else:
            self._nodes[name] = node
            self._free[name] = room_on(node)
            for where, shape in self._placed.values():
                if where == name:
                    self._take(where, shape, 1)
        for queue in self._queues.values():
            queue.nodes = None
        self.dirty("", self._pause_between)

    def _observe_pod(self, change: str, pod: Object) -> None:
        metadata, spec = pod["metadata"], pod["spec"]
        key, uid, node = (metadata["namespace"], metadata["name"]), metadata["uid"], spec.get("nodeName")
        gone = change == "DELETED" or is_over(pod)
        if gone and uid in self._placed:
            self._take(*self._placed.pop(uid), -1)
            self.dirty("", self._pause_between)
        elif not gone and node is not None and uid not in self._placed:
            self._place(uid, node, shape_of(spec))
        if gone or node is not None or "schedulingGates" in spec or "deletionTimestamp" in metadata:
            self._forget(key)
        elif key not in self._waiting and spec["schedulerName"] in _NAMES:
            never = start_of(pod) == "unscheduled"
            text = self._waiting[key] = shape_key(spec) + (b" never" if never else b"")
            if text not in self._queues:
                shape = shape_of(spec)
                self._queues[text] = _Queue(replace(shape, terms=()) if never else shape)
            self._queues[text].pods[key] = None
            self._queues[text].untold.append(key)
            self.dirty("", self._pause_between)

    def _place(self, uid: str, node: str, shape: Shape) -> None:
        self._placed[uid] = (node, shape)
        self._take(node, shape, 1)

    def _take(self, node: str, shape: Shape, sign: int) -> None:
        free = self._free.get(node)
        if free is not None:
            for name, needed in shape.requests:
                free[name] = free.get(name, 0) - sign * needed

    def _forget(self, key: Key) -> None:
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
                    node = self._find(queue)
                    if node is None:
                        await self._refuse(queue)
                        break
                    await self.local.bind(*pod_key, node)
                    self._place(pod["metadata"]["uid"], node, queue.shape)
                    await self.breathe()
                self._forget(pod_key)

    def _find(self, queue: _Queue) -> str | None:
        """The next node with room; the search starts where the last one ended, which spreads the pods."""
        if queue.nodes is None:
            queue.nodes = [name for name, node in self._nodes.items() if matches_node(queue.shape, node)]
        count = len(queue.nodes)
        for step in range(count):
            position = (queue.start + step) % count
            if has_room(self._free[queue.nodes[position]], queue.shape):
                queue.start = position + 1
                return queue.nodes[position]
        return None

    async def _refuse(self, queue: _Queue) -> None:
        """Tell the pods that do not know it yet that they fit nowhere."""
        possible = len(queue.nodes or ())
        message = (
            f"0/{len(self._nodes)} nodes are available: {possible} have too little room, "
            f"{len(self._nodes) - possible} do not match the pod's node selector, affinity or tolerations."
        )
        while queue.untold:
            pod = self.local.get("pods", *queue.untold.pop())
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
            await self.breathe()
