"""Failed nodes of workloads that are placed on single nodes: which have failed, and what follows.

Rules and messages are Kueue's (TASReplaceNodeOnPodTermination, TASReplaceNodeOnNodeTaints, TASFailedNodeReplacement):
a node that is gone, or has no condition Ready, has failed at once; one that is not ready, or has a taint that the pods
do not tolerate without limit, when no pod of the workload is left on it. The engine then looks for another node. If two
have failed, the workload is evicted.

A pod that is left on a node where its workload has no place any more, or may have been sent there, counts there as a
pod of others until it is gone: the node may come back, and be given to another workload. Kueue does not count it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.controller.state.triggers import NodesLost
from admission.engine.events import NodesFailed, PodBound, PodEnded
from admission.engine.topology.nodes import untolerated
from admission.engine.topology.replacement import on_node
from admission.kinds.base import POD
from admission.model.topology import HOSTNAME
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from admission.controller.state.inbox import NodesAndPodsChanged
    from admission.controller.state.tracked import Tracked
    from admission.controller.workloads.hosted import Hosted
    from admission.controller.workloads.nodes_and_pods import NodesAndPods
    from admission.engine.topology.nodes import NodeState
    from admission.model.queues import FlavorToleration
    from admission.model.workload import PodSetAssignment, Toleration

_STUCK: Final = "Node {} has failed before a pod that was sent to it was bound"
_SEVERAL: Final = "Workload eviction triggered due to multiple TAS assigned node failures, including: "


class FailedNodes:
    """The failed nodes of each workload that holds quota for pods on them."""

    def __init__(self, hosted: Hosted, view: NodesAndPods) -> None:
        self._hosted = hosted
        self._state = hosted.reconciler.state
        self._cluster = hosted.cluster
        self._view = view
        self._left: dict[str, dict[str, None]] = {}
        """The pods that count as those of others, by the uid of their workload."""

    def changed(self, message: NodesAndPodsChanged) -> None:
        """Judge the nodes that have changed, or whose pods have, for the workloads with pods there."""
        if message.complete:
            concerned = {tracked.uid: _hostnames(tracked) for tracked in self._hosted}
            self._left.clear()  # the engine is a new one
            self.placed_again(concerned)
        else:
            concerned = {}
            self.placed_again([uid for uid in self._left if message.nodes or any(uid == of for of, _ in message.pods)])
            for name in sorted(message.nodes):
                for uid in self._placed_on(name):
                    concerned.setdefault(uid, {})[name] = None
            for uid, name in sorted(message.pods):
                if name:
                    concerned.setdefault(uid, {})[name] = None
        for uid in sorted(concerned):
            tracked = self._hosted.get(uid)
            if tracked is not None and tracked.record.state is State.ADMITTED and not _is_a_pod(tracked):
                with self._hosted.reconciler.isolation.of(uid):
                    self._judge(tracked, concerned[uid])

    def placed_again(self, uids: Iterable[str]) -> None:
        """Count the pods of workloads whose places have changed, where they have none any more."""
        for uid in uids:
            tracked = self._hosted.get(uid)
            pods = {} if tracked is None else self._without_place(tracked)
            before = self._left.pop(uid, {})
            for pod in before.keys() - pods.keys():
                self._state.observe(PodEnded(pod, self._cluster))
            for pod, event in pods.items():
                if pod not in before:
                    self._state.observe(event)
            if pods:
                self._left[uid] = dict.fromkeys(pods)

    def _without_place(self, tracked: Tracked) -> dict[str, PodBound]:
        """Return by uid the pods of a workload that are on nodes where it has no place, or may be sent there."""
        placed = {each.name for each in _placed(tracked)}
        if not placed:
            return {}
        workload, view = tracked.record.workload, self._view
        requests = {each.name: each.beside_devices for each in workload.pod_sets if each.name in placed}
        found = {}
        for pod in view.pods_of(workload):
            name = view.hostname(pod) if pod.pod_set in requests else ""
            if name and tracked.uid not in self._placed_on(name):
                node = pod.node or (view.hosts[name].name if name in view.hosts else name)
                found[pod.uid] = PodBound(pod.uid, node, requests[pod.pod_set], self._cluster)
        return found

    def _judge(self, tracked: Tracked, names: Iterable[str]) -> None:
        """Judge these nodes for a workload. One on which it has no place has failed for a pod that is sent there."""
        known = self._state.engine.failed_nodes(tracked.uid)
        failed = [name for name in known if name not in names]
        for name in names:
            if tracked.uid not in self._placed_on(name):
                self.placed_again((tracked.uid,))
                if self._is_stuck(tracked, name):
                    self._hosted.tell(tracked, NodesLost(_STUCK.format(name)))
                    return
            elif self._has_failed(tracked, name):
                failed.append(name)
        if set(failed) == set(known):
            return
        if len(failed) > 1:
            both = [*(name for name in known if name in failed), *(name for name in failed if name not in known)]
            self._hosted.tell(tracked, NodesLost(f"{_SEVERAL}{', '.join(both)}"))
        elif failed and self._is_stuck(tracked, failed[0]):
            self._hosted.tell(tracked, NodesLost(_STUCK.format(failed[0])))
        else:
            self._state.observe(NodesFailed(tracked.uid, tuple(failed)))

    def _placed_on(self, name: str) -> Collection[str]:
        return self._state.engine.placed_on(name, self._cluster)

    def _has_failed(self, tracked: Tracked, name: str) -> bool:
        node = self._view.hosts.get(name)
        if node is None or not node.reports:
            return True
        if node.ready and not (node.taints and self._repels(tracked, node)):
            return False
        pods = self._view.pods_of(tracked.record.workload)
        return not any(pod.node == node.name and not pod.deleting for pod in pods)

    def _is_stuck(self, tracked: Tracked, name: str) -> bool:
        """Whether a pod is to run on the node, and not bound to it: its node selector cannot be changed any more."""
        pod_sets = {each.name for each in _placed(tracked)}
        return any(
            not pod.node and not pod.deleting and not pod.placed.gated and pod.placed.selector.get(HOSTNAME) == name
            for pod in self._view.pods_of(tracked.record.workload)
            if pod.placed is not None and pod.pod_set in pod_sets
        )

    def _repels(self, tracked: Tracked, node: NodeState) -> bool:
        """Whether a taint of the node keeps pods of one of the pod sets away that are placed on it."""
        flavors = self._hosted.reconciler.environment.context.flavors
        pod_sets = {pod_set.name: pod_set for pod_set in tracked.record.workload.pod_sets}
        for assignment in _placed(tracked):
            tolerations: list[Toleration | FlavorToleration] = [
                *pod_sets[assignment.name].tolerations,
                *(
                    toleration
                    for flavor in sorted(set(assignment.flavors.values()))
                    if flavor in flavors
                    for toleration in flavors[flavor].spec.tolerations
                ),
                *(
                    toleration
                    for update in tracked.updates
                    if update.name == assignment.name
                    for toleration in update.tolerations
                ),
            ]
            lasting = tuple(each for each in tolerations if each.toleration_seconds is None)
            placed = assignment.topology
            if placed is not None and untolerated(node.taints, lasting) and on_node(placed, node.hostname):
                return True
        return False


def _placed(tracked: Tracked) -> list[PodSetAssignment]:
    """Return the pod sets that are placed on single nodes."""
    admission = tracked.record.admission
    if admission is None:
        return []
    return [each for each in admission.pod_sets if each.topology is not None and each.topology.levels[-1] == HOSTNAME]


def _is_a_pod(tracked: Tracked) -> bool:
    """Whether the workload is a single pod, which ends with its node (Kueue's SkipReassignmentForPodOwnedWorkloads)."""
    return tracked.seen is not None and (tracked.seen.kind.group, tracked.seen.kind.kind) == POD


def _hostnames(tracked: Tracked) -> dict[str, None]:
    """Return the nodes on which the workload is placed."""
    assignments = (each.topology for each in _placed(tracked))
    return {values[-1]: None for each in assignments if each is not None for values, _ in each.domains}
