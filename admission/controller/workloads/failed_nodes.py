"""Failed nodes of workloads that are placed on single nodes: which have failed, and what follows.

Rules and messages are Kueue's (TASReplaceNodeOnPodTermination, TASReplaceNodeOnNodeTaints, TASFailedNodeReplacement):
a node that is gone has failed at once; one that is not ready, or has a taint that the pods do not tolerate, when no pod
of the workload is left on it. The engine then looks for another node. If two have failed, the workload is evicted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.controller.workloads.triggers import NodesLost
from admission.engine.events import NodesFailed
from admission.engine.topology.nodes import untolerated
from admission.model.topology import HOSTNAME
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from admission.controller.state.inbox import NodesAndPodsChanged
    from admission.controller.state.tracked import Tracked
    from admission.controller.workloads.nodes_and_pods import NodesAndPods
    from admission.controller.workloads.reconciler import Reconciler
    from admission.engine.topology.nodes import NodeState
    from admission.model.queues import FlavorToleration
    from admission.model.workload import PodSetAssignment, Toleration

_STUCK: Final = "Node {} has failed before a pod that was sent to it was bound"
_SEVERAL: Final = "Workload eviction triggered due to multiple TAS assigned node failures, including: "


class FailedNodes:
    """The failed nodes of each workload that holds quota for pods on them."""

    def __init__(self, reconciler: Reconciler, view: NodesAndPods) -> None:
        self._reconciler = reconciler
        self._view = view
        self._known: dict[str, tuple[str, ...]] = {}
        """Failed nodes by uid of the workload, as the engine knows them."""

    def changed(self, message: NodesAndPodsChanged) -> None:
        """Judge the workloads whose nodes or pods have changed."""
        registry = self._reconciler.state.registry
        for tracked in list(registry) if message.nodes else map(registry.get, message.workloads):
            if tracked is None:
                continue
            if tracked.record.state is not State.ADMITTED:
                self._known.pop(tracked.uid, None)
            elif tracked.uid in message.workloads or self._has_any(tracked, message.nodes):
                with self._reconciler.isolation.of(tracked.uid):
                    self._judge(tracked)

    def _has_any(self, tracked: Tracked, nodes: Container[str]) -> bool:
        """Whether the workload is placed on one of these nodes, or on one that does not exist."""
        known = self._view.nodes
        return any(values[-1] in nodes or values[-1] not in known for values in _values(_placed(tracked)))

    def _judge(self, tracked: Tracked) -> None:
        placed = _placed(tracked)
        names = dict.fromkeys(values[-1] for values in _values(placed))
        failed = tuple(name for name in names if self._has_failed(tracked, placed, name))
        known = self._known.get(tracked.uid, ())
        if set(failed) == set(known):
            return
        self._known[tracked.uid] = failed
        if len(failed) > 1:
            both = [*(name for name in known if name in failed), *(name for name in failed if name not in known)]
            self._reconciler.handle(tracked, NodesLost(f"{_SEVERAL}{', '.join(both)}"))
        elif failed and self._is_stuck(tracked, failed[0]):
            self._reconciler.handle(tracked, NodesLost(_STUCK.format(failed[0])))
        else:
            self._reconciler.state.observe(NodesFailed(tracked.uid, failed))

    def _has_failed(self, tracked: Tracked, placed: list[PodSetAssignment], name: str) -> bool:
        node = self._view.nodes.get(name)
        if node is None:
            return True
        if node.ready and not self._repels(tracked, placed, node):
            return False
        return not any(pod.node == name and not pod.deleting for pod in self._view.pods_of(tracked.uid))

    def _is_stuck(self, tracked: Tracked, name: str) -> bool:
        """Whether a pod is to run on the node, and not bound to it: its node selector cannot be changed any more."""
        return any(
            not pod.node and not pod.deleting and not pod.placed.gated and pod.placed.selector.get(HOSTNAME) == name
            for pod in self._view.pods_of(tracked.uid)
            if pod.placed is not None
        )

    def _repels(self, tracked: Tracked, placed: list[PodSetAssignment], node: NodeState) -> bool:
        """Whether a taint of the node keeps pods of one of these pod sets away that are placed on it."""
        if not node.taints:
            return False
        flavors = self._reconciler.environment.context.flavors
        pod_sets = {pod_set.name: pod_set for pod_set in tracked.record.workload.pod_sets}
        for assignment in placed:
            if assignment.topology is None or all(values[-1] != node.name for values, _ in assignment.topology.domains):
                continue
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
            if untolerated(node.taints, tuple(tolerations)) is not None:
                return True
        return False

    def replaced(self, uid: str) -> None:
        """The engine has found another node for the pods on the failed one."""
        self._known.pop(uid, None)


def _placed(tracked: Tracked) -> list[PodSetAssignment]:
    """Return the pod sets that are placed on single nodes."""
    admission = tracked.record.admission
    if admission is None:
        return []
    return [each for each in admission.pod_sets if each.topology is not None and each.topology.levels[-1] == HOSTNAME]


def _values(placed: list[PodSetAssignment]) -> Iterator[tuple[str, ...]]:
    for assignment in placed:
        if assignment.topology is not None:
            yield from (values for values, _ in assignment.topology.domains)
