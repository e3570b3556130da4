"""Players of the moves about the nodes of the floor."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from admission.sandbox.apiserver.errors import ApiError
from tests.fuzz.topology_documents import NODES, floor_node
from tests.fuzz.topology_rules import check_placed, half_ungated, without_place
from tests.fuzz.world import NAMESPACES

if TYPE_CHECKING:
    from tests.fuzz.players import Players
    from tests.fuzz.world import Object


class FloorPlayers:
    """Players of these moves; each public method but `check` and `unplaced` is a move."""

    def __init__(self, players: Players) -> None:
        self._players = players
        self._world = players.world
        self._others = 0
        self._values: dict[tuple[str, str], set[Any]] = defaultdict(set)
        """All values that a label of a node has had, by node and label."""
        for node, labels in NODES.items():
            self._note(node, labels)

    # ------------------------------------------------------------------ those who run the nodes

    async def restore(self) -> None:
        """Let all nodes be there, ready and labelled as at the beginning, and free of others' pods."""
        for number, name in enumerate(NODES):
            await self.node_comes(number)
            await self._write(name, {"metadata": {"labels": NODES[name]}, "spec": {"unschedulable": None}})
        await self.node_heals()
        for pod in self._world.local.list("pods", "default"):
            await self._world.local.delete("pods", "default", pod["metadata"]["name"], grace=0)

    async def node_fails(self, pick: int) -> None:
        """Let a node become not ready; its pods are deleted, as the node controller does."""
        await self._report(name := _name(pick), "False")
        await self._lose_pods(name)

    async def node_heals(self) -> None:
        """Let all nodes be ready again."""
        for name in NODES:
            await self._report(name, "True")

    async def node_goes(self, pick: int, pods: str) -> None:
        """Delete a node and, as the garbage collection of pods does, what ran on it; or leave that to another move."""
        name = _name(pick)
        if self._world.local.get("nodes", "", name) is not None:
            await self._world.local.delete("nodes", "", name)
        if pods == "go":
            await self._lose_pods(name)

    async def node_comes(self, pick: int) -> None:
        if self._world.local.get("nodes", "", _name(pick)) is None:
            await self._lose_pods(_name(pick))  # none of them runs on the new machine
            await self._world.local.create("nodes", "", floor_node(_name(pick)))

    async def node_is_labelled(self, pick: int, label: str, value: str | None) -> None:
        self._note(_name(pick), {label: value})
        await self._write(_name(pick), {"metadata": {"labels": {label: value}}})

    async def node_is_cordoned(self, pick: int, cordoned: bool) -> None:
        await self._write(_name(pick), {"spec": {"unschedulable": cordoned or None}})

    async def other_pod(self, pick: int) -> None:
        """Let a pod that no queue knows run on a node."""
        self._others += 1
        container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1"}}}
        spec = {"nodeName": _name(pick), "containers": [container]}
        if self._world.local.get("nodes", "", _name(pick)) is not None:
            metadata = {"name": f"other-{self._others}"}
            await self._world.local.create("pods", "default", {"metadata": metadata, "spec": spec})

    async def kill_half_ungated(self, user: str, like: Object) -> None:
        """Create a Job, kill Sluice as soon as it has pods, and start it again."""
        if not await self._players.create(user, **like):
            return
        known = {pod["metadata"]["uid"] for pod in self._world.local.list("pods")}
        for _ in range(60):
            if any(pod["metadata"]["uid"] not in known for pod in self._world.local.list("pods", NAMESPACES[user])):
                break
            await asyncio.sleep(0.01)
        await self._players.restart(kindly=False, meanwhile=[])

    async def _report(self, name: str, ready: str) -> None:
        condition = {"type": "Ready", "status": ready, "reason": "Reported"}
        await self._write(name, {"status": {"conditions": [condition]}}, "status")

    async def _write(self, name: str, body: Object, subresource: str = "") -> None:
        if self._world.local.get("nodes", "", name) is not None:
            await self._world.local.patch("nodes", "", name, body, subresource=subresource)

    async def _lose_pods(self, node: str) -> None:
        for pod in self._world.local.list("pods"):
            if pod["spec"].get("nodeName") == node:
                group = (pod["metadata"].get("labels") or {}).get("sluice.dev/pod-group-name", "")
                if (members := self._players.pods.groups.get((pod["metadata"]["namespace"], group))) is not None:
                    members.odd = True  # nobody makes the pod again
                for owner in pod["metadata"].get("ownerReferences") or ():
                    if (written := self._players.jobs.get(owner["uid"])) is not None:
                        written.odd = True  # each pod counts as failed and delays the next one
                with suppress(ApiError):
                    await self._world.local.delete(
                        "pods", pod["metadata"]["namespace"], pod["metadata"]["name"], grace=0
                    )

    def _note(self, node: str, labels: Object) -> None:
        for label, value in labels.items():
            self._values[node, label].add(value)

    # ------------------------------------------------------------------ rules

    def check(self) -> None:
        """Raise Finding if pods that Sluice has placed exceed a node, or leave the domain that they require."""
        check_placed(self._world.local.list("pods"), self._values)

    async def unplaced(self) -> list[str]:
        """Return the pods that wait for their node, or are on one where their workload has no place for them."""
        places: dict[tuple[str, str], int] = defaultdict(int)
        for node in NODES:
            path = f"/apis/sluice.dev/v1/reports/node?node={node}&from=0m"
            status, report = await self._world.ask("GET", path)
            self._world.check_answer(f"GET {path}", status, report)
            for stay in report["items"]:
                if "to" not in stay:
                    places[stay["uid"], node] += stay["pods"]
        pods = self._world.local.list("pods")
        usable = {node["metadata"]["name"] for node in self._world.local.list("nodes") if _is_ready(node)}
        return [*half_ungated(pods, places, usable), *without_place(pods, places)]


def _is_ready(node: Object) -> bool:
    conditions = node.get("status", {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _name(pick: int) -> str:
    return [*NODES][pick]
