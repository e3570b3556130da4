"""Workloads that are placed by topology, and what has to be placed once more: the registry's part of topology."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.engine.events import (
    ChecksReady,
    NodeChanged,
    NodeDeleted,
    NodesFailed,
    NodesListed,
    PodBound,
    PodEnded,
)
from admission.engine.topology.replacement import on_node
from admission.engine.topology.second_pass import Due
from admission.engine.topology.workloads import placed_pods
from admission.model.topology import HOSTNAME

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from admission.engine.clusterqueue import Held
    from admission.engine.events import TopologyEvent
    from admission.engine.registry import Registry
    from admission.engine.topology.state import Topologies
    from admission.model.workload import Admission, PodSet


class PlacedWorkloads:
    """Keeps the usage of placed workloads in the trees of topologies, and the workloads due for a second pass."""

    def __init__(self, registry: Registry, topologies: Topologies) -> None:
        self._registry = registry
        self.topologies = topologies
        self._due: dict[str, Due] = {}
        """Workloads to be placed once more, by uid."""
        self._on: dict[tuple[str, str], set[str]] = {}
        """(cluster, hostname) to the uids of the workloads with pods there."""
        self._version = 0
        self._freed = False
        """Whether room has become free since places were last searched for the workloads that are due."""

    def observe(self, event: TopologyEvent) -> None:
        """Apply an event of nodes, pods or placement."""
        concerned = False
        match event:
            case NodeChanged(node, cluster):
                concerned = self.topologies.node_changed(node, cluster)
            case NodeDeleted(name, cluster):
                concerned = self.topologies.node_gone(name, cluster)
            case PodBound(uid, node_name, requests, cluster):
                self._free_node(self.topologies.pod_bound(uid, node_name, requests, cluster), cluster)
            case PodEnded(uid, cluster):
                self._free_node(self.topologies.pod_ended(uid, cluster), cluster)
            case NodesListed(cluster):
                self.topologies.forget(cluster)
            case NodesFailed(uid, nodes):
                self._due.pop(uid, None)
                if nodes and uid in self._registry.held:
                    held = self._registry.held[uid]
                    self._due[uid] = Due(held, self._registry.shapes.of(held.workload), nodes)
            case ChecksReady(uid, additions):
                known = self._due.get(uid)
                if uid not in self._registry.held or (known is not None and known.additions == additions):
                    return
                held = self._registry.held[uid]
                if any(pod_set.delayed and pod_set.topology is None for pod_set in held.admission.pod_sets):
                    self._due[uid] = Due(held, self._registry.shapes.of(held.workload), additions=additions)
        if concerned:  # another place may be free: as in Kueue everything is tried again
            self._freed = True
            for domain in self._registry.forest.domains.values():
                domain.dirty = domain.freed = True

    def _free_node(self, node: str, cluster: str) -> None:
        """Have the workloads tried again that may fit onto a node of which a pod has freed a part."""
        if not node or not (flavors := self.topologies.flavors_of(node, cluster)):
            return
        self._freed = True
        for queue, domain in self._registry.forest.domain_of.items():
            if (domain.dirty and domain.freed) or not domain.placing:
                continue
            if any(quotas.name in flavors for group in queue.spec.resource_groups for quotas in group.flavors):
                domain.dirty = domain.freed = True

    def follow_flavors(self) -> None:
        """Have a tree for each flavor with a topology, after a change of flavors or topologies."""
        if self.topologies.follow(self._registry.forest.flavors):
            for domain in self._registry.forest.domains.values():
                domain.built_from = ()

    def mark_changed(self) -> None:
        """Have the quota trees processed whose workloads may be placed otherwise since nodes or usage have changed."""
        if self.topologies.version != self._version:
            self._version = self.topologies.version
            for domain in self._registry.forest.domains.values():
                domain.dirty = domain.dirty or domain.placing

    def add(self, held: Held) -> None:
        """Count the pods of a workload that are placed by topology, in the trees of all flavors with their nodes."""
        if not held.placed:
            held.placed = placed_pods(held.workload, held.admission, self.topologies.named)
        if held.placed:
            self.topologies.hold(held.placed, 1)
            for name in _hostnames(held):
                self._on.setdefault(name, set()).add(held.workload.uid)

    def remove(self, held: Held) -> None:
        """Count them no more."""
        self._due.pop(held.workload.uid, None)
        if held.placed:
            self._freed = True
            self.topologies.hold(held.placed, -1)
            for name in _hostnames(held):
                here = self._on[name]
                here.remove(held.workload.uid)
                if not here:
                    del self._on[name]

    def reassign(self, held: Held, admission: Admission) -> None:
        """Replace the domains of a workload that was placed once more."""
        freed = self._freed
        self.remove(held)
        self._freed = freed  # what it leaves is on a failed node
        held.admission, held.placed = admission, ()
        self.add(held)

    def on(self, hostname: str, cluster: str) -> Collection[str]:
        """Return the uids of the workloads with pods on this node."""
        return self._on.get((cluster, hostname), ())

    def failed_nodes(self, uid: str) -> tuple[str, ...]:
        """Return the failed nodes of which the pods of a workload wait for other ones."""
        return self._due[uid].nodes if uid in self._due else ()

    def due(self, now: float) -> list[Due]:
        """Return the workloads to be placed once more now, in the order in which that became known.

        When room has become free all of them are: their pods come before those of workloads that arrive meanwhile. In
        Kueue they wait for their next attempt.
        """
        freed, self._freed = self._freed and not self.topologies.rules.as_kueue, False
        return [one for one in self._due.values() if (freed or one.at <= now) and not one.held.evicting]

    def waiting(self, held: Held) -> Iterator[tuple[PodSet, int, list[str]]]:
        """Yield the pod sets of a workload for which a place is searched once more, their pods, and their flavors."""
        due = self._due.get(held.workload.uid)
        if due is None:
            return
        for pod_set, assigned in zip(due.written(), held.admission.pod_sets, strict=True):
            flavors = sorted(set(assigned.flavors.values()) & self.topologies.trees.keys())
            if due.nodes and assigned.topology is not None and on_node(assigned.topology, due.nodes[0]):
                pods = sum(count for values, count in assigned.topology.domains if values[-1] == due.nodes[0])
                yield pod_set, pods, flavors
            elif not due.nodes and assigned.topology is None:
                yield pod_set, assigned.count, flavors

    def due_at(self) -> float | None:
        """Return the Unix time (s) of the next second pass; None: there is none."""
        return min((one.at for one in self._due.values() if not one.held.evicting), default=None)


def _hostnames(held: Held) -> set[tuple[str, str]]:
    """Return the (cluster, hostname) of the nodes on which the pods of a workload are placed one by one."""
    return {
        (pods.cluster, values[0])
        for pods in held.placed
        if pods.assignment.levels == (HOSTNAME,)
        for values, _ in pods.assignment.domains
    }
