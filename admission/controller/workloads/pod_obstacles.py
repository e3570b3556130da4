"""What keeps the pods of admitted workloads from running: the words of the Kubernetes scheduler, or of the kubelet.

Quota says nothing about nodes: a Job may be admitted, and its pods wait for a node, or for an image, for ever. Pods of
admitted workloads that are not ready after a while are asked for, those alone that are pending, many workloads of a
namespace in one request. Of queued pods and groups of them the watch has told already.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NoReturn

from admission.controller.state.inbox import PodProblemsFound
from admission.kinds.base import POD, POD_OWNER
from admission.model import sentences
from admission.model.errors import ClusterError
from admission.model.text import clean
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from admission.cluster.client import Client
    from admission.controller.state.inbox import Inbox
    from admission.controller.state.tracked import Tracked
    from admission.controller.workloads.pod_groups import PodGroups
    from admission.controller.workloads.reconciler import Readiness

log = logging.getLogger(__name__)

AFTER = 10.0
"""Seconds after the start of a workload until its pods are asked for, and between two looks, doubling up to LONGEST."""

LONGEST = 120.0

AT_ONCE = 50
"""Workloads that one request asks about: their uids have to fit into a URL."""

_LOOK_SECONDS = 1.0
_PODS = 500
_HARMLESS = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Why containers wait that are about to start."""


class PodObstacles:
    """Looks while `run` runs, and puts `PodProblemsFound` into the inbox. `clock` gives seconds since the epoch."""

    def __init__(
        self,
        client: Client,
        inbox: Inbox,
        readiness: Readiness,
        groups: PodGroups,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._inbox = inbox
        self._readiness = readiness
        self._groups = groups
        self._clock = clock
        self._looks: dict[str, tuple[float, float]] = {}
        """By uid: when the next look is due, and the pause after it."""

    def begin(self, readiness: Readiness, groups: PodGroups) -> None:
        """The state was loaded anew: `readiness` knows the admitted workloads whose pods are not all ready."""
        self._readiness, self._groups = readiness, groups

    async def run(self) -> NoReturn:
        """Look again and again."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            await self._look()

    async def _look(self) -> None:
        now = self._clock()
        by_selector: dict[tuple[str, str], list[Tracked]] = defaultdict(list)
        known, self._looks = self._looks, {}
        for tracked in self._readiness.unready():
            since = tracked.record.cleared_at
            if since is None:
                continue
            due, pause = known.get(tracked.uid, (since + AFTER, AFTER))
            if due <= now:
                label = POD_OWNER if tracked.seen is None else tracked.seen.kind.pods_label
                if label:
                    by_selector[tracked.record.workload.namespace, label].append(tracked)
                else:  # it is a pod, or a group of pods: those are watched
                    self._tell(tracked, self._known(tracked))
                due, pause = now + pause, min(2 * pause, LONGEST)
            self._looks[tracked.uid] = due, pause
        for (namespace, label), several in by_selector.items():
            for start in range(0, len(several), AT_ONCE):
                try:
                    await self._look_at(namespace, label, several[start : start + AT_ONCE])
                except ClusterError as error:
                    log.warning("cannot see why pods of namespace %s do not run: %s", namespace, error)

    async def _look_at(self, namespace: str, label: str, several: list[Tracked]) -> None:
        params = {
            "labelSelector": f"{label} in ({','.join(tracked.uid for tracked in several)})",
            "fieldSelector": "status.phase=Pending",
            "limit": str(_PODS),
        }
        found = await self._client.get(f"/api/v1/namespaces/{namespace}/pods", params=params)
        pods: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for pod in found["items"]:
            pods[pod["metadata"]["labels"][label]].append(pod)
        for tracked in several:
            self._tell(tracked, pods[tracked.uid])

    def _known(self, tracked: Tracked) -> list[dict[str, Any]]:
        """Those of its pods that may run and do not, as the watch has told of them."""
        kind = None if tracked.seen is None else tracked.seen.kind
        if kind is not None and (kind.group, kind.kind) == POD:
            return [obj] if (obj := tracked.object) is not None else []
        return [
            member.object
            for member in self._groups.members(tracked)
            if member.phase == "Pending" and not member.gated and not member.deleting
        ]

    def _tell(self, tracked: Tracked, pods: Iterable[dict[str, Any]]) -> None:
        admission = tracked.record.admission
        if tracked.record.state is State.ADMITTED and admission is not None:
            wanted = sum(assigned.count for assigned in admission.pod_sets)
            self._inbox.put(PodProblemsFound(tracked.uid, obstacle(pods, wanted)))


def obstacle(pods: Iterable[dict[str, Any]], wanted: int) -> str:
    """What keeps pending pods from running, in a sentence, of a workload with so many pods; empty: nothing known."""
    scheduler: list[str] = []
    kubelet: list[tuple[str, str]] = []
    for pod in pods:
        status = pod.get("status") or {}
        scheduler += (
            condition.get("message") or condition.get("reason") or ""
            for condition in status.get("conditions") or ()
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False"
        )
        waits = _waits(status)
        if waits is not None:
            kubelet.append(waits)
    if scheduler:
        return sentences.unscheduled(len(scheduler), max(wanted, len(scheduler)), clean(scheduler[0]))
    if kubelet:
        return sentences.not_started(len(kubelet), max(wanted, len(kubelet)), *map(clean, kubelet[0]))
    return ""


def _waits(status: dict[str, Any]) -> tuple[str, str] | None:
    """The first container that waits for something that may not come, and why."""
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason = waiting.get("reason") or ""
        if reason not in _HARMLESS:
            text = waiting.get("message") or ""
            return container.get("name", ""), f"{reason}: {text}" if text else reason
    return None
