"""Ungating of pods that are placed by topology: each gets the node selector of its domain, and loses its gate.

One PATCH a pod does both. Where a pod belongs follows from the committed admission and from the pods as they are, so
that a new leader continues where the former one has stopped. A pod whose PATCH has no known outcome keeps its place
until it has been read again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from typing import TYPE_CHECKING

from admission.cluster.errors import NotFound, StatusError
from admission.cluster.events import ObjectReference
from admission.controller.state.lifecycle import Step
from admission.controller.state.triggers import PlacesGivenUp, PodProblem
from admission.controller.workloads.plan import Write
from admission.kinds import ranks
from admission.kinds.placement import ungate_patch
from admission.model import sentences
from admission.model.errors import ClusterError
from admission.model.text import clean
from admission.model.topology import HOSTNAME, DomainCount, TopologyAssignment, pods_in
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from admission.cluster.client import Client
    from admission.controller.state.inbox import StepDone
    from admission.controller.state.tracked import Tracked
    from admission.controller.workloads.hosted import Hosted
    from admission.controller.workloads.nodes_and_pods import NodesAndPods
    from admission.controller.workloads.sender import Sender
    from admission.kinds.placement import SeenPod
    from admission.model.workload import PodSetAssignment

log = logging.getLogger(__name__)

MAX_BACKOFF = 30.0
"""Seconds at most until a pod is read again."""

_LASTING = 3
"""Failed attempts after which the user is told why a pod is not ungated."""

RESTS = 10.0
"""A workload rests for so many times as long as it took to look at all of its pods, if that was `LONG`.

