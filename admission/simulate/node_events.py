"""Nodes, pods and admission checks of a scenario that change while it is played, and what their controllers do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from admission.engine import ChecksReady, NodeChanged, NodeDeleted, NodesFailed, PodAdditions, PodEnded
from admission.engine.topology.nodes import untolerated
from admission.engine.topology.replacement import on_node
from admission.kinds.placement import node_state
from admission.model.workload import Toleration
from admission.simulate.scenario import key_of
from admission.simulate.topology import pod_event, topology_rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from admission.engine import Engine
    from admission.engine.topology.nodes import NodeState
    from admission.model.workload import Admission, PodSetAssignment, Workload
    from admission.simulate.scenario import Case

_MANY_FAILURES = "Workload eviction triggered due to multiple TAS assigned node failures, including: "


class NodeEvents:
    """The events of a scenario, by cycle; all workloads' pods on a failing node count as ended."""

    def __init__(self, document: Mapping[str, Any], engine: Engine, workloads: Mapping[str, Workload]) -> None:
        self._engine = engine
        self._workloads = workloads
        """By `namespace/name`."""
        self._nodes = {manifest["metadata"]["name"]: manifest for manifest in document.get("nodes") or ()}
        self._pods = {key_of(manifest): manifest for manifest in document.get("pods") or ()}
        self._tolerations: dict[str, tuple[Toleration, ...]] = {}
        for manifest in document.get("resourceFlavors") or ():
            spec = manifest.get("spec") or {}
            self._tolerations[manifest["metadata"]["name"]] = tuple(map(_toleration, spec.get("tolerations") or ()))
        self._events: dict[int, list[tuple[str, Mapping[str, Any]]]] = {}
        if topology_rules(document) is not None:
            for kind in ("nodeEvents", "podEvents", "checkEvents"):
                for event in document.get(kind) or ():
                    self._events.setdefault(event["afterCycle"], []).append((kind, event))
        self._additions: dict[str, Mapping[str, PodAdditions]] = {}
        self.unhealthy: dict[str, list[str]] = {}
        """Failed nodes of each workload that has pods on them."""
        self.ready_at = 0
        """The last cycle after which the admission checks of a workload became Ready."""
        self.last = max(self._events, default=0)
        """The last cycle with an event."""

    def after(self, cycle: int, admitted: Mapping[str, Admission], now: float) -> Iterator[tuple[str, str]]:
        """Apply the events after a cycle; yield the workloads that are to be evicted for them, with the message."""
        for kind, event in self._events.get(cycle, ()):
            if kind == "podEvents":
                self._change_pod(event, now)
            elif kind == "checkEvents":
                self._check(event, admitted, now)
                self.ready_at = cycle
            elif name := self._change_node(event, now):
                yield from self._judge(name, admitted, now)

    def left(self, key: str) -> None:
        """A workload has lost its quota, or has other nodes."""
        self.unhealthy.pop(key, None)

    def _change_pod(self, event: Mapping[str, Any], now: float) -> None:
        if "add" in event:
            manifest = event["add"]
            self._pods[key_of(manifest)] = manifest
            self._engine.observe(pod_event(manifest), now=now)
        elif event["pod"] in self._pods:
            if event.get("delete"):
                del self._pods[event["pod"]]
                self._engine.observe(PodEnded(event["pod"]), now=now)
            else:
                manifest = self._pods[event["pod"]]
                manifest = self._pods[event["pod"]] = {**manifest, "status": {"phase": event["phase"]}}
                self._engine.observe(pod_event(manifest), now=now)

    def _change_node(self, event: Mapping[str, Any], now: float) -> str:
        """Apply an event of a node, and return the node's name; "" if there is no such node."""
        if "add" in event:
            manifest = event["add"]
        elif event["node"] not in self._nodes:
            return ""
        elif event.get("delete"):
            del self._nodes[event["node"]]
            self._engine.observe(NodeDeleted(event["node"]), now=now)
            return str(event["node"])
        else:
            manifest = _changed(self._nodes[event["node"]], event)
        name = str(manifest["metadata"]["name"])
        self._nodes[name] = manifest
        self._engine.observe(NodeChanged(node_state(manifest)), now=now)
        return name

    def _judge(self, name: str, admitted: Mapping[str, Admission], now: float) -> Iterator[tuple[str, str]]:
        """Tell the engine of which workloads the node has failed; yield those that had another failed node."""
        node = node_state(self._nodes[name]) if name in self._nodes else None
        for key, admission in sorted(admitted.items()):
            placed = [
                pod_set
                for pod_set in admission.pod_sets
                if pod_set.topology is not None and on_node(pod_set.topology, name)
            ]
            known = self.unhealthy.get(key, [])
            failed = bool(placed) and (node is None or not node.ready or self._repelled(key, placed, node))
            if failed is (name in known):
                continue
            if failed and known:
                yield key, f"{_MANY_FAILURES}{', '.join([*known, name])}"
                continue
            known = [*known, name] if failed else [each for each in known if each != name]
            self.unhealthy[key] = known
            if not known:
                del self.unhealthy[key]
            self._engine.observe(NodesFailed(self._workloads[key].uid, tuple(known)), now=now)

    def _repelled(self, key: str, placed: Iterable[PodSetAssignment], node: NodeState) -> bool:
        """Whether a taint of the node stops pods of one of these pod sets."""
        written = {pod_set.name: pod_set for pod_set in self._workloads[key].pod_sets}
        added = self._additions.get(key, {})
        for pod_set in placed:
            tolerations: list[Toleration] = [*written[pod_set.name].tolerations]
            for flavor in sorted(set(pod_set.flavors.values())):
                tolerations += self._tolerations.get(flavor, ())
            if pod_set.name in added:
                tolerations += added[pod_set.name].tolerations
            lasting = tuple(each for each in tolerations if each.toleration_seconds is None)
            if untolerated(node.taints, lasting) is not None:
                return True
        return False

    def _check(self, event: Mapping[str, Any], admitted: Mapping[str, Admission], now: float) -> None:
        admission = admitted.get(event["workload"])
        if admission is None or event["state"] != "Ready":
            return
        additions = {
            update["name"]: PodAdditions(
                update.get("nodeSelector") or {}, tuple(map(_toleration, update.get("tolerations") or ()))
            )
            for update in event.get("podSetUpdates") or ()
        }
        self._additions[event["workload"]] = additions
        self._engine.observe(ChecksReady(self._workloads[event["workload"]].uid, additions), now=now)


def _changed(manifest: Mapping[str, Any], event: Mapping[str, Any]) -> Case:
    spec, status = dict(manifest.get("spec") or {}), dict(manifest.get("status") or {})
    if "ready" in event:
        status["conditions"] = [{"type": "Ready", "status": "True" if event["ready"] else "False"}]
    if "allocatable" in event:
        status["allocatable"] = event["allocatable"]
    spec.update({field: event[field] for field in ("unschedulable", "taints") if field in event})
    return {**manifest, "spec": spec, "status": status}


def _toleration(item: Mapping[str, Any]) -> Toleration:
    return Toleration(
        item.get("key", ""),
        item.get("operator", "Equal"),
        item.get("value", ""),
        item.get("effect", ""),
        item.get("tolerationSeconds"),
    )
