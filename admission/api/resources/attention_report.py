"""The report `reports/attention`: what is broken now.

A standstill of decisions, webhooks out of reach, objects that are not queued, workloads that failed, do not start or
can never run, preemptions without effect, and the leader's last audit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from admission.api.auth.cluster_rights import hidden_clusters
from admission.api.http.response_cache import RevisionCache
from admission.api.http.responses import reply
from admission.api.registry import ATTENTION_REPORT
from admission.engine.vocabulary import HOPELESS, PODS_UNSCHEDULED
from admission.model import sentences
from admission.store.workloads.search import WorkloadQuery

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from admission.api.http.responses import Document
    from admission.api.probes import NotQueuedObjects, WebhookFault
    from admission.api.resources.leader_view import LeaderView
    from admission.store.records import WorkloadRecord
    from admission.store.store import Store
    from admission.store.workloads.search import FoundPage

MOST_NOT_QUEUED: Final = 100
"""Objects of the report that have a queue label and are not queued, at most; all are counted."""
_RECHECK_SECONDS: Final = 30.0
"""Interval at which the workloads are searched again while nothing is written: some are recognised by their age."""
_SHARE: Final = 0.003
"""Share of the time that searching may take: the report needs all unfinished workloads, 50 ms for 22,000 of them."""
_FAILED_SECONDS: Final = 3600.0
"""Time for which failed workloads are reported."""
_NAMED: Final = 20
"""Most workloads of each list that are named."""


class AttentionReports:
    """Handler of the report, which is computed once a second at most, less often if that takes long.

    `now` returns the Unix time (s).
    """

    def __init__(
        self,
        store: Store,
        leader: LeaderView,
        *,
        now: Callable[[], float],
        webhook_fault: WebhookFault,
        not_queued: NotQueuedObjects,
    ) -> None:
        self._store = store
        self._leader = leader
        self._now = now
        self._webhook_fault = webhook_fault
        self._not_queued = not_queued
        # Revision and time only grow, so their sum changes if one of them does.
        self._workloads = RevisionCache(
            self._found,
            revision=lambda: store.revisions.newest + self._half_minutes(),
            share=_SHARE,
            max_seconds=_RECHECK_SECONDS,
        )

    async def get(self, request: web.Request) -> web.Response:
        """Return the report. Raises TooManyRequests and StoreError."""
        hidden = await hidden_clusters(request)
        workloads = await self._workloads.get()
        body = ATTENTION_REPORT.document(**(_without(workloads, hidden) if hidden else workloads))
        if standstill := self._leader.standstill():
            body["standstill"] = standstill
        if found_objects := self._not_queued():
            body["notQueued"] = {
                "count": len(found_objects),
                "items": [
                    {"kind": each.kind, "namespace": each.namespace, "name": each.name, "message": each.sentence}
                    for each in found_objects[:MOST_NOT_QUEUED]
                ],
            }
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

    async def _found(self) -> Document:
        now = self._now()
        failed = WorkloadQuery(fields={"state": frozenset({"Failed"})}, since=now - _FAILED_SECONDS)
        return {
            "failed": _listed(await self._store.workloads.search(failed, limit=_NAMED)),
            **await self._unfinished(now),
            "evictedAgain": await self._evicted_again(now),
            "preemptionsInVain": await self._in_vain(),
        }

    async def _evicted_again(self, now: float) -> Document:
        """Return the workloads that were evicted again and again, with the number of times and the last reason."""
        found = await self._store.workloads.evicted_again(now=now)
        records = await self._store.workloads.by_uid(each.uid for each in found[:_NAMED])
        items = []
        for uid, times in found[:_NAMED]:
            if (record := records.get(uid)) is not None:
                why = "" if record.eviction is None else f": {record.eviction.message}"
                at = record.queued_at if record.eviction is None else record.eviction.at
                message = f"Evicted {times} times in the last hour{why}"
                items.append(_item(replace(record, reason="EvictedAgain", message=message), at))
        return {"count": len(found), "items": items}

    async def _unfinished(self, now: float) -> Document:
        """Return the admitted workloads that do not start, and the pending ones that can never run."""
        parts = {"notStarted": frozenset({PODS_UNSCHEDULED}), "impossible": HOPELESS}
        # `since` leaves out finished workloads, whose index is not read then.
        both = WorkloadQuery(fields={"reason": frozenset().union(*parts.values())}, since=now)
        found = await self._store.workloads.search(both, limit=_NAMED)
        if found.total <= _NAMED:  # one query instead of two, each of which reads all unfinished workloads
            records = {name: [each for each in found.workloads if each.reason in part] for name, part in parts.items()}
            return {
                name: _listed(found._replace(workloads=tuple(some), total=len(some))) for name, some in records.items()
            }
        searches = {name: replace(both, fields={"reason": part}) for name, part in parts.items()}
        return {name: _listed(await self._store.workloads.search(one, limit=_NAMED)) for name, one in searches.items()}

    async def _in_vain(self) -> list[Document]:
        found = await self._store.workloads.preemptions_in_vain(now=self._now())
        return [
            {
                "namespace": each.namespace,
                "name": each.name,
                "cluster": each.cluster,
                "clusterQueue": each.cluster_queue,
                "victims": [victim._asdict() for victim in each.victims],
                "preemptedAt": sentences.time(each.at),
            }
            for each in found
        ]


def _without(part: Any, hidden: frozenset[str]) -> Any:
    """Return a part of the report without the workloads of some clusters; numbers stay."""
    if isinstance(part, dict):
        return {key: _without(value, hidden) for key, value in part.items()}
    if isinstance(part, list):
        return [_without(each, hidden) for each in part if each.get("cluster") not in hidden]
    return part


def _listed(page: FoundPage) -> Document:
    """Return the number of the found workloads, and the first of them."""
    return {
        "count": page.total,
        "items": [
            _item(record, record.finished_at or record.cleared_at or record.queued_at) for record in page.workloads
        ],
    }


def _item(record: WorkloadRecord, at: float) -> Document:
    return {
        "namespace": record.workload.namespace,
        "name": record.workload.name,
        "cluster": record.workload.cluster,
        "user": record.workload.user,
        "clusterQueue": record.cluster_queue,
        "reason": record.reason,
        "message": record.message,
        "at": sentences.time(at),
    }
