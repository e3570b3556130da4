"""Subscriptions as the API shows them: their status says what became of their notifications."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from admission.api.kinds.columns import Column, at, condition
from admission.api.kinds.descriptor import ObjectKind, Right, Status
from admission.api.kinds.object_schemas import Condition, Impact, Time
from admission.model.base import Model
from admission.model.queues import Subscription
from admission.store.notifications import SubscriptionState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.api.http.responses import Document
    from admission.api.kinds.descriptor import Known
    from admission.store.store import Store


class SubscriptionStatus(Model):
    """What became of the notifications."""

    conditions: tuple[Condition, ...]
    """Delivering: whether the last attempt to send one has succeeded, and if not, why; Unknown: there was none."""
    waiting_notifications: int
    """How many are not delivered yet."""
    delivered_notifications: int
    """How many were delivered."""
    left_out_notifications: int
    """How many were beyond the limit in the last hour that had any; they are counted in one more at its end."""
    dropped_notifications: int
    """How many could not be delivered for three days, and are lost."""
    last_delivered_at: Time | None = None
    """When the last one was delivered."""
    impact: Impact | None = None
    """In the answer to a dry run: what would follow for workloads, which is nothing."""


async def _facts(store: Store, subscriptions: Sequence[Subscription]) -> list[tuple[SubscriptionState, int]]:
    """What became of the notifications of each, and how many wait."""
    states, waiting = await store.notifications.states(), await store.notifications.undelivered()
    uids = (each.metadata.uid for each in subscriptions)
    return [(states.get(uid, SubscriptionState()), waiting.get(uid, 0)) for uid in uids]


def _status(subscription: Subscription, facts: tuple[SubscriptionState, int]) -> Document:
    state, waiting = facts
    if state.failed_at is not None:
        holds, reason, message, since = "False", "Failed", state.error, state.failed_at
    elif state.delivered_at is not None:
        holds, reason, message, since = "True", "Delivered", "The last notification was delivered", None
    else:
        holds, reason, message, since = "Unknown", "NothingSent", "Nothing was to be sent yet", None
    delivering: dict[str, Any] = {"type": "Delivering", "status": holds, "reason": reason, "message": message}
    delivering["observedGeneration"] = subscription.metadata.generation
    if since is not None:
        delivering["lastTransitionTime"] = _time(since)
    status = {
        "conditions": [delivering],
        "waitingNotifications": waiting,
        "deliveredNotifications": state.delivered,
        "leftOutNotifications": sum(state.left_out.values()),
        "droppedNotifications": state.dropped,
    }
    return status if state.delivered_at is None else {**status, "lastDeliveredAt": _time(state.delivered_at)}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _rights(subscription: Subscription) -> list[Right]:
    """Who subscribes may read what he is told."""
    spec = subscription.spec
    namespace = subscription.metadata.namespace if spec.scope == "Namespace" else ""
    rights = [Right("list", "workloads", namespace=namespace)]
    if "QuotaChanged" in spec.events:
        rights.append(Right("get", "clusterqueues", "history"))
        if spec.scope == "Cluster" and not spec.cluster_queue:
            rights.append(Right("get", "cohorts", "history"))
    return rights


async def _warnings(store: Store, written: Subscription, known: Known) -> list[str]:
    del store
    fault = known.receiver_fault(written.spec.receiver, written.metadata.namespace)
    return [f"spec.receiver: {fault}"] if fault else []


SUBSCRIPTION: Final = ObjectKind(
    Subscription,
    columns=(
        Column("Receiver", at("spec", "receiver"), "Who is notified"),
        Column("Delivering", condition("Delivering"), "Whether the last attempt to send has succeeded"),
        Column("Waiting", at("status", "waitingNotifications"), "Notifications not delivered yet", "integer"),
        Column("Delivered", at("status", "deliveredNotifications"), "Notifications delivered", "integer", wide=True),
        Column("Dropped", at("status", "droppedNotifications"), "Notifications lost", "integer", wide=True),
    ),
    selectable={"spec.receiver": lambda subscription: subscription.spec.receiver},
    status_schema=SubscriptionStatus,
    status=Status(_facts, _status),
    warnings=_warnings,
    rights=_rights,
)