So the pods of a large workload that come one by one do not cost the square of their number.
"""
LONG = 0.002
"""Seconds."""


class Ungating:
    """Sends the PATCH of each gated pod that has a domain; the writer limits how many are sent at a time."""

    def __init__(
        self,
        hosted: Hosted,
        view: NodesAndPods,
        client: Client,
        sender: Sender,
        wake: Callable[[], None],
    ) -> None:
        """`wake`: has `send_due` called again."""
        self._wake = wake
        self._hosted = hosted
        self._isolated = hosted.reconciler.isolation.of
        self._view = view
        self._client = client
        self._sender = sender
        self._due: dict[str, None] = {}
        """Uids of workloads of which a pod may have to be ungated."""
        self._rests: set[str] = set()
        """Uids of workloads that rest, each until a timer of its own ends that."""
        self._failures: Counter[str] = Counter()
        """Failed attempts to ungate a pod since the last one that succeeded, by its uid."""

    def changed(self, workloads: Iterable[str]) -> None:
        """Pods of these workloads, or their admissions, have changed."""
        self._due.update(dict.fromkeys(workloads))

    def send_due(self) -> None:
        """After a commit: ungate the pods that have a domain."""
        due, self._due = self._due, {}
        for uid in due:
            if uid in self._rests:
                self._due[uid] = None
                continue
            began = time.monotonic()
            tracked = self._hosted.get(uid)
            if tracked is not None and (_is_running(tracked) or _is_left(tracked)):
                with self._isolated(uid):
                    self._ungate(tracked)
                    self._free(tracked)
                if (spent := time.monotonic() - began) > LONG:
                    self._rests.add(uid)
                    asyncio.get_running_loop().call_later(RESTS * spent, self._rested, uid)

    def _rested(self, uid: str) -> None:
        self._rests.discard(uid)
        self._wake()

    def _ungate(self, tracked: Tracked) -> None:
        admission = tracked.record.admission
        assert admission is not None, tracked
        pods = [pod for pod in self._view.pods_of(tracked.record.workload) if pod.pod_set]
        if not any(pod.placed is not None and pod.placed.gated and pod.uid not in self._view.sent for pod in pods):
            return
        leaders = self._leaders(tracked)
        for assignment in admission.pod_sets:
            own = [pod for pod in pods if pod.pod_set == assignment.name]
            for pod, selector in self._selectors(tracked, assignment, own, leaders.get(assignment.name, 0)):
                # Orphans of a deleted object would stay gated, and hold its quota, for ever.
                if _is_running(tracked) or (pod.orphaned and not pod.deleting):
                    self._send(pod, selector)

    def _free(self, tracked: Tracked) -> None:
        """Give up the places of pods that are no longer needed, once only the others are left."""
        admission = tracked.record.admission
        assert admission is not None, tracked
        places = {}
        for assignment in admission.pod_sets:
            placed = assignment.topology
            if placed is None or pods_in(placed) <= assignment.count:
                continue
            pods = self._view.pods_of(tracked.record.workload)
            pods = [pod for pod in pods if pod.pod_set == assignment.name and pod.placed]
            if len(pods) != assignment.count or any(pod.placed.gated for pod in pods if pod.placed is not None):
                continue
            had = dict(placed.domains)
            left = Counter(
                tuple(pod.placed.selector.get(level, "") for level in placed.levels)
                for pod in pods
                if pod.placed is not None
            )
            if all(number <= had.get(values, 0) for values, number in left.items()):
                domains = (DomainCount(values, left[values]) for values, _ in placed.domains if left[values])
                places[assignment.name] = TopologyAssignment(placed.levels, tuple(domains))
        if places:
            self._hosted.tell(tracked, PlacesGivenUp(places))

    def _leaders(self, tracked: Tracked) -> dict[str, int]:
        """Return for each pod set with a leader the number of the leader's pods."""
        groups: dict[str, list[tuple[int, str]]] = {}
        for pod_set in tracked.record.workload.pod_sets:
            if pod_set.group:
                groups.setdefault(pod_set.group, []).append((pod_set.count, pod_set.name))
        return {max(members)[1]: min(members)[0] for members in groups.values() if len(members) == 2}

    def _selectors(
        self, tracked: Tracked, assignment: PodSetAssignment, pods: list[SeenPod], leaders: int
    ) -> Iterator[tuple[SeenPod, dict[str, str]]]:
        """Yield the pods of a pod set that are to be ungated now, with the node selectors of their domains."""
        if assignment.topology is None:
            return
        now = [self._as_sent(pod) for pod in pods]
        workload = tracked.record.workload
        rule = ranks.rule_of(workload.group, workload.kind, tracked.object, assignment.name)
        failed = set()
        if assignment.topology.levels[-1] == HOSTNAME:
            names = (values[-1] for values, _ in assignment.topology.domains)
            failed = {name for name in names if (node := self._view.hosts.get(name)) is None or not node.ready}
        found = ranks.domains_of(assignment.topology, now, rule, leaders=leaders, excluded=failed)
        for pod in pods:
            if pod.uid in found and pod.uid not in self._view.sent:
                yield pod, dict(zip(assignment.topology.levels, found[pod.uid], strict=True))

    def _as_sent(self, pod: SeenPod) -> ranks.PlacedPod:
        """Return the pod as it is if what was sent has taken effect."""
        assert pod.placed is not None, pod
        sent = self._view.sent.get(pod.uid)
        if sent is None or not pod.placed.gated:
            return pod.placed
        own = pod.placed
        selector = {**own.selector, **sent[1]}
        return ranks.PlacedPod(own.uid, own.labels, gated=False, selector=selector, offset=own.offset)

    def _send(self, pod: SeenPod, selector: dict[str, str]) -> None:
        self._view.sent[pod.uid] = pod, selector
        namespace, _, name = pod.key.partition("/")
        target = ObjectReference("v1", "Pod", name, pod.uid, namespace)
        self._sender.send(Step.WAIT, Write(target, ungate_patch(pod, selector)))

    def answered(self, message: StepDone) -> bool:
        """Process the response to a request about a pod; return False if it is none that was ungated here."""
        sent, result = self._view.sent.get(message.uid), message.result
        if sent is None:
            return False
        pod = sent[0]
        if not isinstance(result, ClusterError) or isinstance(result, NotFound):
            del self._failures[pod.uid]
            self._view.settle(pod, None if isinstance(result, ClusterError) else result)
            return True
        self._failures[pod.uid] += 1
        failures = self._failures[pod.uid]
        if failures in (1, _LASTING):
            log.warning("cannot ungate pod %s: %s", pod.key, result)
        tracked = self._hosted.get(pod.workload)
        if failures == _LASTING and tracked is not None and isinstance(result, StatusError):
            why = clean(str(result.status.get("message") or result))
            self._hosted.tell(tracked, PodProblem(sentences.change_refused(f"ungate pod {pod.key}", why)))
        self._sender.run(self._read(pod, failures))
        return True

    async def _read(self, pod: SeenPod, attempt: int) -> None:
        """Read a pod until that succeeds, after a pause: only then it is known whether it was ungated.

        `attempt`: number of attempts to ungate it that have failed, each of which makes the pause longer.
        """
        while True:
            await asyncio.sleep(random.uniform(0.5, 1.0) * min(0.2 * 2 ** min(attempt, 10), MAX_BACKOFF))
            attempt += 1
            namespace, _, name = pod.key.partition("/")
            try:
                # A list, which Sluice may do anyway, instead of a GET, for which it would need a further right.
                path, selector = f"/api/v1/namespaces/{namespace}/pods", {"fieldSelector": f"metadata.name={name}"}
                found = (await self._client.get(path, params=selector))["items"]
            except ClusterError:
                continue
            self._view.settle(pod, found[0] if found else None)
            return


def _is_running(tracked: Tracked) -> bool:
    return tracked.record.state is State.ADMITTED and not tracked.record.checks_pending


def _is_left(tracked: Tracked) -> bool:
    """Whether the object is gone, and pods of it may be left."""
    return tracked.record.state is State.EVICTING and tracked.object is None
