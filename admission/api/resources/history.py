"""The subresources `history` of workloads and queue objects, and `rollback` to an earlier version."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from admission.api.auth.identity import author
from admission.api.auth.redaction import named_messages
from admission.api.errors import BadRequest
from admission.api.http.bodies import read_document
from admission.api.http.request_options import dry_run, number
from admission.api.http.responses import reply
from admission.api.registry import API_VERSION
from admission.apimachinery.patches import differences
from admission.engine.victims import preemptor_in
from admission.engine.vocabulary import PREEMPTED
from admission.model.manifests import to_manifest
from admission.model.names import NOTED_BY_OTHERS, listed
from admission.model.quantity import format_amount
from admission.store.errors import NotFound
from admission.store.records import State
from admission.store.workloads.orders import DELETION_ORDERED, NOT_DELETED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aiohttp import web

    from admission.api.http.responses import Document
    from admission.api.registry import Resource
    from admission.api.resources.queue_objects import QueueObjects
    from admission.api.resources.workload_lookup import WorkloadLookup
    from admission.model.queues import QueueObject
    from admission.store.records import QueueObjectVersion, Transition
    from admission.store.store import Store
    from admission.store.workloads.queries import LedgerRow

_PAGE = 100
"""Versions in a page without `limit`."""

_NOT_WAIT_REASONS = frozenset({"Ordered", "Edited", DELETION_ORDERED, NOT_DELETED})
"""Reasons of transitions of a pending workload that do not say why it waits."""


class WorkloadHistories:
    """Handler of `history` of workloads. `now` returns the Unix time (s)."""

    def __init__(self, store: Store, lookup: WorkloadLookup, *, now: Callable[[], float]) -> None:
        self._store = store
        self._lookup = lookup
        self._now = now

    async def get(self, request: web.Request) -> web.Response:
        """Return the transitions of a workload, the oldest first, its admissions, and its waiting times by reason."""
        record = await self._lookup.of_request(request, exact=False)
        uid = record.workload.uid
        story, rows = await self._store.workloads.history(uid), await self._store.workloads.ledger(uid)
        messages = await named_messages(request, self._store, (line.message for line in story))
        return reply(
            {
                "apiVersion": API_VERSION,
                "kind": "WorkloadHistory",
                "metadata": {"namespace": record.workload.namespace, "name": record.workload.name, "uid": uid},
                "items": [
                    {"at": _time(line.at), "state": line.state, "reason": line.reason, "message": message}
                    for line, message in zip(story, messages, strict=True)
                ],
                "folds": [fold._asdict() for fold in folds(story)],
                "admissions": [_held(row) for row in rows],
                "waited": [
                    {"reason": reason, "seconds": round(seconds, 3)}
                    for reason, seconds in waiting_times(story, until=self._now()).items()
                ],
            }
        )


def waiting_times(story: Sequence[Transition], *, until: float) -> dict[str, float]:
    """Return the seconds that a workload waited, by reason; they add up to the whole wait.

    `story`: its transitions, the oldest first. `until`: Unix time (s) up to which a pending workload has waited.
    """
    times: dict[str, float] = {}
    reason: str | None = None
    since = 0.0
    for line in story:
        if reason is not None:
            times[reason] = times.get(reason, 0.0) + max(line.at - since, 0.0)
        since = line.at
        if line.state != State.PENDING:
            reason = None
        elif reason is None or line.reason not in _NOT_WAIT_REASONS:
            reason = line.reason
    if reason is not None:
        times[reason] = times.get(reason, 0.0) + max(until - since, 0.0)
    return times


class Fold(NamedTuple):
    """A part of a workload's history in which it was admitted and evicted again and again."""

    first: int
    """Index of the first transition."""
    last: int
    """Index of the last transition."""
    rounds: int
    """Number of admissions in it, each of which ended with an eviction."""
    preemptors: int
    """Number of different workloads for which it was preempted in it."""


def folds(story: Sequence[Transition]) -> list[Fold]:
    """Return the parts of a history that its readers may see as one line each.

    All rounds from an admission to the next, with an eviction in between, but the first and the last one, if these are
    two or more.
    """
    starts = [
        index
        for index, line in enumerate(story)
        if line.state == State.ADMITTED and (not index or story[index - 1].state != State.ADMITTED)
    ]
    rounds = [
        (start, end - 1)
        for start, end in pairwise(starts)
        if any(line.state == State.EVICTING for line in story[start:end])
    ]
    if len(rounds) > 3 and len(rounds) == len(starts) - 1:
        first, last = rounds[1][0], rounds[-2][1]
        preemptors = {preemptor_in(line.message) for line in story[first : last + 1] if line.reason == PREEMPTED}
        return [Fold(first, last, len(rounds) - 2, len(preemptors - {""}))]
    return []


