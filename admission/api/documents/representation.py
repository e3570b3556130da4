"""Representations by content negotiation: whole objects, PartialObjectMetadata or Table, for objects, lists, events."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import orjson

from admission.api.errors import BadRequest
from admission.api.kinds.all_kinds import KINDS
from admission.api.kinds.columns import at, condition, condition_of
from admission.api.registry import API_VERSION
from admission.apimachinery.accept import JSON, PARTIAL, PARTIAL_LIST, PLAIN, TABLE, negotiate
from admission.apimachinery.errors import NotAcceptable
from admission.apimachinery.tables import Column, duration, partial, spoken, table
from admission.model.quantity import amount, format_amount

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiohttp import web

    from admission.api.http.responses import Document
    from admission.api.registry import Resource

_META = "meta.k8s.io/v1"
_INCLUDED = ("None", "Metadata", "Object")


@dataclass(frozen=True, slots=True)
class Representation:
    """The representation that a client has negotiated for a resource.

    Watches with equal representations share their events: the same event has the same bytes.
    """

    resource: Resource
    form: str = PLAIN
    """Kind of `meta.k8s.io/v1` that objects are converted to; PLAIN: none."""
    include: str = "Metadata"
    """Part of the object in each row of a table: `None`, `Metadata` or `Object`."""

    @classmethod
    def of(cls, request: web.Request, resource: Resource) -> Representation:
        """Negotiate by the header Accept and the parameter `includeObject`. Raises NotAcceptable and BadRequest."""
        form = negotiate(request.headers.get("Accept", ""), (JSON,)).form
        include = request.query.get("includeObject") or "Metadata"
        if include not in _INCLUDED:
            raise BadRequest(f'includeObject: "{include}" is not one of {", ".join(_INCLUDED)}')
        return cls(resource, form, include)

    def one(self, document: Document, *, now: float) -> Document:
        """Represent a single object. Raises NotAcceptable if the client accepts lists only."""
        match self.form:
            case "PartialObjectMetadata":
                return partial(document)
            case "Table":
                return self._table({"resourceVersion": document["metadata"]["resourceVersion"]}, [document], now)
            case "PartialObjectMetadataList":
                raise NotAcceptable(f"{PARTIAL_LIST} was requested, but this is not a list")
            case _:
                return document

    def list(self, metadata: Document, documents: Iterable[Document], *, now: float) -> Document:
        """Represent a list. Raises NotAcceptable if the client accepts single objects only."""
        match self.form:
            case "PartialObjectMetadataList":
                items = [partial(document) for document in documents]
                return {"kind": PARTIAL_LIST, "apiVersion": _META, "metadata": metadata, "items": items}
            case "Table":
                return self._table(metadata, documents, now)
            case "PartialObjectMetadata":
                raise NotAcceptable(f"{PARTIAL} was requested, but this is a list")
            case _:
                kind = f"{self.resource.kind}List"
                return {"kind": kind, "apiVersion": API_VERSION, "metadata": metadata, "items": [*documents]}

    def event(self, document: Document, *, now: float) -> bytes:
        """Serialise the object of a watch event; a table without column definitions, see `with_columns`."""
        if self.form in (PARTIAL, PARTIAL_LIST):
            return orjson.dumps(partial(document))
        if self.form != TABLE:
            return orjson.dumps(document)
        metadata = {"resourceVersion": document["metadata"]["resourceVersion"]}
        return orjson.dumps(self._table(metadata, [document], now, with_columns=False))

    def with_columns(self, line: bytes) -> bytes:
        """Add the column definitions to an event: clients expect them in the first event of a watch only."""
        if self.form != TABLE:
            return line
        definitions = [column.definition() for column in columns_of(self.resource.kind)]
        return line.replace(NO_COLUMNS, b'"columnDefinitions":' + orjson.dumps(definitions), 1)

    def _table(
        self, metadata: Document, documents: Iterable[Document], now: float, *, with_columns: bool = True
    ) -> Document:
        columns = columns_of(self.resource.kind)
        return table(metadata, columns, documents, now=now, include=self.include, with_columns=with_columns)


NO_COLUMNS = b'"columnDefinitions":null'
"""Placeholder in the tables of a watch: only the first event contains the column definitions."""


def columns_of(kind: str) -> tuple[Column, ...]:
    """Return the columns of a kind's tables."""
    return (_NAME, *_COLUMNS[kind], _AGE)


