"""The subresources `explain` of workloads and `pendingworkloads` of queues, computed by an engine."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from admission.api.auth.authorization import may_read, reading
from admission.api.auth.cluster_rights import hidden_clusters
from admission.api.auth.redaction import named_messages
from admission.api.documents.workload_names import workload_name
from admission.api.errors import UnknownObject
from admission.api.http.request_options import number
from admission.api.http.responses import reply
from admission.api.kinds.queue_status import unanswered
from admission.api.registry import API_VERSION
from admission.api.resources.explanation_text import NO_ESTIMATE, ExplainedWorkload, paragraphs, place
from admission.api.resources.start_estimates import StartEstimate
from admission.engine import needed_now
from admission.engine.vocabulary import (
    EXCEEDS_MAX_QUOTA,
    ON_HOLD,
    PENDING_EVALUATION,
    WAITING_FOR_PREEMPTED,
    WAITING_FOR_QUOTA,
)
from admission.model import sentences
from admission.model.calendars import instant_text
from admission.model.quantity import UNLIMITED, format_amount
from admission.model.queues import ClusterQueue, LocalQueue, quota_changes
from admission.model.quotas import quotas_by_flavor
from admission.model.workload import LOCAL
from admission.store.errors import NotFound
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from aiohttp import web

    from admission.api.http.responses import Document
    from admission.api.resources.explaining_engine import Engines
    from admission.api.resources.start_estimates import EstimateOf
    from admission.api.resources.workload_lookup import WorkloadLookup
    from admission.engine import Explanation, Lack, ListedWorkload, PreemptionHint
    from admission.engine.assignment import Attempt
    from admission.model.terms import Dependency
    from admission.model.workload import Workload
    from admission.store.records import WorkloadRecord
    from admission.store.store import Store

_PLANNED_AHEAD = 14 * 24 * 3600.0
"""Seconds ahead for which an explanation tells of more quota."""
LARGEST_PAGE = 1000
"""Most pending workloads in a response, also without `limit`."""

_MOST_DEPENDENTS = 20
"""Workloads that wait for one and are named in its explanation; all others are counted."""


class Explanations:
    """Handlers of `workloads/explain`, `clusterqueues/pendingworkloads` and `localqueues/pendingworkloads`."""

    def __init__(self, store: Store, lookup: WorkloadLookup, engines: Engines, estimate_of: EstimateOf) -> None:
        self._estimate_of = estimate_of
        self._store = store
        self._lookup = lookup
        self._engines = engines

    async def explain(self, request: web.Request) -> web.Response:
        """Explain a workload: its position, requests, free quota, limiting queue, workloads ahead, and remedies."""
        record = await self._lookup.of_request(request, exact=False)
        engine = await self._engines.current()
        explanation = engine.explain(record.workload.uid)
        if explanation is None and record.state is not State.FINISHED:
            raise UnknownObject(f'the workload "{record.workload.key}" is new, and not known here yet; try again soon')
        if explanation is not None and explanation.lent and not await may_read(request, ""):
            explanation = replace(explanation, lent=tuple(replace(each, borrowers=()) for each in explanation.lent))
        remedies = engine.remedies(record.workload.uid)
        dependents = engine.dependents(record.workload)
        reason, text = _reason(record, explanation)
        evicted = record.eviction.message if record.eviction and record.state is State.PENDING else ""
        message, evicted = await named_messages(request, self._store, [text, evicted])
        explained = await self._explained(record, reason, message, evicted)
        document = _document(record, explanation, reason, message)
        if remedies:
            document["remedies"] = [{"change": one.change, "hint": one.hint} for one in remedies]
        now = self._engines.now
        waits = document["state"] == "Pending"
        estimate = self._estimate_of(record.workload.uid) if waits else NO_ESTIMATE
        if isinstance(estimate, StartEstimate):
            document["estimatedStart"] = estimate.document()
        elif estimate.why and document.get("positionInClusterQueue"):
            document["noEstimate"] = estimate.why
        document["standing"] = place(explained, explanation, name=record.workload.name, now=now, estimate=estimate)
        hints = [one.hint for one in remedies]
        planned = await self._planned(document, now)
        told = paragraphs(explained, explanation, now=now, remedies=hints, estimate=estimate, planned=planned)
        document["sentences"], document["details"] = told
        hidden = await hidden_clusters(request, reading(record.workload.namespace))
        document |= await self._dependencies(record.workload, dependents, hidden)
        return reply(document)

    async def _dependencies(
        self, workload: Workload, dependents: Sequence[Workload], hidden: Collection[str]
    ) -> Document:
        """Return what a workload starts after, and what starts after it; empty: nothing.

        Those of the clusters `hidden` are not named.
        """
        waits_for = []
        for dependency in workload.terms.after:
            # Of several that had the name, the last counts.
            named = await self._store.workloads.of_name(workload.namespace, dependency.name)
            last = next((one for one in named if dependency.kind in ("", one.workload.kind.lower())), None)
            last = None if last is None or last.workload.cluster in hidden else last
            node = _link(dependency, None if last is None else last.workload, dependency.target)
            waits_for.append(node if last is None else {**node, "state": last.state.value, "outcome": last.outcome})
        named_dependents = [each for each in dependents if each.cluster not in hidden][:_MOST_DEPENDENTS]
        waited_for_by = [
            {**_link(each, dependent, dependent.name), "state": State.PENDING.value}
            for dependent in named_dependents
            for each in dependent.terms.after
            if each.name == workload.name and each.kind in ("", workload.kind.lower())
        ]
        unnamed = len(dependents) - len(named_dependents)
        others = {"waitedForByOthers": unnamed} if unnamed else {}
        named_both = {"waitsFor": waits_for, "waitedForBy": waited_for_by}
        return {**{name: nodes for name, nodes in named_both.items() if nodes}, **others}

    async def _planned(self, document: Document, now: float) -> str:
        """Return a sentence about more quota that the calendar of the ClusterQueue has soon; empty: there is none."""
        name, lacks_quota = document["clusterQueue"], document["reason"] in (WAITING_FOR_QUOTA, EXCEEDS_MAX_QUOTA)
        if document["state"] != "Pending" or not lacks_quota or not name:
            return ""
        try:
            before = await self._store.queues.get(ClusterQueue.kind, name)
        except NotFound:
            return ""
        assert isinstance(before, ClusterQueue)
        for at, after in quota_changes(before, now, now + _PLANNED_AHEAD):
            assert isinstance(after, ClusterQueue)
            assert after.spec.calendar is not None
            old = quotas_by_flavor(before.spec.resource_groups)
            for (flavor, resource), quota in quotas_by_flavor(after.spec.resource_groups).items():
                if quota.nominal > old[flavor, resource].nominal:
                    when = instant_text(at, after.spec.calendar.time_zone)
                    amounts = (format_amount(resource, each.nominal) for each in (quota, old[flavor, resource]))
                    more, less = amounts
                    return (
                        f"From {when} on, ClusterQueue {name} has {more} {resource} of {flavor}, and not only {less}."
                    )
            before = after
        return ""

    async def _explained(self, record: WorkloadRecord, reason: str, message: str, evicted: str) -> ExplainedWorkload:
        checks: list[tuple[str, str, str]] = []
        if record.checks_pending:
            silent = await unanswered(self._store)
            orders = await self._store.orders.of([record.workload.uid])
            waiting = (check for check in orders.checks if check.state != "Ready")
            checks = [(check.name, check.state, check.message or silent.get(check.name, "")) for check in waiting]
        lost, admission = "", record.admission
        where = record.runs_in
        if admission is not None and where != LOCAL:
            cluster = (await self._store.joined_clusters.load()).get(where)
            if cluster is not None and cluster.state == "Lost":
                since = sentences.minute(cluster.since)
                lost = sentences.holds_in_lost(where, cluster.message, since)
        ended = record.state is State.FINISHED
        stopping = record.state is State.EVICTING and not record.is_stop_hindered
        return ExplainedWorkload(
            title=f"{record.workload.kind} {record.workload.key}",
            local_queue=record.workload.queue,
            queued_at=record.queued_at,
            reason=record.outcome if ended else reason,
            message=message,
            admitted_at=record.cleared_at or record.admitted_at,
            finished_at=(record.finished_at or self._engines.now) if ended else None,
            checks_pending=record.checks_pending,
            checks=tuple(checks),
            evicted=evicted,
            lost=lost,
            stopping_since=record.eviction.at if stopping and record.eviction is not None else None,
        )

    async def of_cluster_queue(self, request: web.Request) -> web.Response:
        """List the pending workloads of a ClusterQueue, in order."""
        queue = await self._store.queues.get(ClusterQueue.kind, request.match_info["name"])
        return await self._pending(request, queue.name, None)

    async def of_local_queue(self, request: web.Request) -> web.Response:
        """List the pending workloads of a LocalQueue, in order."""
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        queue = await self._store.queues.get(LocalQueue.kind, name, namespace=namespace)
        assert isinstance(queue, LocalQueue)
        return await self._pending(request, queue.spec.cluster_queue, (namespace, name))

    async def _pending(
        self, request: web.Request, cluster_queue: str, local_queue: tuple[str, str] | None
    ) -> web.Response:
        limit = min(number(request, "limit") or LARGEST_PAGE, LARGEST_PAGE)
        offset = number(request, "offset") or 0
        engine = await self._engines.current()
        hidden = await hidden_clusters(request)
        listed = engine.listing(cluster_queue, limit=limit, offset=offset, local_queue=local_queue)
        places = [place for place in listed if place.workload.cluster not in hidden]
        queued = await self._store.workloads.queued_at(place.workload.uid for place in places)
        remaining = max(0, engine.count_waiting(cluster_queue, local_queue) - offset - limit)
        return reply(
            {
                "apiVersion": API_VERSION,
                "kind": "PendingWorkloadsSummary",
                "metadata": {"remainingItemCount": remaining} if remaining else {},
                "items": [self._place(place, queued.get(place.workload.uid)) for place in places],
            }
        )

    def _place(self, place: ListedWorkload, queued_at: float | None) -> Document:
        estimate = self._estimate_of(place.workload.uid)
        document = _place(place, queued_at)
        if isinstance(estimate, StartEstimate):
            document["estimatedStart"] = estimate.document()
        return document


def _place(place: ListedWorkload, queued_at: float | None) -> Document:
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
        "user": workload.user,
        "requests": _total_requests(workload),
        "priority": workload.priority,
        "localQueueName": workload.queue,
        "positionInClusterQueue": place.position_in_cluster_queue,
        "positionInLocalQueue": place.position_in_local_queue,
        **({} if queued_at is None else {"queuedAt": _time(queued_at)}),
        "reason": place.reason,
        "message": place.message,
        **({"needs": needed_now(place.lacks)} if place.lacks else {}),
    }


def _link(dependency: Dependency, workload: Workload | None, target: str) -> Document:
    """Return an arrow of the graph of dependencies and the workload at its other end; None: there is none."""
    named = {} if workload is None else {"name": workload_name(workload), "objectKind": workload.kind}
    return {"object": target, "condition": "Succeeded" if dependency.ok else "Ended", **named}


def _total_requests(workload: Workload) -> dict[str, str]:
    totals: dict[str, int] = {}
    for pod_set in workload.pod_sets:
        for resource, amount in pod_set.total(pod_set.count).items():
            totals[resource] = totals.get(resource, 0) + amount
    return {resource: format_amount(resource, total) for resource, total in totals.items()}


def _reason(record: WorkloadRecord, found: Explanation | None) -> tuple[str, str]:
    """Return reason and message: the engine's current ones, unless the controller has stored more specific ones."""
    if found is None or not found.reason:
        return record.reason, record.message
    knows_less = found.reason in (ON_HOLD, PENDING_EVALUATION) and record.message
    # An engine built from the database did not decide the preemption, and does not know that its targets are ending.
    preempting = found.reason == WAITING_FOR_QUOTA and record.reason == WAITING_FOR_PREEMPTED
    if (knows_less and not found.not_before) or preempting:
        return record.reason, record.message
    return found.reason, found.message


