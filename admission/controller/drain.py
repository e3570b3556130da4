"""Waits for the pods of objects that are gone themselves: their quota is free when the pods are, not earlier.

A Job deleted in the background, or with its pods orphaned, tells nothing any more; only its pods do. They are asked for
by label, many workloads of a namespace in one request, for as long as there is anything to wait for.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import TYPE_CHECKING

from admission.controller.inbox import PodsGone
from admission.model.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from admission.cluster.client import Client
    from admission.controller.inbox import Inbox

log = logging.getLogger(__name__)

OWNER_LABEL = "batch.kubernetes.io/controller-uid"
"""On each pod of a Job, with the Job's uid; orphaning keeps it."""

AT_ONCE = 100
"""How many workloads one request asks about; their uids have to fit into a URL."""

PAUSE = (0.5, 10.0)
"""Seconds between two looks: the first, doubling up to the second."""

ENDED = frozenset({"Succeeded", "Failed"})


class Drain:
    """The workloads whose pods are waited for. `PodsGone` is put into the inbox for each, once."""

    def __init__(
        self, client: Client, inbox: Inbox, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._client = client
        self._inbox = inbox
        self._sleep = sleep
        self._waiting: dict[str, str] = {}
        self._some = asyncio.Event()

    def add(self, uid: str, namespace: str) -> None:
        self._waiting[uid] = namespace
        self._some.set()

    async def run(self) -> None:
        """Look again and again, for ever."""
        pause = PAUSE[0]
        while True:
            await self._some.wait()
            before = len(self._waiting)
            try:
                await self._look()
            except ClusterError as error:
                log.warning("cannot see whether the pods of deleted workloads are gone: %s", error)
            pause = PAUSE[0] if len(self._waiting) < before else min(2 * pause, PAUSE[1])
            if self._waiting:
                await self._sleep(pause)
            else:
                self._some.clear()

    async def _look(self) -> None:
        by_namespace: dict[str, list[str]] = defaultdict(list)
        for uid, namespace in self._waiting.items():
            by_namespace[namespace].append(uid)
        for namespace, uids in by_namespace.items():
            for start in range(0, len(uids), AT_ONCE):
                await self._look_at(namespace, uids[start : start + AT_ONCE])

    async def _look_at(self, namespace: str, uids: Sequence[str]) -> None:
        alive: set[str] = set()
        params = {"labelSelector": f"{OWNER_LABEL} in ({','.join(uids)})"}
        async for page in self._client.list_pages(f"/api/v1/namespaces/{namespace}/pods", params=params):
            for pod in page["items"]:
                if pod.get("status", {}).get("phase") not in ENDED:
                    alive.add(pod["metadata"]["labels"][OWNER_LABEL])
        for uid in uids:
            if uid not in alive and self._waiting.pop(uid, None) is not None:
                self._inbox.put(PodsGone(uid))
