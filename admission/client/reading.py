"""Conversion of the server's JSON documents to the values of `answers` and to queue objects."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from admission.client.answers import (
    Affected,
    Condition,
    Impact,
    Overrun,
    UsageReport,
    UsageRow,
    Workload,
)
from admission.client.errors import BadAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from admission.client.transport import Document
    from admission.model.base import Model


T = TypeVar("T")
M = TypeVar("M", bound="Model")

_NOT_KEYS = (
    "resource", "amountSeconds", "nominalSeconds", "borrowedSeconds", "quotaSeconds", "idleSeconds", "from", "to",
    "partial", "labels",
)  # fmt: skip
"""Fields of an item of a usage report that do not name its group; labels have names of their own in it."""


def read(reader: Callable[[Document], T], document: Document) -> T:
    """Convert a document by `reader`. Raises BadAnswer if the document does not have the expected form."""
    try:
        return reader(document)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise BadAnswer(f"the server's answer is not as expected ({what}); is it of another version?") from error


def answer(model: type[M], document: Document) -> M:
    """Parse an answer that is one of `admission.model.answers`; fields that this version does not know are left out."""
    return read(lambda found: model.model_validate(found, extra="ignore"), document)


def workload(document: Document) -> Workload:
    """Convert a workload."""
    metadata, spec, status = document["metadata"], document.get("spec", {}), document.get("status", {})
    kind, name = submitted(document)
    return Workload(
        name=metadata["name"],
        namespace=metadata.get("namespace", ""),
        uid=metadata.get("uid", ""),
        object_kind=kind,
        object_name=name,
        queue=spec.get("queueName", ""),
        cluster_queue=status.get("clusterQueue") or status.get("admission", {}).get("clusterQueue", ""),
        priority=spec.get("priority", 0),
        user=spec.get("user") or metadata.get("annotations", {}).get("sluice.dev/submitted-by", ""),
        created=_time(metadata.get("creationTimestamp")),
        conditions={item["type"]: _condition(item) for item in status.get("conditions", ())},
        document=document,
    )


def submitted(document: Document) -> tuple[str, str]:
    """Return kind and name of a workload's Kubernetes object."""
    owners: Sequence[Document] = document["metadata"].get("ownerReferences", ())
    owner = document.get("spec", {}).get("object") or next(iter(owners), {})
    return owner.get("kind", ""), owner.get("name", "")


def impact(document: Document) -> Impact | None:
    """Return the impact in the response to a dry run; None if there is none."""
    # `status` of a Status (the response to DELETE) is a string: its impact is in the details.
    status = document.get("details" if document.get("kind") == "Status" else "status") or {}
    found = status.get("impact")
    if found is None:
        return None
    return Impact(
        admitted=_affected(found.get("admitted", ())),
        evicted=_affected(found.get("evicted", ())),
        impossible=_affected(found.get("impossible", ())),
        over_quota=tuple(_overrun(item) for item in found.get("overQuota", ())),
    )


def user_name(document: Document) -> str:
    """Return the user name in the Kubernetes API's response to a SelfSubjectReview."""
    return str(document["status"]["userInfo"]["username"])


def usage(document: Document) -> UsageReport:
    """Convert a response of `reports/usage`."""
    rows = tuple(
        UsageRow(
            keys={key: str(value) for key, value in item.items() if key not in _NOT_KEYS}
            | {f"label:{key}": value for key, value in item.get("labels", {}).items()},
            resource=item["resource"],
            amount_seconds=float(item["amountSeconds"]),
            nominal_seconds=float(item["nominalSeconds"]),
            borrowed_seconds=float(item["borrowedSeconds"]),
            partial=item.get("partial", False),
            quota_seconds=item.get("quotaSeconds"),
            idle_seconds=item.get("idleSeconds"),
        )
        for item in document["items"]
    )
    start, end = _at(document["from"]), _at(document["to"])
    return UsageReport(start, end, tuple(document["by"]), rows, partial=document.get("partial", False))


def _condition(item: Document) -> Condition:
    return Condition(
        item["type"],
        item.get("status") == "True",
        item.get("reason", ""),
        item.get("message", ""),
        _time(item.get("lastTransitionTime")),
    )


def _affected(items: Iterable[Document]) -> tuple[Affected, ...]:
    return tuple(
        Affected(item["name"], item.get("namespace", ""), item.get("reason") or item.get("message", ""))
        for item in items
    )


def _overrun(item: Document) -> Overrun:
    kind, name = ("Cohort", item["cohort"]) if "cohort" in item else ("ClusterQueue", item.get("clusterQueue", ""))
    return Overrun(kind, name, item.get("flavor", ""), item.get("resource", ""), str(item.get("by", "")))


def _at(value: Any) -> datetime:
    found = _time(value)
    if found is None:
        raise BadAnswer("the server left out a time that was expected")
    return found


def _time(value: Any) -> datetime | None:
    return datetime.fromisoformat(value) if value else None
