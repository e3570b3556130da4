"""The report `reports/attention`: webhooks out of reach, preemptions without effect, the leader's last audit."""

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
    from admission.api.probes import WebhookFault
    from admission.api.resources.leader_view import LeaderView
    from admission.store.store import Store

_RECHECK_SECONDS: Final = 30.0
"""Interval of the check for preemptions without effect while nothing is written: they are recognised by their age."""


class AttentionReport:
    """Handler of the report, which is computed once a second at most. `now` returns the Unix time (s)."""

    def __init__(
        self, store: Store, leader: LeaderView, *, now: Callable[[], float], webhook_fault: WebhookFault
    ) -> None:
        self._store = store
        self._leader = leader
        self._now = now
        self._webhook_fault = webhook_fault
        # Revision and time only grow, so their sum changes if one of them does.
        self._preemptions = RevisionCache(self._in_vain, revision=lambda: store.revisions.newest + self._half_minutes())

    async def get(self, request: web.Request) -> web.Response:
        """Return the report. Raises StoreError."""
        del request
        body: Document = {"kind": ATTENTION_REPORT, "apiVersion": API_VERSION, "metadata": {}}
        body["preemptionsInVain"] = await self._preemptions.get()
        if fault := self._webhook_fault():
            body["webhookFault"] = fault
        if (found := self._leader.last_audit()) is not None:
            differences = [
                {"problem": problem, "count": count} for problem, count in sorted(found.differences.items()) if count
            ]
            body["lastAudit"] = {"at": sentences.time(found.at), "differences": differences}
        return reply(body)

    def _half_minutes(self) -> int:
        return int(self._now() // _RECHECK_SECONDS)

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
