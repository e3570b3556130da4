"""The subresource `calendar` of ClusterQueues and Cohorts: coming changes of quota, and what the next one does."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from admission.api.auth.cluster_rights import hidden_clusters
from admission.api.http.request_options import number
from admission.api.http.responses import reply
from admission.api.registry import API_VERSION, CALENDAR_PREVIEW
from admission.api.resources.impact import impact, impact_document
from admission.engine import QueueObjectChanged, WorkloadGone
from admission.model.queues import ClusterQueue, Cohort, quota_changes
from admission.model.quotas import quotas_by_flavor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiohttp import web

    from admission.api.http.responses import Document
    from admission.api.resources.explaining_engine import Engines
    from admission.api.resources.impact import Impact
    from admission.store.store import Store

_CHANGES: Final = 10
_MOST_CHANGES: Final = 100
_AHEAD: Final = 366 * 24 * 3600.0
"""Seconds ahead in which changes are listed."""


class Calendars:
    """Handlers of `clusterqueues/calendar` and `cohorts/calendar`."""

    def __init__(self, store: Store, engines: Engines) -> None:
        self._store = store
        self._engines = engines

    async def of_cluster_queue(self, request: web.Request) -> web.Response:
        """Answer for a ClusterQueue."""
        return await self._preview(request, ClusterQueue.kind)

    async def of_cohort(self, request: web.Request) -> web.Response:
        """Answer for a Cohort."""
        return await self._preview(request, Cohort.kind)

    async def _preview(self, request: web.Request, kind: str) -> web.Response:
        now = self._engines.now
        item = await self._store.queues.get(kind, request.match_info["name"])
        assert isinstance(item, ClusterQueue | Cohort)
        most = min(number(request, "limit") or _CHANGES, _MOST_CHANGES)
        before, following = item, None
        changes: list[Document] = []
        for at, changed in quota_changes(item, now, now + _AHEAD):
            assert isinstance(changed, ClusterQueue | Cohort)
            if len(changes) == most:
                break
            if following is None:
                following = at, changed
            changes.append({"at": _time(at), "quotas": [*_differences(before, changed, at)]})
            before = changed
        document: Document = {
            "apiVersion": API_VERSION,
            "kind": CALENDAR_PREVIEW,
            "metadata": {"name": item.name},
            "timeZone": "UTC" if item.spec.calendar is None else item.spec.calendar.time_zone,
            "applied": [*_applied(item, now)],
            "changes": changes,
        }
        if following is not None:
            found = (await self._impact(*following, now)).without(await hidden_clusters(request))
            document["impact"] = impact_document(found)
        return reply(document)

    async def _impact(self, at: float, changed: ClusterQueue | Cohort, now: float) -> Impact:
        """Return what a change does at its time, with the workloads of now that have not reached their time limit."""
        engine, waiting = await self._engines.copy()
        for uid in engine.due_by(at):
            engine.observe(WorkloadGone(uid), now=now)
        queues = await self._store.queues.list(ClusterQueue.kind)
        delays = [
            each.spec.over_quota.evict_after_seconds
            for each in queues
            if isinstance(each, ClusterQueue) and each.spec.over_quota is not None
        ]
        until = at + max(delays, default=0)
        change = [QueueObjectChanged(changed)]
        return await asyncio.to_thread(impact, engine, change, waiting=waiting, now=at, until=until)


def _applied(item: ClusterQueue | Cohort, now: float) -> Iterator[Document]:
    """Yield the quotas that are not as usual now."""
    applied = {} if item.spec.calendar is None else item.spec.calendar.at(now)
    for (flavor, resource), found in applied.items():
        yield {
            "flavor": flavor,
            "resource": resource,
            "quota": found.nominal_quota,
            "entry": found.entry.name,
            "until": _time(found.until),
        }


def _differences(before: ClusterQueue | Cohort, after: ClusterQueue | Cohort, at: float) -> Iterator[Document]:
    applied = {} if after.spec.calendar is None else after.spec.calendar.at(at)
    old = quotas_by_flavor(before.spec.resource_groups)
    for key, quota in quotas_by_flavor(after.spec.resource_groups).items():
        was, will_be = (each.current_quota or each.nominal_quota for each in (old[key], quota))
        if quota.current_quota != old[key].current_quota:
            entry = applied[key].entry.name if key in applied else ""
            yield {"flavor": key[0], "resource": key[1], "from": was, "to": will_be, "entry": entry}


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
