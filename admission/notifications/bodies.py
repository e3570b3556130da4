"""Notifications as they are sent: CloudEvents 1.0 in structured JSON, or the text that Slack and its like take."""

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
    from admission.store.notifications import QuotaVersion, WorkloadEvent
    from admission.store.records import Document

_PREFIX: Final = "dev.sluice."
WORKLOAD: Final = f"{_PREFIX}workload."
QUOTA_CHANGED: Final = f"{_PREFIX}quota.changed"
LEFT_OUT: Final = f"{_PREFIX}notifications.leftout"
"""Types of CloudEvents; `WORKLOAD` is followed by admitted, preempted, finished or pending."""

_LONGEST_NAME: Final = 300
_LONGEST_MESSAGE: Final = 1000
_MOST_CHANGES: Final = 50
_SLACK: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_SLACK_MARKS: Final = str.maketrans(dict.fromkeys("*_~`", "\u200b"))


def workload_event(source: str, what: str, one: WorkloadEvent, *, at: float) -> Document:
    """The CloudEvent of something that happened `at` that time to a workload."""
    data: Document = {
        "namespace": one.namespace,
        "name": clean(one.name, longest=_LONGEST_NAME),
        "uid": one.uid,
        "kind": one.kind,
        "localQueue": one.local_queue,
        "clusterQueue": one.cluster_queue,
        "user": clean(one.user, longest=_LONGEST_NAME),
        "reason": one.reason,
        "message": clean(one.message, longest=_LONGEST_MESSAGE),
    }
    if one.state is State.PENDING:
        data["queuedAt"] = _time(one.at)
    subject = f"namespaces/{one.namespace}/workloads/{data['name']}"
    return _event(source, f"{WORKLOAD}{what}", f"{what}-{one.uid}-{round(one.at * 1_000_000)}", subject, at, data)


def quota_event(source: str, version: QuotaVersion, changes: list[Document]) -> Document:
    """The CloudEvent of a change of a ClusterQueue's or Cohort's quota."""
    data: Document = {
        "kind": version.kind,
        "name": version.name,
        "user": clean(version.author, longest=_LONGEST_NAME),
        "reason": clean(version.reason, longest=_LONGEST_MESSAGE),
        "changes": changes[:_MOST_CHANGES],
    }
    subject = f"{version.kind.lower()}s/{version.name}"
    return _event(source, QUOTA_CHANGED, f"quota-{version.id}", subject, version.at, data)


def left_out_event(source: str, subscription: Document, numbers: Mapping[str, int], *, hour: float) -> Document:
    """The CloudEvent at the end of an hour in which more has happened than was sent: how much, by type of event.

    `subscription`: its namespace, name and uid; `hour` is the begin of that hour.
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
    """The body of the request, and its content type."""
    if format_ == "Slack":
        return orjson.dumps({"text": slack_text(event)}), "application/json"
    return orjson.dumps(event), "application/cloudevents+json"


def slack_text(event: Document) -> str:
    """A CloudEvent in one or two lines of Slack's mrkdwn; nothing that a user wrote is markup in it."""
    data, type_ = event["data"], event["type"]
    if type_ == LEFT_OUT:
        parts = ", ".join(f"{number} {name.rpartition('.')[2]}" for name, number in sorted(data["leftOut"].items()))
        return (
            f"*{_plain(data['namespace'])}/{_plain(data['name'])}*: more than its limit has happened: {_plain(parts)}"
        )
    if type_ == QUOTA_CHANGED:
        text = f"{_plain(data['kind'])} *{_plain(data['name'])}* was changed by {_plain(data['user'])}"
        lines = [f"{text}: {_plain(data['reason'])}" if data["reason"] else text]
        return "\n".join(lines + [_plain(_change(change)) for change in data["changes"][:5]])
    happened = {"pending": "waits for long", "finished": f"is finished ({data['reason']})"}
    what = type_.removeprefix(WORKLOAD)
    title = f"{_plain(data['kind'])} *{_plain(data['namespace'])}/{_plain(data['name'])}*"
    return f"{title} {_plain(happened.get(what, f'was {what}'))}\n{_plain(data['message'])}".rstrip()


def _change(change: Mapping[str, Any]) -> str:
    sides = (orjson.dumps(change[side]).decode() if side in change else "none" for side in ("before", "after"))
    return f"{change['path']}: {' -> '.join(clean(side, longest=_LONGEST_NAME) for side in sides)}"


def _plain(text: str) -> str:
    return text.translate(_SLACK).translate(_SLACK_MARKS)


def signed(body: bytes, secret: bytes, *, id_: str, at: float) -> dict[str, str]:
    """The headers that prove who sent it and when, as the Standard Webhooks specification has them."""
    timestamp = str(int(at))
    digest = hmac.digest(secret, b".".join((id_.encode(), timestamp.encode(), body)), hashlib.sha256)
    signature = f"v1,{base64.b64encode(digest).decode()}"
    return {"webhook-id": id_, "webhook-timestamp": timestamp, "webhook-signature": signature}