def _age(document: Document, now: float) -> str:
    """Return the time since creation; since queueing if that was earlier by Sluice's clock.

    The creation is stamped by the API server, whose clock may be ahead.
    """
    times = (document["metadata"]["creationTimestamp"], document.get("status", {}).get("queuedAt"))
    return duration(now - min(_seconds(time) for time in times if time))


def _starts(document: Document, now: float) -> object:
    """Return the time until the estimated start: `~17m,<2h10m`, or `<20m` once the median has passed, then `late`."""
    estimate = document["status"].get("estimatedStart")
    if estimate is None:
        return None
    half, most = (_seconds(estimate[name]) - now for name in ("p50", "p90"))
    if most <= 0:
        return "late"
    return f"~{_compact(half)},<{_compact(most)}" if half > 0 else f"<{_compact(most)}"


def _compact(seconds: float) -> str:
    """Return a duration in words as one word: `2h10m`."""
    return spoken(seconds).replace("min", "m").replace(" ", "")


_OBSTACLES = (("QuotaReserved", "False"), ("Evicted", "True"), ("Admitted", "False"), ("PodsReady", "False"))
"""Conditions (type, status) that say why a workload does not run, the most relevant first."""


def _obstacle(document: Document) -> Document:
    """Return the condition that says why an unfinished workload does not run; empty if it runs."""
    found = {(condition["type"], condition["status"]): condition for condition in document["status"]["conditions"]}
    return next((found[key] for key in _OBSTACLES if key in found), {})


_UNSCHEDULED = {"WaitForStart": "PodsUnscheduled"}
"""Kueue's reason of the condition PodsReady -> that of Sluice, which `sluice why` and the log have."""


def _why_pending(document: Document, now: float) -> object:
    del now
    reason = _obstacle(document).get("reason", "")
    return _UNSCHEDULED.get(reason, reason) or None


_OUTCOMES = {"Deleted": "Cancelled"}
"""Reason of the condition Finished -> its word in tables, where it is another: it was deleted before its end."""


def _state(document: Document, now: float) -> object:
    """Return the state; for a finished workload its outcome: Succeeded, Failed, Cancelled, Evicted, Dequeued."""
    del now
    finished = condition_of(document, "Finished")
    if finished is None or not finished["reason"]:
        return document["status"]["state"]
    return _OUTCOMES.get(finished["reason"], finished["reason"])


_EXIT = re.compile(r"exit code (\d+(?: \([^)]*\))?)")


def _exit(document: Document, now: float) -> object:
    """Return how the container ended by which a workload failed, such as `137 (OOMKilled)`; None: it is not known."""
    del now
    found = _EXIT.match((condition_of(document, "Finished") or {}).get("message", ""))
    return found and found[1]


def _elapsed(document: Document, now: float) -> object:
    """Return how long it has been running since its last admission, or ran until it finished; None: not admitted."""
    admitted, finished = condition_of(document, "Admitted"), condition_of(document, "Finished")
    if finished is not None:
        start = document["status"].get("admittedAt")
        return None if start is None else duration(_seconds(finished["lastTransitionTime"]) - _seconds(start))
    if admitted is None or admitted["status"] != "True":
        return None
    return duration(now - _seconds(admitted["lastTransitionTime"]))


def _message(document: Document, now: float) -> object:
    """Return the message of the condition that matters most: the obstacle, else Finished, else Admitted."""
    del now
    current = _obstacle(document) or condition_of(document, "Finished") or condition_of(document, "Admitted") or {}
    return current.get("message")


def _assigned(document: Document) -> list[Document]:
    found: list[Document] = (document["status"].get("admission") or {}).get("podSetAssignments", [])
    return found


def _flavors(document: Document, now: float) -> object:
    del now
    names = (name for assigned in _assigned(document) for name in assigned["flavors"].values())
    return ",".join(dict.fromkeys(names)) or None


