"""Why a workload waits, and who waits in front of it: questions that only an engine can answer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from admission.api.auth.redaction import named_keys, named_messages
from admission.api.documents.workload_documents import workload_name
from admission.api.errors import UnknownObject
from admission.api.http.request_options import number
from admission.api.http.responses import reply
from admission.api.registry import API_VERSION
from admission.engine.vocabulary import ON_HOLD
from admission.model.quantity import UNLIMITED, format_amount
from admission.model.queues import ClusterQueue, LocalQueue
from admission.store.records import State

if TYPE_CHECKING:
    from aiohttp import web

    from admission.api.http.responses import Document
    from admission.api.resources.explaining_engine import Live
    from admission.api.resources.start_estimates import EstimateOf
    from admission.api.resources.workloads import Workloads
    from admission.engine import Explanation, Lack, Place, Prospect
    from admission.engine.assignment import Attempt
    from admission.store.records import WorkloadRecord
    from admission.store.store import Store

LARGEST_PAGE = 1000
"""How many of those that wait are told at a time, if more or none are asked for."""


class Explanations:
    """`explain` of workloads, `pendingworkloads` of queues."""

    def __init__(self, store: Store, workloads: Workloads, live: Live, estimate_of: EstimateOf) -> None:
        self._estimate_of = estimate_of
        self._store = store
        self._workloads = workloads
        self._live = live

    async def explain(self, request: web.Request) -> web.Response:
        """Where a workload stands: what it asks for, what is free, who refuses, who is ahead, what would help."""
        record = await self._workloads.asked(request)
        engine = await self._live.engine()
        explanation = engine.explain(record.workload.uid)
        if explanation is None and record.state is not State.FINISHED:
            raise UnknownObject(f'the workload "{record.workload.key}" has only just come; ask again in a moment')
        remedies = engine.remedies(record.workload.uid)
        document = _document(record, explanation)
        (document["message"],) = await named_messages(request, self._store, [document["message"]])
        if ahead := document.get("aheadFirst"):
            document["aheadFirst"] = await named_keys(request, record.workload.namespace, ahead)
        if remedies:
            document["remedies"] = [{"change": one.change, "hint": one.hint} for one in remedies]
        if document["state"] == "Pending" and (estimate := self._estimate_of(record.workload.uid)) is not None:
            document["estimatedStart"] = estimate.document()
        return reply(document)

    async def of_cluster_queue(self, request: web.Request) -> web.Response:
        """Who waits in a ClusterQueue, in order."""
        queue = await self._store.queues.get(ClusterQueue.kind, request.match_info["name"])
        return await self._pending(request, queue.name, None)

    async def of_local_queue(self, request: web.Request) -> web.Response:
        """Who waits in a LocalQueue, in order."""
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        queue = await self._store.queues.get(LocalQueue.kind, name, namespace=namespace)
        assert isinstance(queue, LocalQueue)
        return await self._pending(request, queue.spec.cluster_queue, (namespace, name))

    async def _pending(
        self, request: web.Request, cluster_queue: str, local_queue: tuple[str, str] | None
    ) -> web.Response:
        limit = min(number(request, "limit") or LARGEST_PAGE, LARGEST_PAGE)
        offset = number(request, "offset") or 0
        engine = await self._live.engine()
        places = engine.listing(cluster_queue, limit=limit, offset=offset, local_queue=local_queue)
        remaining = max(0, engine.count_waiting(cluster_queue, local_queue) - offset - limit)
        return reply(
            {
                "apiVersion": API_VERSION,
                "kind": "PendingWorkloadsSummary",
                "metadata": {"remainingItemCount": remaining} if remaining else {},
                "items": [_place(place) for place in places],
            }
        )


def _place(place: Place) -> Document:
    workload = place.workload
    return {
        "metadata": {
            "name": workload_name(workload),
            "namespace": workload.namespace,
            "uid": workload.uid,
            "creationTimestamp": _time(workload.created),
            "ownerReferences": [
                {"apiVersion": workload.api_version, "kind": workload.kind, "name": workload.name, "uid": workload.uid}
            ],
        },
        "priority": workload.priority,
        "localQueueName": workload.queue,
        "positionInClusterQueue": place.position_in_cluster_queue,
        "positionInLocalQueue": place.position_in_local_queue,
        "reason": place.reason,
        "message": place.message,
    }


def _document(record: WorkloadRecord, found: Explanation | None) -> Document:
    workload = record.workload
    # Why it is held, and what an eviction was for, is known better to the record than to the engine.
    if found is None or not found.reason or (found.reason == ON_HOLD and record.reason):
        reason, message = record.reason, record.message
    else:
        reason, message = found.reason, found.message
    document: Document = {
        "apiVersion": API_VERSION,
        "kind": "WorkloadExplanation",
        "metadata": {"name": workload_name(workload), "namespace": workload.namespace, "uid": workload.uid},
        "state": "Finished" if found is None else found.state,
        "reason": reason,
        "message": message,
        "clusterQueue": record.cluster_queue,
    }
    if found is None or found.state != "Pending":
        return document
    if found.not_before is not None:
        document["notBefore"] = _time(found.not_before)
    return {
        **document,
        "clusterQueue": found.cluster_queue,
        "positionInClusterQueue": found.position_in_cluster_queue,
        "positionInLocalQueue": found.position_in_local_queue,
        "ahead": found.ahead,
        "aheadFirst": list(found.ahead_first),
        "attempts": [_attempt(pod_set, attempt) for pod_set, attempt in found.attempts],
        "lacks": [_lack(lack) for lack in found.lacks],
        "prospects": [_prospect(prospect) for prospect in found.prospects],
    }


def _attempt(pod_set: str, attempt: Attempt) -> Document:
    return {
        "podSet": pod_set,
        "flavor": attempt.flavor,
        "reason": attempt.reason,
        "obstacles": [str(cause) for cause in attempt.causes],
    }


def _lack(lack: Lack) -> Document:
    amounts = {"asked": lack.asked, "free": lack.free, "borrowable": lack.borrowable, "most": lack.most}
    return {
        "podSet": lack.pod_set,
        "flavor": lack.flavor,
        "resource": lack.resource,
        **{name: format_amount(lack.resource, amount) for name, amount in amounts.items() if amount < UNLIMITED},
        "refusedBy": lack.refused_by,
        "hint": lack.hint,
    }


def _prospect(prospect: Prospect) -> Document:
    return {
        "flavor": prospect.flavor,
        "resource": prospect.resource,
        "missing": format_amount(prospect.resource, prospect.missing),
        "fromClusterQueue": format_amount(prospect.resource, prospect.own),
        "fromCohort": format_amount(prospect.resource, prospect.others),
        "hint": prospect.hint,
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
