"""Failure recovery: pods that stay terminating on an unreachable node are ended by force, and free their quota.

Nobody is there to report that such a pod has ended. Its user says by an annotation that it may be taken for ended: if
it runs on unseen, a second one beside it does no harm. Off unless `failureRecovery` is configured; then nodes are
watched, and pods are listed of unreachable nodes only. (Kueue's FailureRecoveryPolicy,
`pkg/controller/failurerecovery`.)
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from admission.cluster.events import ObjectReference
from admission.cluster.writer import Deletion, Patch
from admission.controller.state.inbox import Told
from admission.controller.state.repeating import repeat
from admission.controller.state.triggers import Noted
from admission.kinds.base import KUEUE, POD_OWNER, WORKLOAD_UID
from admission.kinds.pod_group import FINISHED_PHASES
from admission.model import sentences
from admission.store.records import FORCED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from admission.cluster.client import Client
    from admission.cluster.events import EventRecorder
    from admission.cluster.writer import Writer
    from admission.controller.state.faults import Faults
    from admission.controller.state.inbox import Inbox
    from admission.controller.state.policy import FailureRecoveryRules
    from admission.controller.workloads.nodes_and_pods import NodesAndPods

log = logging.getLogger(__name__)

ANNOTATIONS: Final = ("sluice.dev/safe-to-forcefully-delete", f"{KUEUE}safe-to-forcefully-delete")
"""Each of them permits it, with the value "true"."""
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
"""Taint of a node whose kubelet does not report any more."""
CONDITION: Final = "SluiceFailureRecovery"


class FailureRecovery:
    """Ends such pods some time after they should have terminated. `clock`: returns the Unix time (s)."""

    def __init__(
        self,
        client: Client,
        writer: Writer,
        events: EventRecorder,
        view: NodesAndPods,
        inbox: Inbox,
        faults: Faults,
        rules: FailureRecoveryRules,
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._writer = writer
        self._events = events
        self._view = view
        self._inbox = inbox
        self._faults = faults
        self._rules = rules
        self._clock = clock
        self._terminating: dict[str, float] = {}
        """By uid of a pod that may be ended: when it was first seen terminating on an unreachable node."""

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        await repeat(self._recover, self._faults, every=self._rules.interval, name="failure recovery")

    async def _recover(self) -> None:
        if not self._view.watch_nodes():
            return
        before, self._terminating = self._terminating, {}
        for node in self._unreachable():
            params = {"fieldSelector": f"spec.nodeName={node}"}
            async for page in self._client.list_pages("/api/v1/pods", params=params):
                for pod in page["items"]:
                    if self._is_due(pod, before):
                        await self._end(pod)

    def _unreachable(self) -> Iterator[str]:
        for node in [*self._view.nodes.values()]:
            if any(taint.key == UNREACHABLE for taint in node.taints):
                yield node.name

    def _is_due(self, pod: dict[str, Any], before: Mapping[str, float]) -> bool:
        """Whether a pod is to be ended. `before`: `_terminating` as it was at the last look."""
        metadata = pod["metadata"]
        annotations, uid = metadata.get("annotations") or {}, metadata["uid"]
        if "deletionTimestamp" not in metadata or not any(annotations.get(key) == "true" for key in ANNOTATIONS):
            return False
        # Not by its timestamp, which is of another machine: if that is behind, the pod would lose its grace period.
        since = self._terminating[uid] = before.get(uid, self._clock())
        return since + (metadata.get("deletionGracePeriodSeconds") or 0) + self._rules.grace <= self._clock()

    async def _end(self, pod: dict[str, Any]) -> None:
        """Report a pod as failed, for its controller, and delete it."""
        metadata, status = pod["metadata"], pod.get("status") or {}
        name, namespace, uid = metadata["name"], metadata["namespace"], metadata["uid"]
        seconds = (metadata.get("deletionGracePeriodSeconds") or 0) + self._rules.grace
        text = sentences.ended_by_force(pod["spec"]["nodeName"], seconds)
        told = {
            "type": CONDITION,
            "status": "True",
            "reason": FORCED,
            "message": text,
            "lastTransitionTime": datetime.fromtimestamp(self._clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        others = [each for each in status.get("conditions") or () if each["type"] != CONDITION]
        reported: dict[str, Any] = {"conditions": [*others, told]}
        if status.get("phase") not in FINISHED_PHASES:
            reported["phase"] = "Failed"
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        # With its version: it may have been changed, or be another pod of the name.
        known = {"metadata": {"uid": uid, "resourceVersion": metadata["resourceVersion"]}}
        await self._writer.request(Patch(path, {**known, "status": reported}, "status"))
        labels = metadata.get("labels") or {}
        workload = labels.get(WORKLOAD_UID) or labels.get(POD_OWNER) or uid
        # Before it is noticed that no pod is left.
        self._inbox.put(Told(workload, Noted(FORCED, f"Pod {name}: {text}")))
        target = ObjectReference("v1", "Pod", name, uid, namespace)
        self._events.record(target, reason=FORCED, action="Delete", note=text, warning=True)
        await self._writer.request(Deletion(path, uid, grace=0))
        log.info("pod %s/%s: %s", namespace, name, text)
