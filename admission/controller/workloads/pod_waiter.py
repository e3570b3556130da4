"""Polling for pods that no watched object reports on: quota is released when its pods have terminated, not earlier.

Only the pods show, too, what they request: the object's operator, or a webhook, may have added containers to them.

Only the pods themselves show that for a Job that was deleted in the background or with orphaned pods, for one that was
started and suspended again before its controller wrote a status, and for most kinds when they are scaled down. Their
pods are listed by label, many workloads of a namespace in one request, as long as there is a workload to wait for.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from admission.controller.state.inbox import Told
from admission.controller.state.triggers import LastPodEnded, PodsCounted, RequestsMeasured, StopHindered
from admission.kinds.base import POD_OWNER, POD_SET
from admission.kinds.children import controller_of
from admission.kinds.limits import NamespaceContext
from admission.kinds.pod_group import FINISHED_PHASES
from admission.kinds.requests import pod_requests
from admission.model import sentences
from admission.model.errors import ClusterError, Misconfigured
from admission.model.workload import LOCAL

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from typing import Any

    from admission.cluster.client import Client
    from admission.controller.state.inbox import Inbox

log = logging.getLogger(__name__)

BATCH_SIZE = 100
"""Workloads per request: their uids are in the label selector, which has to fit into a URL."""

POLL_INTERVAL = (0.5, 10.0)
"""Seconds between two polls of a workload's pods: the first interval, and the maximum up to which it doubles."""

MEASURE_INTERVAL = (1.0, 120.0)
"""The same for a workload of whose pod sets one had no pod yet: some are created only when others have ended."""
_PAGE = 100
"""Pods of Jobs that one request for their requests reads at most: one of each suffices."""
_LONGEST_COUNT = 20.0
"""Seconds between two polls at most of a workload whose pods are counted as long as it runs."""

EMPTY_POLLS = 3
"""Consecutive polls without a pod after which a workload has none, if its controller may still be about to create pods.

They take 1.5 s. The Job controller creates pods some 50 ms after a start; but in a burst its five workers share twenty
requests a second, by default, and a worker that has read a Job while it was running may create its first pod a second
after it was suspended again. The Job's status does not show that: it is empty while a worker is processing it, too.
"""


@dataclass(slots=True)
class _Wait:
    """Polling of the pods of one workload, until none is left or to count them."""

    uid: str
    namespace: str
    label: str
    """Label of the pods that has the uid as its value."""
    number: int
    """Identifies the wait in `LastPodEnded`; 0: the pods are only counted."""
    empty_polls: int
    """Consecutive polls without a pod that are still required."""
    due: float
    """Time of the next poll, by the clock of the event loop."""
    interval: float = POLL_INTERVAL[0]
    """Seconds from the next poll to the one after it."""
    counts: bool = False
    """Whether the pods are only counted."""
    left: bool = False
    """Whether pods that nothing stops were reported."""
    found: Counter[str] | None = None
    """Unfinished pods at the last poll, by pod set; None: not polled yet."""
    measures: set[str] | None = None
    """Pod sets of which no pod was found yet whose requests could be read; None: requests are not read."""
    unwatched: frozenset[str] = frozenset()
    """Pod sets whose pods are counted as long as their requests are read: nothing else shows how many there are."""
    longest: float = POLL_INTERVAL[1]
    """Maximum of `interval`."""

    @property
    def of_job(self) -> bool:
        """Whether any of its pods shows what is looked for: they are all alike, and may be many."""
        return self.measures is not None and self.label == POD_OWNER


