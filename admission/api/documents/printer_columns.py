"""The columns of tables, as `kubectl get` prints them: those of Kueue's kinds, then a few that answer more."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from admission.api.kinds.all_kinds import KINDS
from admission.api.kinds.columns import Column, at, condition, condition_of
from admission.apimachinery.tables import duration, partial
from admission.model.quantity import amount, format_amount

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.api.http.responses import Document

NO_COLUMNS = b'"columnDefinitions":null'
"""In a watch only the first table tells its columns; the others say so."""


def table(kind: str, metadata: Document, objects: Iterable[Document], *, now: float, include: str) -> Document:
    """A Table of objects of a kind. `include` says what of each comes along: None, Metadata or Object."""
    columns = _COLUMNS[kind]
    rows = []
    for obj in objects:
        cells = [obj["metadata"]["name"], *(column.cell(obj, now) for column in columns), _age(obj, now)]
        rows.append({"cells": cells, "object": _included(obj, include)})
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": definitions(kind),
        "rows": rows,
    }


def definitions(kind: str) -> list[Document]:
    """What a Table says about its columns."""
    return [column.definition() for column in (_NAME, *_COLUMNS[kind], _AGE)]


def _age(document: Document, now: float) -> str:
    """Since its creation; where the API server's clock, which tells that, is ahead of this one: since it queues."""
    times = (document["metadata"]["creationTimestamp"], document.get("status", {}).get("queuedAt"))
    return duration(now - min(_seconds(time) for time in times if time))


def _included(obj: Document, include: str) -> Document | None:
    if include == "Object":
        return obj
    return None if include == "None" else partial(obj)


def _starts(document: Document, now: float) -> object:
    """As `5m-20m`, or `<20m` if it should have started in half of the cases."""
    estimate = document["status"].get("estimatedStart")
    if estimate is None:
        return None
    soonest, latest = (_seconds(estimate[name]) - now for name in ("p50", "p90"))
    return f"{duration(soonest)}-{duration(latest)}" if soonest > 0 else f"<{duration(max(latest, 0.0))}"


_OBSTACLES = (("QuotaReserved", "False"), ("Evicted", "True"), ("Admitted", "False"), ("PodsReady", "False"))
"""Conditions (type, status) that say why a workload does not run, the one that counts first."""


def _obstacle(document: Document) -> Document:
    """The condition that says why an unfinished workload does not run; empty if it does."""
    found = {(condition["type"], condition["status"]): condition for condition in document["status"]["conditions"]}
    return next((found[key] for key in _OBSTACLES if key in found), {})


def _why_pending(document: Document, now: float) -> object:
    del now
    return _obstacle(document).get("reason")


def _sentence(document: Document, now: float) -> object:
    """The sentence of the reason; of one that runs or has ended, what its condition says."""
    del now
    said = _obstacle(document) or condition_of(document, "Finished") or condition_of(document, "Admitted") or {}
    return said.get("message")


def _assigned(document: Document) -> list[Document]:
    found: list[Document] = (document["status"].get("admission") or {}).get("podSetAssignments", [])
    return found


def _flavors(document: Document, now: float) -> object:
    del now
    names = (name for assigned in _assigned(document) for name in assigned["flavors"].values())
    return ",".join(dict.fromkeys(names)) or None


def _pods(document: Document, now: float) -> object:
    """How many it asks for; `2/3` if only some of them were admitted."""
    del now
    wanted = sum(pod_set["count"] for pod_set in document["spec"]["podSets"])
    assigned = _assigned(document)
    admitted = sum(one["count"] for one in assigned) if assigned else wanted
    return str(wanted) if admitted == wanted else f"{admitted}/{wanted}"


def _requests(document: Document, now: float) -> object:
    """What all its pods ask for together; once it holds quota, what it holds."""
    del now
    totals: dict[str, int] = {}
    held = [(one["resourceUsage"], 1) for one in _assigned(document)]
    for quantities, count in held or [(one["requests"], one["count"]) for one in document["spec"]["podSets"]]:
        for resource, quantity in quantities.items():
            totals[resource] = totals.get(resource, 0) + amount(resource, quantity) * count
    return ",".join(f"{resource}={format_amount(resource, total)}" for resource, total in totals.items()) or None


def _waited(document: Document, now: float) -> object:
    """Until quota was reserved, or until now; of what has finished it is not known any more."""
    reserved = condition_of(document, "QuotaReserved")
    if reserved is None:
        return None
    ended = _seconds(reserved["lastTransitionTime"]) if reserved["status"] == "True" else now
    return duration(ended - _seconds(document["status"]["queuedAt"]))


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


_NAME = Column("Name", at("metadata", "name"), "Name of the object, unique in its namespace")
_AGE = Column("Age", at("metadata", "creationTimestamp"), "Time since the object was created")
_COLUMNS: dict[str, tuple[Column, ...]] = {
    **{kind: described.columns for kind, described in KINDS.items()},
    "AuditRecord": (
        Column("User", at("user"), "Who wrote"),
        Column("Verb", at("verb"), "How"),
        Column("Kind", at("object", "kind"), "Kind of what was written"),
        Column("Namespace", at("object", "namespace"), "Namespace of what was written"),
        Column("Object", at("object", "name"), "Name of what was written"),
        Column("Reason", at("reason"), "Why, in the words of the user"),
    ),
    "Workload": (
        Column("Queue", at("spec", "queueName"), "Name of the LocalQueue"),
        Column("Reserved in", at("status", "admission", "clusterQueue"), "ClusterQueue where it has reserved quota"),
        Column("Admitted", condition("Admitted"), "Whether it may run"),
        Column("Finished", condition("Finished"), "Whether it has ended"),
        Column("Priority", at("spec", "priority"), "Who comes first within a queue", "integer", wide=True),
        Column("User", at("spec", "user"), "Who submitted it", wide=True),
        Column("Waits for", _why_pending, "The reason for which it does not run", wide=True),
        Column("State", at("status", "state"), "pending, admitted, evicting or finished", wide=True),
        Column("Flavor", _flavors, "ResourceFlavors of the quota that it holds", wide=True),
        Column("Pods", _pods, "How many pods it asks for, and before a slash how many were admitted", wide=True),
        Column("Requests", _requests, "What its pods ask for together, or hold", wide=True),
        Column("Waited", _waited, "How long it waited for quota since it was last queued", wide=True),
        Column("Starts", _starts, "In how long it will start: half of such estimates to nine of ten", wide=True),
        Column("Message", _sentence, "What the reason means, and what helps", wide=True),
    ),
}