def _cluster(document: Document, now: float) -> object:
    del now
    return document["status"].get("clusterName") or document["spec"].get("cluster")


def _pods(document: Document, now: float) -> object:
    """Return the number of pods; `2/3` if 2 of 3 were admitted (partial admission)."""
    del now
    requested = sum(pod_set["count"] for pod_set in document["spec"]["podSets"])
    assigned = _assigned(document)
    admitted = sum(one["count"] for one in assigned) if assigned else requested
    return str(requested) if admitted == requested else f"{admitted}/{requested}"


def _requests(document: Document, now: float) -> object:
    """Return the total requests of its pods, or the quota that it holds: `cpu=4,memory=8Gi`."""
    del now
    totals: dict[str, int] = {}
    held = [(one["resourceUsage"], 1) for one in _assigned(document)]
    for quantities, count in held or _asked(document["spec"]["podSets"]):
        for resource, quantity in quantities.items():
            totals[resource] = totals.get(resource, 0) + amount(resource, quantity) * count
    return ",".join(f"{resource}={format_amount(resource, total)}" for resource, total in totals.items()) or None


def _asked(pod_sets: list[Document]) -> list[tuple[Document, int]]:
    """Return (quantities, how often) of all that pod sets request."""
    shared = [(one["sharedRequests"], 1) for one in pod_sets if "sharedRequests" in one]
    return [*((one["requests"], one["count"]) for one in pod_sets), *shared]


def _waited(document: Document, now: float) -> object:
    """Return the time in the queue, until quota was reserved or until now; None for finished workloads."""
    reserved = condition_of(document, "QuotaReserved")
    if reserved is None:
        return None
    ended = _seconds(reserved["lastTransitionTime"]) if reserved["status"] == "True" else now
    return duration(ended - _seconds(document["status"]["queuedAt"]))


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


_NAME = Column("Name", at("metadata", "name"), "Name of the object, unique in its namespace")
_AGE = Column("Age", _age, "Time since the object was created")
_COLUMNS: dict[str, tuple[Column, ...]] = {
    **{kind: described.columns for kind, described in KINDS.items()},
    "AuditRecord": (
        Column("User", at("user"), "User who wrote the object"),
        Column("Verb", at("verb"), "Verb of the write: create, update, patch, delete or rollback"),
        Column("Kind", at("object", "kind"), "Kind of the object"),
        Column("Namespace", at("object", "namespace"), "Namespace of the object"),
        Column("Object", at("object", "name"), "Name of the object"),
        Column("Reason", at("reason"), "Reason that the user gave"),
    ),
    "Workload": (
        Column("Queue", at("spec", "queueName"), "Name of the LocalQueue"),
        Column("Reserved in", at("status", "admission", "clusterQueue"), "ClusterQueue where it has reserved quota"),
        Column("Admitted", condition("Admitted"), "Whether it may run"),
        Column("Finished", condition("Finished"), "Whether it has finished"),
        Column("Priority", at("spec", "priority"), "Higher priorities come first in a queue", "integer", wide=True),
        Column("User", at("spec", "user"), "User who submitted it", wide=True),
        Column("Waits for", _why_pending, "Reason why it does not run", wide=True),
        Column("State", _state, "pending, admitted or evicting; if it has finished, its outcome", wide=True),
        Column("Exit", _exit, "Exit code of the container that failed last, and its reason", wide=True),
        Column("Flavor", _flavors, "ResourceFlavors of the quota that it holds", wide=True),
        Column("Cluster", _cluster, "Cluster where it runs, or where its object is; empty: local", wide=True),
        Column("Pods", _pods, "Number of pods; ADMITTED/REQUESTED if only some were admitted", wide=True),
        Column("Requests", _requests, "Total requests of its pods, or the quota that it holds", wide=True),
        Column("Waited", _waited, "Time that it waited for quota since it was last queued", wide=True),
        Column("Elapsed", _elapsed, "Time since it was admitted, or for which it ran", wide=True),
        Column(
            "Starts",
            _starts,
            "Estimated time until it starts: median, and the time within which nine of ten start",
            wide=True,
        ),
        Column("Message", _message, "What the reason means, and what to do about it", wide=True),
    ),
}
