"""Request bodies of notifications: CloudEvents 1.0 in structured JSON mode, or text for Slack-compatible webhooks."""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import orjson

from admission.model.text import clean
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.notifications.receivers import Format
    from admission.store.budget_sums import BudgetAlert
    from admission.store.notifications import QuotaVersion, WorkloadEvent
    from admission.store.records import Document

_PREFIX: Final = "dev.sluice."
WORKLOAD: Final = f"{_PREFIX}workload."
QUOTA_CHANGED: Final = f"{_PREFIX}quota.changed"
BUDGET_USED: Final = f"{_PREFIX}budget.used"
LEFT_OUT: Final = f"{_PREFIX}notifications.leftout"
"""Types of CloudEvents; `WORKLOAD` is followed by admitted, preempted, finished, pending or idle."""

_MAX_NAME: Final = 300
_MAX_MESSAGE: Final = 1000
_MAX_CHANGES: Final = 50
_SLACK: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_SLACK_MARKS: Final = str.maketrans(dict.fromkeys("*_~`", "\u200b"))


def workload_event(source: str, event: str, one: WorkloadEvent, *, at: float) -> Document:
    """Return the CloudEvent for an event of a workload. `event`: last part of its type. `at`: Unix time (s)."""
    data: Document = {
        "namespace": one.namespace,
        "name": clean(one.name, longest=_MAX_NAME),
        "uid": one.uid,
        "cluster": one.cluster,
        "kind": one.kind,
        "localQueue": one.local_queue,
        "clusterQueue": one.cluster_queue,
        "user": clean(one.user, longest=_MAX_NAME),
        "reason": one.reason,
        "message": clean(one.message, longest=_MAX_MESSAGE),
    }
    if one.state is State.PENDING:
        data["queuedAt"] = _time(one.at)
    subject = f"namespaces/{one.namespace}/workloads/{data['name']}"
    return _event(source, f"{WORKLOAD}{event}", f"{event}-{one.uid}-{round(one.at * 1_000_000)}", subject, at, data)


def quota_event(source: str, version: QuotaVersion, changes: list[Document]) -> Document:
    """Return the CloudEvent for a change of a ClusterQueue's or Cohort's quota."""
    data: Document = {
        "kind": version.kind,
        "name": version.name,
        "user": clean(version.author, longest=_MAX_NAME),
        "reason": clean(version.reason, longest=_MAX_MESSAGE),
        "changes": changes[:_MAX_CHANGES],
    }
    subject = f"{version.kind.lower()}s/{version.name}"
    return _event(source, QUOTA_CHANGED, f"quota-{version.id}", subject, version.at, data)


def budget_event(source: str, alert: BudgetAlert) -> Document:
    """Return the CloudEvent for a part of a Budget's hours that was spent or reserved."""
    data: Document = {
        "budget": alert.budget,
        "resource": alert.resource,
        "percent": alert.level,
        "periodStart": alert.period,
        "message": clean(alert.message, longest=_MAX_MESSAGE),
    }
    id_ = f"budget-{alert.budget}-{alert.resource}-{alert.period}-{alert.level}"
    return _event(source, BUDGET_USED, id_, f"budgets/{alert.budget}", alert.at, data)


def left_out_event(source: str, subscription: Document, numbers: Mapping[str, int], *, hour: float) -> Document:
    """Return the CloudEvent with the numbers of events that were left out in an hour because of the limit.

    `subscription`: its namespace, name and uid. `numbers`: by type of event. `hour`: start of the hour (Unix time, s).
    """
    data = {**subscription, "hour": _time(hour), "leftOut": dict(numbers)}
    subject = f"namespaces/{subscription['namespace']}/subscriptions/{subscription['name']}"
    return _event(source, LEFT_OUT, f"leftout-{subscription['uid']}-{int(hour)}", subject, hour + 3600.0, data)


def _event(source: str, type_: str, id_: str, subject: str, at: float, data: Document) -> Document:
    return {
        "specversion": "1.0",
        "id": id_,
        "source": source,
        "type": type_,
        "subject": subject,
        "time": _time(at),
        "datacontenttype": "application/json",
        "data": data,
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def encoded(event: Document, format_: Format) -> tuple[bytes, str]:
    """Return the request body for an event, and its content type."""
    if format_ == "Slack":
        return orjson.dumps({"text": slack_text(event)}), "application/json"
    return orjson.dumps(event), "application/cloudevents+json"


def slack_text(event: Document) -> str:
    """Return a CloudEvent as one or two lines of Slack's mrkdwn, in which markup in users' texts is escaped."""
    data, type_ = event["data"], event["type"]
    if type_ == LEFT_OUT:
        parts = ", ".join(f"{number} {name.rpartition('.')[2]}" for name, number in sorted(data["leftOut"].items()))
        return f"*{_plain(data['namespace'])}/{_plain(data['name'])}*: events beyond the hourly limit: {_plain(parts)}"
    if type_ == QUOTA_CHANGED:
        text = f"{_plain(data['kind'])} *{_plain(data['name'])}* was changed by {_plain(data['user'])}"
        lines = [f"{text}: {_plain(data['reason'])}" if data["reason"] else text]
        return "\n".join(lines + [_plain(_change(change)) for change in data["changes"][:5]])
    if type_ == BUDGET_USED:
        return _plain(data["message"])
    texts = {"pending": "has been pending for a long time", "finished": f"is finished ({data['reason']})",
             "idle": "does not use what it holds"}  # fmt: skip
    event_name = type_.removeprefix(WORKLOAD)
    title = f"{_plain(data['kind'])} *{_plain(data['namespace'])}/{_plain(data['name'])}*"
    return f"{title} {_plain(texts.get(event_name, f'was {event_name}'))}\n{_plain(data['message'])}".rstrip()


def _change(change: Mapping[str, Any]) -> str:
    sides = (orjson.dumps(change[side]).decode() if side in change else "none" for side in ("before", "after"))
    return f"{change['path']}: {' -> '.join(clean(side, longest=_MAX_NAME) for side in sides)}"


def _plain(text: str) -> str:
    """Escape Slack's control characters, and break its formatting characters by a zero-width space."""
    return text.translate(_SLACK).translate(_SLACK_MARKS)


def signed(body: bytes, secret: bytes, *, id_: str, at: float) -> dict[str, str]:
    """Return the signature headers of the Standard Webhooks specification for a request at `at` (Unix time, s)."""
    timestamp = str(int(at))
    digest = hmac.digest(secret, b".".join((id_.encode(), timestamp.encode(), body)), hashlib.sha256)
    signature = f"v1,{base64.b64encode(digest).decode()}"
    return {"webhook-id": id_, "webhook-timestamp": timestamp, "webhook-signature": signature}
