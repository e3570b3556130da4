"""Obstacles of admitted workloads' pods: why they do not run, as the Kubernetes scheduler or the kubelet reports it.

Quota says nothing about nodes: a Job may be admitted, and its pods wait indefinitely for a node or an image. The
pending pods of admitted workloads that are not ready some time after their start are listed, many workloads of a
namespace in one request. Queued pods and pod groups are watched anyway, and need no request.

What no status shows, such as a volume that cannot be mounted, is in Events only. Those about copies are read, as users
of the hub cannot look at them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from admission.cluster.errors import Forbidden
from admission.controller.state.inbox import Told
from admission.controller.state.triggers import PodProblem
from admission.kinds.base import POD, POD_OWNER
from admission.kinds.grouping import GATE
from admission.model import sentences
from admission.model.errors import ClusterError
from admission.model.text import clean
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from admission.cluster.client import Client
    from admission.controller.state.inbox import Inbox
    from admission.controller.state.tracked import Tracked
    from admission.controller.workloads.copies import Copy
    from admission.controller.workloads.pod_groups import PodGroups
    from admission.controller.workloads.reconciler import Readiness
    from admission.model.queues import ResourceFlavor

log = logging.getLogger(__name__)

FIRST_POLL = 10.0
"""Seconds from the start of a workload to the first poll of its pods, and to the next one; doubles with each poll."""

MAX_INTERVAL = 120.0
"""Seconds between two polls of a workload's pods, at most."""

BATCH_SIZE = 50
"""Workloads per request: their uids are in the label selector, which has to fit into a URL."""

