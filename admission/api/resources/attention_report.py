"""`reports/attention`: what an admin should look into beside what waits: preemptions in vain, and what audits found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.api.http.response_cache import RevisionCache
from admission.api.http.responses import reply
from admission.api.registry import API_VERSION, ATTENTION_REPORT
from admission.model import sentences

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from admission.api.http.responses import Document
    from admission.api.resources.leader_view import LeaderView
    from admission.store.store import Store

_TIME_PASSES: Final = 30.0
"""Seconds after which a preemption may have become one in vain, though nothing was written."""


class AttentionReport:
    """Looked for at most each second, however many ask. `now` gives seconds since the epoch."""

    def __init__(self, store: Store, leader: LeaderView, *, now: Callable[[], float]) -> None:
        self._store = store
        self._leader = leader
        self._now = now
        # Both only grow, so their sum tells whether one has.
        self._preemptions = RevisionCache(self._in_vain, revision=lambda: store.revisions.newest + self._half_minutes())

    async def get(self, request: web.Request) -> web.Response:
        """What there is. Raises StoreError."""
        del request
        body: Document = {"kind": ATTENTION_REPORT, "apiVersion": API_VERSION, "metadata": {}}
        body["preemptionsInVain"] = await self._preemptions.get()
        if (found := self._leader.last_audit()) is not None:
            differences = [
                {"problem": problem, "count": count} for problem, count in sorted(found.differences.items()) if count
            ]
            body["lastAudit"] = {"at": sentences.time(found.at), "differences": differences}
        return reply(body)

    def _half_minutes(self) -> int:
        return int(self._now() // _TIME_PASSES)

    async def _in_vain(self) -> list[Document]:
        found = await self._store.workloads.preemptions_in_vain(now=self._now())
        return [
            {
                "namespace": each.namespace,
                "name": each.name,
                "clusterQueue": each.cluster_queue,
                "victims": [victim._asdict() for victim in each.victims],
                "preemptedAt": sentences.time(each.at),
            }
            for each in found
        ]
