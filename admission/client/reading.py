"""Conversion of the server's JSON documents to the values of `answers` and to queue objects."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from admission.client.answers import (
    Affected,
    Attempt,
    Change,
    Condition,
    Explanation,
    Fold,
    Held,
    Impact,
    Lack,
    Overrun,
    Pending,
    Revision,
    StartEstimate,
    Story,
    Transition,
    UsageReport,
    UsageRow,
    Workload,
)
from admission.client.errors import BadAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from admission.client.transport import Document


T = TypeVar("T")

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


def explanation(document: Document) -> Explanation:
    """Convert a response of `explain`."""
    return Explanation(
        state=document.get("state", ""),
        reason=document.get("reason", ""),
        message=document.get("message", ""),
        cluster_queue=document.get("clusterQueue", ""),
        position_in_cluster_queue=document.get("positionInClusterQueue") or 0,
        position_in_local_queue=document.get("positionInLocalQueue") or 0,
        not_before=_time(document.get("notBefore")),
        ahead=document.get("ahead", 0),
        ahead_first=tuple(document.get("aheadFirst", ())),
        attempts=tuple(_attempt(item) for item in document.get("attempts", ())),
        lacks=tuple(_lack(item) for item in document.get("lacks", ())),
        prospects=tuple(item["hint"] for item in document.get("prospects", ())),
        estimated_start=_estimate(document.get("estimatedStart")),
        remedies=tuple(item["hint"] for item in document.get("remedies", ())),
        sentences=tuple(document.get("sentences", ())),
        standing=document.get("standing", ""),
        details=tuple(document.get("details", ())),
        no_estimate=document.get("noEstimate", ""),
        waiting_in_cluster_queue=document.get("waitingInClusterQueue") or 0,
        waiting_in_local_queue=document.get("waitingInLocalQueue") or 0,
    )


def _estimate(document: Document | None) -> StartEstimate | None:
    if document is None:
        return None
    p50, p90, made = (datetime.fromisoformat(document[name]) for name in ("p50", "p90", "madeAt"))
    return StartEstimate(p50, p90, made, document.get("shareHeld"))


def pending(document: Document) -> list[Pending]:
    """Convert a response of `pendingworkloads`."""
    return [
        Pending(
            name=item["metadata"]["name"],
            namespace=item["metadata"].get("namespace", ""),
            priority=item.get("priority", 0),
            local_queue=item.get("localQueueName") or item.get("localQueue", ""),
            position_in_cluster_queue=item["positionInClusterQueue"],
            position_in_local_queue=item["positionInLocalQueue"],
            created=_time(item["metadata"].get("creationTimestamp")),
            reason=item.get("reason", ""),
            message=item.get("message", ""),
        )
        for item in document["items"]
    ]


def story(document: Document) -> Story:
    """Convert a response of a workload's `history`."""
    return Story(
        tuple(
            Transition(_at(item["at"]), item.get("state", ""), item.get("reason", ""), item.get("message", ""))
            for item in document.get("items", ())
        ),
        tuple(_held(item) for item in document.get("admissions", ())),
        tuple(
            Fold(item["first"], item["last"], item["rounds"], item["preemptors"]) for item in document.get("folds", ())
        ),
    )


def revision(document: Document) -> Revision:
    """Convert an item of a queue object's `history`."""
    return Revision(
        revision=str(document["revision"]),
        at=_at(document["at"]),
        operation=document.get("operation", ""),
        user=document.get("user", ""),
        reason=document.get("reason", ""),
        changes=tuple(
            Change(item.get("path", ""), item.get("before"), item.get("after")) for item in document.get("diff", ())
        ),
        document=document.get("object"),
    )


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


def _attempt(item: Document) -> Attempt:
    return Attempt(
        item.get("podSet", ""), item.get("flavor", ""), item.get("reason", ""), tuple(item.get("obstacles", ()))
    )


def _lack(item: Document) -> Lack:
    def text(key: str) -> str:
        return str(item.get(key, ""))

    return Lack(
        text("flavor"),
        text("resource"),
        text("asked"),
        text("free"),
        text("borrowable"),
        text("most"),
        text("used"),
        text("usedByOthers"),
        text("refusedBy"),
        text("hint"),
    )


def _held(item: Document) -> Held:
    return Held(
        start=_at(item["from"]),
        end=_time(item.get("to")),
        end_reason=item.get("endReason") or "",
        cluster_queue=item.get("clusterQueue", ""),
        pod_set=item.get("podSet", ""),
        flavor=item.get("flavor", ""),
        resource=item.get("resource", ""),
        amount=str(item.get("amount", "")),
        count=item.get("count", 0),
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
