"""`audits`: what differs between database, cluster and the memory of the leader; GET looks, POST repairs, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.api.errors import NotLeading, Unanswered
from admission.api.http.request_options import dry_run
from admission.api.http.responses import reply
from admission.api.registry import API_VERSION
from admission.model.errors import ClusterError

if TYPE_CHECKING:
    from aiohttp import web

    from admission.api.resources.explaining_engine import LocalController
    from admission.api.resources.leader_view import LeaderView
    from admission.store.store import Store


LEADER = "leader"
"""The field of the cause that names whom to ask."""


def _not_leading(holder: str) -> NotLeading:
    only = "only the Sluice that leads can audit, and this one does not"
    if not holder:
        return NotLeading(f"{only}: nobody does yet; see its log for what it waits for")
    return NotLeading(
        f'{only}: "{holder}" leads, host, process and a random number; ask again, as a Service passes each connection '
        "to any replica, or ask that host itself by --server, or a port forwarded to it",
        causes=[{"reason": "NotLeading", "field": LEADER, "message": holder}],
    )


class Audits:
    """Only the leader knows all that is compared, and only it may repair."""

    def __init__(self, store: Store, deciding: LocalController, leader: LeaderView) -> None:
        self._store = store
        self._deciding = deciding
        self._leader = leader

    async def get(self, _: web.Request) -> web.Response:
        """All differences that there are. Raises NotLeading and Unanswered."""
        return await self._answer(repair=False)

    async def post(self, request: web.Request) -> web.Response:
        """The same, after what can be repaired was repaired, unless `dryRun` is asked for."""
        return await self._answer(repair=not dry_run(request))

    async def _answer(self, *, repair: bool) -> web.Response:
        if self._leader.standstill():  # which would hold up the answer for minutes
            raise Unanswered("no audit can be made while the API server or the database does not do its part")
        try:
            items = await self._deciding.audit(repair=repair)
        except ClusterError as error:
            raise Unanswered(f"the audit needs the cluster: {error}") from error
        if items is None:
            raise _not_leading(await self._store.holder())
        return reply({"kind": "Audit", "apiVersion": API_VERSION, "metadata": {}, "items": items})
