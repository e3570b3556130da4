"""Exit codes of failed workloads: how their pods ended, which most objects do not say.

The failed pods of workloads that have just failed are listed, many workloads of a namespace in one request, and what
they say is added to the stored outcome. No decision depends on it: pods that are gone by then say nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NoReturn

from admission.controller.workloads.pod_obstacles import BATCH_SIZE
from admission.kinds.pod import how_it_failed
from admission.model.errors import ClusterError, StoreError
from admission.store.records import FAILED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from admission.cluster.client import Client
    from admission.kinds.registry import Kinds
    from admission.store.records import Changes
    from admission.store.store import Store

log = logging.getLogger(__name__)

_INTERVAL = 1.0
"""Seconds between two polls: workloads that fail together share one."""
_MOST = 5_000
"""Workloads at most whose pods are still to be listed; what fails beside them stays without."""
_PAGE_SIZE = 500
"""Pods per response; pods beyond are not read."""


class FailedPods:
    """Adds what pods say to the outcomes of failed workloads of one cluster, as long as `run` runs."""

    def __init__(self, store: Store, client: Client, kinds: Kinds, *, cluster: str) -> None:
        self._store = store
        self._client = client
        self._kinds = kinds
        self._cluster = cluster
        self._waiting: dict[tuple[str, str], list[str]] = defaultdict(list)
        """Uids of failed workloads by namespace, and the label of their pods that has the uid as its value."""
        self._are_waiting = asyncio.Event()

    def committed(self, changes: Changes, *, unwritten: Collection[str] = ()) -> None:
        """Note the workloads that have failed in a commit; `unwritten`: uids of workloads that were not written."""
        for record in changes.workloads:
            is_here = record.workload.cluster == self._cluster
            if record.outcome == FAILED and is_here and record.workload.uid not in unwritten:
                kind = self._kinds.of(record.workload)
                if kind is not None and kind.pods_label and sum(map(len, self._waiting.values())) < _MOST:
                    self._waiting[record.workload.namespace, kind.pods_label].append(record.workload.uid)
                    self._are_waiting.set()

    async def run(self) -> NoReturn:
        """Poll until cancelled. What cannot be read or written is logged and left out."""
        while True:
            await self._are_waiting.wait()
            await asyncio.sleep(_INTERVAL)
            self._are_waiting.clear()
            waiting, self._waiting = self._waiting, defaultdict(list)
            for (namespace, label), uids in waiting.items():
                for start in range(0, len(uids), BATCH_SIZE):
                    try:
                        await self._poll(namespace, label, uids[start : start + BATCH_SIZE])
                    except (ClusterError, StoreError) as error:
                        log.warning("exit codes of pods in namespace %s are not recorded: %s", namespace, error)

    async def _poll(self, namespace: str, label: str, uids: list[str]) -> None:
        params = {
            "labelSelector": f"{label} in ({','.join(uids)})",
            "fieldSelector": "status.phase=Failed",
            "limit": str(_PAGE_SIZE),
        }
        page = await self._client.get(f"/api/v1/namespaces/{namespace}/pods", params=params)
        pods: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for pod in page["items"]:
            pods[pod["metadata"]["labels"][label]].append(pod.get("status") or {})
        texts = {uid: text for uid, found in pods.items() if (text := _last_failure(found))}
        if texts:
            await self._store.note_failures(texts)


def _last_failure(statuses: Iterable[dict[str, Any]]) -> str:
    """Return how the pod failed that did so last; empty if none of them says."""
    return max(map(how_it_failed, statuses), default=("", ""))[1]