def _document(record: WorkloadRecord, found: Explanation | None, reason: str, message: str) -> Document:
    workload = record.workload
    document: Document = {
        "apiVersion": API_VERSION,
        "kind": "WorkloadExplanation",
        "metadata": {"name": workload_name(workload), "namespace": workload.namespace, "uid": workload.uid},
        "state": "Finished" if found is None else found.state,
        "reason": reason,
        "message": message,
        "clusterQueue": record.status_cluster_queue,
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
        "waitingInClusterQueue": found.waiting_in_cluster_queue,
        "waitingInLocalQueue": found.waiting_in_local_queue,
        "ahead": found.ahead,
        "aheadFirst": list(found.ahead_first),
        "attempts": [_attempt(pod_set, attempt) for pod_set, attempt in found.attempts],
        "lacks": [_lack(lack) for lack in found.lacks],
        "usedBy": [holder.key for holder in found.holders],
        "usedByOthers": found.other_holders,
        "prospects": [_preemption_hint(hint) for hint in found.preemption_hints],
    }


def _attempt(pod_set: str, attempt: Attempt) -> Document:
    return {
        "podSet": pod_set,
        "flavor": attempt.flavor,
        "reason": attempt.reason,
        "obstacles": [str(cause) for cause in attempt.causes],
    }


def _lack(lack: Lack) -> Document:
    amounts = {
        "asked": lack.requested,
        "free": lack.free,
        "borrowable": lack.borrowable,
        "most": lack.maximum,
        "used": lack.used,
        "usedByOthers": lack.used_by_others,
    }
    return {
        "flavor": lack.flavor,
        "resource": lack.resource,
        **{name: format_amount(lack.resource, amount) for name, amount in amounts.items() if amount < UNLIMITED},
        "refusedBy": lack.refused_by,
        "hint": lack.hint,
    }


def _preemption_hint(hint: PreemptionHint) -> Document:
    return {
        "flavor": hint.flavor,
        "resource": hint.resource,
        "missing": format_amount(hint.resource, hint.missing),
        "fromClusterQueue": format_amount(hint.resource, hint.own),
        "fromCohort": format_amount(hint.resource, hint.others),
        "hint": hint.hint,
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
