"""The resource `audits`: comparison of database, cluster and the leader's memory; GET reports, POST repairs, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.api.errors import Unanswered
from admission.api.http.request_options import dry_run
from admission.api.http.responses import reply
from admission.api.registry import API_VERSION
from admission.api.resources.leader_view import not_leading
from admission.model.errors import ClusterError

if TYPE_CHECKING:
    from aiohttp import web

    from admission.api.probes import NotQueuedObjects, WebhookFault
    from admission.api.resources.explaining_engine import LocalController
    from admission.api.resources.leader_view import LeaderView
    from admission.kinds.not_queued import NotQueued
    from admission.store.store import Store


def _unanswered_webhook(fault: str) -> dict[str, str]:
    """Return the item of webhooks that do not answer, in the form of a difference that no repair removes."""
    return {
        "problem": "WebhookUnreachable",
        "object": "MutatingWebhookConfiguration sluice",
        "uid": "",
        "found": fault,
        "expected": "Sluice's webhooks answer at the address that is registered",
        "remedy": "nothing; an admin has to make the address reachable",
        "left": "true",
    }


def _not_queued(found: NotQueued) -> dict[str, str]:
    """Return the item of an object with a queue label that is not queued, in the form of a difference."""
    return {
        "problem": "NotQueued",
        "object": f"{found.kind} {found.namespace}/{found.name}",
        "uid": found.uid,
        "found": found.why,
        "expected": "queued, or without a queue label",
        "remedy": "nothing; queue its kind, recreate it, or remove the label",
        "left": "true",
    }


class Audits:
    """Handlers of audits. Only the leader has the memory to compare, and only it may repair."""

    def __init__(
        self,
        store: Store,
        controller: LocalController,
        leader: LeaderView,
        *,
        webhook_fault: WebhookFault,
        not_queued: NotQueuedObjects,
    ) -> None:
        self._store = store
        self._controller = controller
        self._leader = leader
        self._webhook_fault = webhook_fault
        self._not_queued = not_queued

    async def get(self, _: web.Request) -> web.Response:
        """Return all differences. Raises NotLeading and Unanswered."""
        return await self._answer(repair=False)

    async def post(self, request: web.Request) -> web.Response:
        """Repair what can be repaired (unless `?dryRun=All`), and return all differences. Raises as `get`."""
        return await self._answer(repair=not dry_run(request))

    async def _answer(self, *, repair: bool) -> web.Response:
        if self._leader.standstill():  # the audit would wait for minutes
            raise Unanswered("no audit can be made while the API server or the database does not answer")
        try:
            items = await self._controller.audit(repair=repair)
        except ClusterError as error:
            raise Unanswered(f"the audit needs the cluster: {error}") from error
        if items is None:
            raise not_leading("audit", await self._store.holder())
        items = [*items, *map(_not_queued, self._not_queued())]
        if fault := self._webhook_fault():
            items = [_unanswered_webhook(fault), *items]
        return reply({"kind": "Audit", "apiVersion": API_VERSION, "metadata": {}, "items": items})