_TICK = 1.0
"""Seconds between two checks which polls are due."""
_PAGE_SIZE = 500
"""Pods per response, at most; of a workload with more pending pods, those beyond are not read."""
_TRANSIENT = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons of waiting containers that are about to start."""


class Unready(NamedTuple):
    """A workload whose pods are not all ready."""

    tracked: Tracked
    copy: Copy | None
    """What runs in its place in this cluster; None: it runs itself."""


class PodObstacles:
    """Polls the pods of unready workloads, and puts `PodProblem` into the inbox.

    `readiness`: knows the workloads to poll. `copies`: returns those of the hub that run as copies here, with these and
    the uid in the label of their pods. `flavors`: ResourceFlavors by name. `clock`: returns the Unix time (s).
    """

    def __init__(
        self,
        client: Client,
        inbox: Inbox,
        readiness: Readiness,
        groups: PodGroups,
        *,
        copies: Callable[[], Iterable[tuple[Tracked, Copy, str]]],
        flavors: Mapping[str, ResourceFlavor],
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._copies = copies
        self._inbox = inbox
        self._readiness = readiness
        self._groups = groups
        self._flavors = flavors
        self._clock = clock
        self._polls: dict[str, tuple[float, float]] = {}
        """By uid of a workload: Unix time (s) of its next poll, and seconds from that to the one after it."""

    def begin(self, readiness: Readiness, groups: PodGroups) -> None:
        """Use the state of a new leader, after that was loaded from the database."""
        self._readiness, self._groups = readiness, groups

    async def run(self) -> NoReturn:
        """Poll until cancelled. Errors of the API server are logged, and the poll is repeated."""
        while True:
            await asyncio.sleep(_TICK)
            await self._poll()

    async def _poll(self) -> None:
        now = self._clock()
        by_selector: dict[tuple[str, str], dict[str, Unready]] = defaultdict(dict)
        known, self._polls = self._polls, {}
        here = ((tracked, None, tracked.uid) for tracked in self._readiness.unready() if _is_seen_here(tracked))
        for tracked, copy, uid in (*here, *self._copies()):
            if (since := tracked.record.cleared_at) is None:
                continue
            due, interval = known.get(tracked.uid, (since + FIRST_POLL, FIRST_POLL))
            if due <= now:
                label = POD_OWNER if tracked.seen is None else tracked.seen.kind.pods_label
                if label:
                    by_selector[tracked.record.workload.namespace, label][uid] = Unready(tracked, copy)
                else:  # a pod, or a group of pods, which are watched
                    refused, why = tracked.pod_refused
                    is_refused = bool(why) and any(each.uid == refused for each in self._groups.members(tracked))
                    self._tell(tracked, why if is_refused else self._obstacle(tracked, self._watched_pods(tracked)))
                due, interval = now + interval, min(2 * interval, MAX_INTERVAL)
            self._polls[tracked.uid] = due, interval
        for (namespace, label), workloads in by_selector.items():
            uids, warnings = list(workloads), _Warnings(self._client, namespace)
            for start in range(0, len(uids), BATCH_SIZE):
                batch = {uid: workloads[uid] for uid in uids[start : start + BATCH_SIZE]}
                try:
                    await self._poll_batch(namespace, label, batch, warnings)
                except ClusterError as error:
                    log.warning("cannot list the pending pods of namespace %s: %s", namespace, error)

    async def _poll_batch(
        self, namespace: str, label: str, workloads: Mapping[str, Unready], warnings: _Warnings
    ) -> None:
        """Report the obstacles of workloads, by the value of the label on their pods."""
        while workloads:
            params = {
                "labelSelector": f"{label} in ({','.join(workloads)})",
                "fieldSelector": "status.phase=Pending",
                "limit": str(_PAGE_SIZE),
            }
            page = await self._client.get(f"/api/v1/namespaces/{namespace}/pods", params=params)
            pods: dict[str, list[dict[str, Any]]] = defaultdict(list)
            for pod in page["items"]:
                pods[pod["metadata"]["labels"][label]].append(pod)
            # Not all pods of a workload are needed to see what is wrong; but those of one may fill the page.
            is_complete = not page["metadata"].get("continue")
            for uid, (tracked, copy) in workloads.items():
                if uid in pods:
                    text = self._obstacle(tracked, pods[uid])
                    if not text and copy is not None:
                        text = await warnings.last({pod["metadata"]["uid"] for pod in pods[uid]})
                    self._tell(tracked, text)
            left = {uid: workload for uid, workload in workloads.items() if uid not in pods}
            if is_complete and left:
                await self._poll_without_pending(namespace, label, left, warnings)
            workloads = {} if is_complete else left

    async def _poll_without_pending(
        self, namespace: str, label: str, workloads: Mapping[str, Unready], warnings: _Warnings
    ) -> None:
        """Report workloads that have no pods at all, although they were started; the others have no obstacle."""
        params = {"labelSelector": f"{label} in ({','.join(workloads)})", "limit": str(_PAGE_SIZE)}
        page = await self._client.get(f"/api/v1/namespaces/{namespace}/pods", params=params)
        present = {pod["metadata"]["labels"][label] for pod in page["items"]}
        is_complete = not page["metadata"].get("continue")
        for uid, (tracked, copy) in workloads.items():
            text = ""
            if is_complete and uid not in present and _labels_its_pods(tracked):
                kind, obj = tracked.record.workload.kind, tracked.object or {}
                if copy is None:
                    text = sentences.no_pods(kind, _said(obj.get("status") or {}))
                else:
                    text = sentences.no_pods_of_copy(
                        kind, await warnings.last({copy.uid}), suspended=copy.seen.suspended
                    )
            self._tell(tracked, text)

    def _watched_pods(self, tracked: Tracked) -> list[dict[str, Any]]:
        """Return a queued pod, or the ungated pending pods of a pod group, as last observed."""
        kind = None if tracked.seen is None else tracked.seen.kind
        if kind is not None and (kind.group, kind.kind) == POD:
            return [obj] if (obj := tracked.object) is not None else []
        return [
            member.object
            for member in self._groups.members(tracked)
            if member.phase == "Pending" and not member.gated and not member.deleting
        ]

    def _obstacle(self, tracked: Tracked, pods: Iterable[dict[str, Any]]) -> str:
        if (admission := tracked.record.admission) is None:
            return ""
        wanted = sum(assigned.count for assigned in admission.pod_sets)
        names = dict.fromkeys(name for one in admission.pod_sets for name in one.flavors.values())
        labels = {name: self._flavors[name].spec.node_labels for name in names if name in self._flavors}
        return obstacle(pods, wanted, labels)

    def _tell(self, tracked: Tracked, text: str) -> None:
        if tracked.record.state is State.ADMITTED:
            self._inbox.put(Told(tracked.uid, PodProblem(text)))


class _Warnings:
    """The Warning Events of a namespace, read when they are asked for first; none where they may not be read."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._path = f"/api/v1/namespaces/{namespace}/events"
        self._events: list[dict[str, Any]] | None = None

    async def last(self, uids: Collection[str]) -> str:
        """Return what the last one about these objects says; empty: there is none. Raises ClusterError."""
        if self._events is None:
            self._events = []
            with suppress(Forbidden):
                params = {"fieldSelector": "type=Warning", "limit": str(_PAGE_SIZE)}
                self._events = (await self._client.get(self._path, params=params))["items"]
        found = [event for event in self._events if event["involvedObject"].get("uid") in uids]
        if not found:
            return ""
        last = max(found, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
        about, reason, message = last["involvedObject"], last.get("reason") or "", last.get("message") or ""
        return sentences.warned(about.get("kind") or "", about.get("name") or "", clean(f"{reason}: {message}"))


def _is_seen_here(tracked: Tracked) -> bool:
    """Whether the pods of a workload are here, or have the status of those that run in its place elsewhere."""
    return not tracked.runs_elsewhere or (tracked.seen is not None and not tracked.seen.kind.pods_label)


def _labels_its_pods(tracked: Tracked) -> bool:
    """Whether the workload has pods, and all of them have its label."""
    admission, seen = tracked.record.admission, tracked.seen
    wanted = 0 if admission is None else sum(assigned.count for assigned in admission.pod_sets)
    # TrainJobs of Trainer 2.0 cannot label theirs.
    return wanted > 0 and tracked.record.state is State.ADMITTED and seen is not None and seen.kind.rendered_by is None


def _said(status: dict[str, Any]) -> str:
    """Return what a controller says of its object: the message of the latest condition that has one, or of the status.

    Conditions have no common order, but a time.
    """
    conditions: list[dict[str, Any]] = [each for each in status.get("conditions") or () if each.get("message")]
    latest = max(conditions, key=lambda each: str(each.get("lastTransitionTime") or ""), default=status)
    return clean(str(latest.get("message") or status.get("message") or ""))


def obstacle(pods: Iterable[dict[str, Any]], wanted: int, labels: Mapping[str, Mapping[str, str]]) -> str:
    """Return a message that says why a workload's pending pods do not run; empty: no reason is known.

    `wanted`: number of pods of the workload. `labels`: node labels of the flavors that were assigned to it, by flavor.
    What the scheduler reports takes precedence over the kubelet.
    """
    scheduler: list[tuple[str, str, Mapping[str, str]]] = []
    """Name, message of the scheduler and node selector of each unschedulable pod."""
    kubelet: list[tuple[str, str]] = []
    """Name and reason of a waiting container, one per pod."""
    for pod in pods:
        status = pod.get("status") or {}
        scheduler += (
            (
                pod["metadata"]["name"],
                condition.get("message") or condition.get("reason") or "",
                (pod.get("spec") or {}).get("nodeSelector") or {},
            )
            for condition in status.get("conditions") or ()
            if condition.get("type") == "PodScheduled"
            and condition.get("status") == "False"
            and not (condition.get("reason") == "SchedulingGated" and GATE.is_closed(pod))  # it waits for its copy
        )
        waiting = _waiting_container(status)
        if waiting is not None:
            kubelet.append(waiting)
    if scheduler:
        name, message, selector = scheduler[0]
        origins = [
            (f"{key}={value}", next((flavor for flavor, own in labels.items() if own.get(key) == value), ""))
            for key, value in selector.items()
        ]
        return sentences.unscheduled(name, len(scheduler), max(wanted, len(scheduler)), clean(message), origins)
    if kubelet:
        return sentences.not_started(len(kubelet), max(wanted, len(kubelet)), *map(clean, kubelet[0]))
    return ""


def _waiting_container(status: dict[str, Any]) -> tuple[str, str] | None:
    """Return name and reason of the first container that cannot start, such as by ImagePullBackOff; None: none."""
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason = waiting.get("reason") or ""
        if reason not in _TRANSIENT:
            text = waiting.get("message") or ""
            return container.get("name", ""), f"{reason}: {text}" if text else reason
    return None
