"""Waits for pods that no object tells of: their quota is free when they are gone, not earlier.

A Job deleted in the background, or with its pods orphaned, tells nothing any more; nor does the status of one that was
started and suspended again before its controller said anything, nor of most kinds that are scaled down. Only the pods
do. They are asked for by label, many workloads of a namespace in one request, for as long as there is anything to wait
for.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from admission.controller.state.inbox import PodsCounted, PodsGone
from admission.kinds.base import POD_OWNER, POD_SET
from admission.model.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.cluster.client import Client
    from admission.controller.state.inbox import Inbox

log = logging.getLogger(__name__)

AT_ONCE = 100
"""How many workloads one request asks about; their uids have to fit into a URL."""

PAUSE = (0.5, 10.0)
"""Seconds between two looks at a workload's pods: the first, doubling up to the second."""

LOOKS = 3
"""How many looks in a row must find nothing where the controller of the pods may not have come to making them yet.

They take 1.5 s. The Job controller makes pods some 50 ms after a start; but in a burst its five workers share twenty
requests a second, by default, and one that has read a Job while that ran may make its first pod a second after it was
suspended again. An empty status does not tell that nobody looks at the Job: it is as empty while that waits there.
"""

ENDED = frozenset({"Succeeded", "Failed"})


@dataclass(slots=True)
class _Wait:
    """For the pods of one workload."""

    uid: str
    namespace: str
    label: str
    number: int
    looks: int
    """How many looks have still to find nothing."""
    due: float
    """When the next look is, in the time of the event loop."""
    pause: float = PAUSE[0]
    counts: bool = False
    """Whether they are only counted."""
    found: Counter[str] | None = None
    """How many the last look has found, by pod set; None: there was none."""


class PodWaiter:
    """The workloads whose pods are waited for. `PodsGone` is put into the inbox for each, once.

    Of others they are counted: for each of those `PodsCounted` is put into it, again and again.
    """

    def __init__(self, client: Client, inbox: Inbox) -> None:
        self._client = client
        self._inbox = inbox
        self._waiting: dict[str, _Wait] = {}
        self.counting: dict[str, _Wait] = {}
        """Those whose pods are counted, by uid."""
        self._added = asyncio.Event()
        self._numbers = count(1)

    def add(self, uid: str, namespace: str, *, label: str = POD_OWNER, may_begin: bool) -> int:
        """Wait until no pod is left; returns the number that `PodsGone` will have. A former wait ends without it.

        `label` of the pods has the uid as value. `may_begin`: pods may come into existence yet, though none are seen.
        """
        wait = _Wait(
            uid, namespace, label, next(self._numbers), LOOKS if may_begin else 1, asyncio.get_running_loop().time()
        )
        self._waiting[uid] = wait
        self._added.set()
        return wait.number

    def count(self, uid: str, namespace: str, *, label: str) -> None:
        """Count its pods until `count_no_more`; may be asked again."""
        if uid not in self.counting:
            now = asyncio.get_running_loop().time()
            self.counting[uid] = _Wait(uid, namespace, label, 0, 0, now, counts=True)
            self._added.set()

    def count_no_more(self, uid: str) -> None:
        """What its pods were counted for is done, or does not matter any more."""
        self.counting.pop(uid, None)

    def _all(self) -> list[_Wait]:
        return [*self._waiting.values(), *self.counting.values()]

    async def run(self) -> None:
        """Look again and again, for ever."""
        time = asyncio.get_running_loop().time
        while True:
            self._added.clear()
            if due := [wait for wait in self._all() if wait.due <= time()]:
                try:
                    await self._look(due)
                except ClusterError as error:
                    log.warning("cannot see whether pods are gone: %s", error)
                for wait in due:
                    wait.due, wait.pause = time() + wait.pause, min(2 * wait.pause, PAUSE[1])
            if not self._all():
                await self._added.wait()
                continue
            try:
                async with asyncio.timeout_at(min(wait.due for wait in self._all())):
                    await self._added.wait()
            except TimeoutError:
                pass

    async def _look(self, due: Sequence[_Wait]) -> None:
        by_selector: dict[tuple[str, str], list[_Wait]] = defaultdict(list)
        for wait in due:
            by_selector[wait.namespace, wait.label].append(wait)
        for (namespace, label), waits in by_selector.items():
            for start in range(0, len(waits), AT_ONCE):
                await self._look_at(namespace, label, waits[start : start + AT_ONCE])

    async def _look_at(self, namespace: str, label: str, waits: Sequence[_Wait]) -> None:
        alive: dict[str, Counter[str]] = defaultdict(Counter)
        params = {"labelSelector": f"{label} in ({','.join(wait.uid for wait in waits)})"}
        async for page in self._client.list_pages(f"/api/v1/namespaces/{namespace}/pods", params=params):
            for pod in page["items"]:
                if pod.get("status", {}).get("phase") not in ENDED:
                    labels = pod["metadata"]["labels"]
                    alive[labels[label]][labels.get(POD_SET, "")] += 1
        for wait in waits:
            if wait.counts:
                if wait.found is not None and self.counting.get(wait.uid) is wait:
                    # Its controller may not have come to the rest of them at the first look: the most of both counts.
                    self._inbox.put(PodsCounted(wait.uid, wait.found | alive[wait.uid]))
                wait.found = alive[wait.uid]
                continue
            if wait.uid in alive:
                wait.looks = 1  # its controller has come to it
                continue
            wait.looks -= 1
            if wait.looks <= 0 and self._waiting.get(wait.uid) is wait:
                del self._waiting[wait.uid]
                self._inbox.put(PodsGone(wait.uid, wait.number))