class QueueObjectHistories:
    """Handlers of `history` and `rollback` of the queue objects of one resource."""

    def __init__(self, store: Store, resource: Resource, objects: QueueObjects) -> None:
        self._store = store
        self._resource = resource
        self._objects = objects

    async def get(self, request: web.Request) -> web.Response:
        """Return all versions that existed under this name, the newest first, with author, time, reason and diff."""
        limit, before = number(request, "limit") or _PAGE, number(request, "continue")
        versions = await self._versions(request)
        changes = [(new, old) for old, new in pairwise([None, *versions]) if new is not None]
        found = [change for change in reversed(changes) if before is None or change[0].revision < before]
        page = found[:limit]
        rest = {"continue": str(page[-1][0].revision), "remainingItemCount": len(found) - limit}
        return reply(
            {
                "apiVersion": API_VERSION,
                "kind": "HistoryList",
                "metadata": rest if len(found) > limit else {},
                "items": [_version(new, old) for new, old in page],
            }
        )

    async def rollback(self, request: web.Request) -> web.Response:
        """Write the object as it was at a revision as a new version; a deleted object is created again."""
        body = await read_document(request) or {}
        revision = body.get("revision")
        if not isinstance(revision, str) or not revision.isascii() or not revision.isdecimal():
            raise BadRequest(
                'revision: must be a revision of the history, as in {"kind": "Rollback", "revision": "12"}'
            )
        versions = [version for version in await self._versions(request) if version.operation != "delete"]
        version = next((version for version in versions if str(version.revision) == revision), None)
        if version is None:
            raise BadRequest(
                f'{self._resource.singular} "{request.match_info["name"]}" has no revision {revision} to go back to; '
                f"there are, newest first: {listed([str(version.revision) for version in reversed(versions)])}"
            )

        def restored(old: QueueObject | None) -> QueueObject:
            metadata = version.object.metadata.model_copy(
                update={
                    "uid": "",
                    "resource_version": "",
                    "managed_fields": () if old is None else old.metadata.managed_fields,
                }
            )
            return version.object.model_copy(update={"metadata": metadata})

        dry = dry_run(request)
        who = author(request, verb="rollback")
        written = await self._objects.write(request, version.object.key, restored, author=who, dry_run=dry)
        return await self._objects.write_response(request, written, dry_run=dry)

    async def _versions(self, request: web.Request) -> tuple[QueueObjectVersion, ...]:
        name, namespace = request.match_info["name"], request.match_info.get("namespace", "")
        versions = await self._store.queues.versions(self._resource.kind, name, namespace=namespace)
        if not versions:
            raise NotFound.of(self._resource.plural, name)
        return versions


def _version(new: QueueObjectVersion, old: QueueObjectVersion | None) -> Document:
    before = {} if old is None or old.operation == "delete" else _compared(old.object)
    after = {} if new.operation == "delete" else _compared(new.object)
    return {
        "revision": str(new.revision),
        "at": _time(new.at),
        "operation": new.operation,
        "user": new.author,
        "reason": new.reason,
        "diff": list(differences(before, after)),
        "object": to_manifest(new.object),
    }


def _compared(obj: QueueObject) -> Document:
    """Return the fields of an object that users write, for the diff.

    Left out are computed fields, and annotations that kubectl and Sluice write for themselves.
    """
    manifest = to_manifest(obj)
    metadata = {name: dict(manifest["metadata"].get(name, ())) for name in ("labels", "annotations")}
    for name in NOTED_BY_OTHERS:
        metadata["annotations"].pop(name, None)
    metadata = {name: entries for name, entries in metadata.items() if entries}
    rest = {name: value for name, value in manifest.items() if name not in ("apiVersion", "kind", "metadata", "status")}
    return {"metadata": metadata, **rest} if metadata else rest


def _held(row: LedgerRow) -> Document:
    document: Document = {
        "from": _time(row.from_at),
        "clusterQueue": row.cluster_queue,
        "podSet": row.pod_set,
        "count": row.count,
        "flavor": row.flavor,
        "resource": row.resource,
        "amount": format_amount(row.resource, row.amount),
    }
    return document if row.to_at is None else {**document, "to": _time(row.to_at), "endReason": row.end_reason}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