class PodWaiter:
    """Polls the pods of workloads, and puts the results into the inbox.

    `LastPodEnded` once, when a workload to wait for has no unfinished pod, and `StopHindered` before, if only its user
    can end some; `PodsCounted` repeatedly, for one to count;
    `RequestsMeasured` when pods of further pod sets are there, of one whose requests are to be read.
    """

    def __init__(self, client: Client, inbox: Inbox, cluster: str = LOCAL) -> None:
        self._client = client
        self._inbox = inbox
        self._cluster = "" if cluster == LOCAL else cluster
        self._waiting: dict[str, _Wait] = {}
        """Waits for the last pod, by uid."""
        self.counting: dict[str, _Wait] = {}
        """Counts, by uid."""
        self.measuring: dict[str, _Wait] = {}
        """Workloads whose pods' requests are to be read, by uid."""
        self._added = asyncio.Event()
        self._numbers = count(1)

    def add(self, uid: str, namespace: str, *, label: str = POD_OWNER, may_start: bool) -> int:
        """Wait until no pod is left; return the number that `LastPodEnded` will have. Replaces an earlier wait.

        `label`: label of the pods that has the uid as its value. `may_start`: the controller may still create pods.
        """
        wait = _Wait(
            uid,
            namespace,
            label,
            next(self._numbers),
            EMPTY_POLLS if may_start else 1,
            asyncio.get_running_loop().time(),
        )
        self._waiting[uid] = wait
        self._added.set()
        return wait.number

    def count(self, uid: str, namespace: str, *, label: str) -> None:
        """Count the workload's pods until `stop_counting`. Idempotent. `label`: as for `add`."""
        if uid not in self.counting:
            now = asyncio.get_running_loop().time()
            self.counting[uid] = _Wait(uid, namespace, label, 0, 0, now, counts=True)
            self._added.set()

    def stop_counting(self, uid: str) -> None:
        """End `count`; a workload whose pods are not counted is ignored."""
        self.counting.pop(uid, None)

    def measure(
        self,
        uid: str,
        namespace: str,
        pod_sets: Collection[str],
        *,
        label: str,
        unwatched: frozenset[str] = frozenset(),
    ) -> None:
        """Read the requests of a pod of each of these pod sets, once there is one. Replaces an earlier order.

        `label`: as for `add`. `unwatched`: those whose pods are counted, too, until `stop_measuring`.
        """
        first, longest = MEASURE_INTERVAL
        due = asyncio.get_running_loop().time() + first
        self.measuring[uid] = _Wait(
            uid, namespace, label, 0, 0, due, interval=first, measures=set(pod_sets), unwatched=unwatched,
            longest=_LONGEST_COUNT if unwatched else longest,
        )  # fmt: skip
        self._added.set()

    def stop_measuring(self, uid: str) -> None:
        """End `measure`; a workload whose pods are not measured is ignored."""
        self.measuring.pop(uid, None)

    def _all(self) -> list[_Wait]:
        return [*self._waiting.values(), *self.counting.values(), *self.measuring.values()]

    async def run(self) -> None:
        """Poll until cancelled. Errors of the API server are logged, and the poll is repeated."""
        time = asyncio.get_running_loop().time
        while True:
            self._added.clear()
            if due := [wait for wait in self._all() if wait.due <= time()]:
                await self._poll(due)
                for wait in due:
                    wait.due, wait.interval = time() + wait.interval, min(2 * wait.interval, wait.longest)
            if not self._all():
                await self._added.wait()
                continue
            try:
                async with asyncio.timeout_at(min(wait.due for wait in self._all())):
                    await self._added.wait()
            except TimeoutError:
                pass

    async def _poll(self, due: Sequence[_Wait]) -> None:
        by_selector: dict[tuple[str, str, bool], list[_Wait]] = defaultdict(list)
        for wait in due:
            by_selector[wait.namespace, wait.label, wait.of_job].append(wait)
        for (namespace, label, of_jobs), waits in by_selector.items():
            for start in range(0, len(waits), BATCH_SIZE):
                batch = waits[start : start + BATCH_SIZE]
                try:
                    if of_jobs:
                        await self._measure_jobs(namespace, batch)
                    else:
                        await self._poll_batch(namespace, label, batch)
                except ClusterError as error:
                    log.warning(
                        "cannot list pods of namespace %s to see whether they have terminated, and tries again: %s",
                        namespace, error,
                    )  # fmt: skip

    async def _poll_batch(self, namespace: str, label: str, waits: Sequence[_Wait]) -> None:
        alive: dict[str, Counter[str]] = defaultdict(Counter)
        staying: dict[str, Counter[str]] = defaultdict(Counter)
        left: dict[str, list[str]] = defaultdict(list)
        measured = {wait.uid: dict[str, dict[str, int]]() for wait in waits if wait.measures is not None}
        params = {"labelSelector": _selector(label, waits)}
        async for page in self._client.list_pages(f"/api/v1/namespaces/{namespace}/pods", params=params):
            for pod in page["items"]:
                if (found := measured.get(pod["metadata"]["labels"][label])) is not None:
                    _measure(pod, pod["metadata"]["labels"].get(POD_SET), found)
                if pod.get("status", {}).get("phase") not in FINISHED_PHASES:  # terminating pods still use quota
                    labels = pod["metadata"]["labels"]
                    alive[labels[label]][labels.get(POD_SET, "")] += 1
                    stays = "deletionTimestamp" not in pod["metadata"]
                    staying[labels[label]][labels.get(POD_SET, "")] += stays
                    if stays and controller_of(pod) is None:
                        left[labels[label]].append(pod["metadata"]["name"])
        for wait in waits:
            if wait.measures is not None:
                self._measured(wait, wait.measures, measured[wait.uid], staying[wait.uid])
                continue
            if wait.counts:
                if wait.found is not None and self.counting.get(wait.uid) is wait:
                    # At the first poll its controller may not have created all pods yet: the maximum of two polls.
                    self._inbox.put(Told(wait.uid, PodsCounted(wait.found | alive[wait.uid])))
                wait.found = alive[wait.uid]
                continue
            if wait.uid in alive:
                wait.empty_polls = 1  # its controller has processed the start
                self._note_left(wait, left.get(wait.uid, ()))
                continue
            wait.empty_polls -= 1
            if wait.empty_polls <= 0 and self._waiting.get(wait.uid) is wait:
                del self._waiting[wait.uid]
                self._inbox.put(Told(wait.uid, LastPodEnded(wait.number)))

    def _note_left(self, wait: _Wait, names: Sequence[str]) -> None:
        """Report pods without a controller; not at the first poll, as Sluice deletes those of some kinds itself."""
        if self._waiting.get(wait.uid) is wait and wait.interval > POLL_INTERVAL[0] and (names or wait.left):
            wait.left = bool(names)
            text = sentences.left_pods(wait.namespace, names, self._cluster) if names else ""
            self._inbox.put(Told(wait.uid, StopHindered(text)))

    async def _measure_jobs(self, namespace: str, waits: Sequence[_Wait]) -> None:
        """Read some pods of Jobs; those of which the page has none are read again later, without the others."""
        by_uid = {wait.uid: wait for wait in waits}
        params = {"labelSelector": _selector(POD_OWNER, waits), "limit": str(_PAGE)}
        page = await self._client.get(f"/api/v1/namespaces/{namespace}/pods", params=params)
        found: dict[str, dict[str, dict[str, int]]] = defaultdict(dict)
        for pod in page["items"]:
            # Users write labels: a pod is the Job's if the Job is its controller.
            owner = controller_of(pod)
            wait = None if owner is None else by_uid.get(owner["uid"])
            if wait is not None and wait.measures:
                (name,) = wait.measures
                _measure(pod, name, found[wait.uid])
        for uid, requests in found.items():
            if self.measuring.get(uid) is by_uid[uid]:
                del self.measuring[uid]
                self._inbox.put(Told(uid, RequestsMeasured(requests, {})))

    def _measured(self, wait: _Wait, left: set[str], found: dict[str, dict[str, int]], staying: Counter[str]) -> None:
        """Report the requests of pods of pod sets that had none before, and the numbers of unwatched pods.

        Of those that were there at two polls: a pod that is being replaced may be counted with its successor.
        """
        if self.measuring.get(wait.uid) is not wait:
            return
        lasting = Counter[str]() if wait.found is None else wait.found & staying
        pods, wait.found = {name: lasting[name] for name in lasting.keys() & wait.unwatched}, staying
        if left.isdisjoint(found) and not pods:
            return
        left -= found.keys()
        if not left and not wait.unwatched:
            del self.measuring[wait.uid]
        self._inbox.put(Told(wait.uid, RequestsMeasured(found, pods)))


def _selector(label: str, waits: Sequence[_Wait]) -> str:
    return f"{label} in ({','.join(wait.uid for wait in waits)})"


def _measure(pod: dict[str, Any], name: str | None, found: dict[str, dict[str, int]]) -> None:
    """Add the requests of a pod to the largest ones of its pod set, `name`."""
    if not name:
        return
    spec = {key: value for key, value in pod["spec"].items() if key != "runtimeClassName"}  # its overhead is in the pod
    try:
        requests = pod_requests(spec, NamespaceContext(), path="spec")
    except Misconfigured:  # devices by claim: nothing can be said of its requests
        return
    known = found.setdefault(name, {})
    known |= {resource: max(amount, known.get(resource, 0)) for resource, amount in requests.items()}
