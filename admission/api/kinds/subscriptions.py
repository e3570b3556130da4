"""API descriptor of Subscriptions; their status counts notifications and has the result of the last delivery."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from admission.api.kinds.columns import Column, at, condition
from admission.api.kinds.descriptor import ObjectKind, Right, Status
from admission.api.kinds.object_schemas import Condition, Impact
from admission.model.answers import Time
from admission.model.base import Model
from admission.model.queues import Subscription
from admission.store.notifications import SubscriptionState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.api.http.responses import Document
    from admission.api.kinds.descriptor import WarningContext
    from admission.store.store import Store


class SubscriptionStatus(Model):
    """Delivery of the notifications of a Subscription."""

    conditions: tuple[Condition, ...]
    """Delivering: whether the last attempt to send a notification has succeeded, and if not, why; Unknown: none yet."""
    waiting_notifications: int
    """Notifications that are not delivered yet."""
    delivered_notifications: int
    """Notifications that were delivered."""
    left_out_notifications: int
    """Notifications above the hourly limit, in the last hour that had any; one more at its end says how many."""
    dropped_notifications: int
    """Notifications that could not be delivered for three days, and were dropped."""
    last_delivered_at: Time | None = None
    """Time of the last delivery."""
    impact: Impact | None = None
    """Only in responses to a dry run: the effect on workloads, which is none."""


async def _inputs(store: Store, subscriptions: Sequence[Subscription]) -> list[tuple[SubscriptionState, int]]:
    """Return the delivery state of each Subscription, and the number of its waiting notifications."""
    states, waiting = await store.notifications.states(), await store.notifications.undelivered()
    uids = (each.metadata.uid for each in subscriptions)
    return [(states.get(uid, SubscriptionState()), waiting.get(uid, 0)) for uid in uids]


def _status(subscription: Subscription, inputs: tuple[SubscriptionState, int]) -> Document:
    state, waiting = inputs
    if state.failed_at is not None:
        holds, reason, message, since = "False", "Failed", state.error, state.failed_at
    elif state.delivered_at is not None:
        holds, reason, message, since = "True", "Delivered", "The last notification was delivered", None
    else:
        holds, reason, message, since = "Unknown", "NothingSent", "There was no notification to send yet", None
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
    """Return the rights to read everything that the notifications contain."""
    spec = subscription.spec
    namespace = subscription.metadata.namespace if spec.scope == "Namespace" else ""
    rights = [Right("list", "workloads", namespace=namespace)]
    if "QuotaChanged" in spec.events:
        rights.append(Right("get", "clusterqueues", "history"))
        if spec.scope == "Cluster" and not spec.cluster_queue:
            rights.append(Right("get", "cohorts", "history"))
    if "BudgetUsed" in spec.events and spec.scope == "Cluster":  # of a namespace its workloads' messages say as much
        rights.append(Right("list", "budgets"))
    return rights


async def _warnings(store: Store, written: Subscription, context: WarningContext) -> list[str]:
    del store
    fault = context.receiver_fault(written.spec.receiver, written.metadata.namespace)
    return [f"spec.receiver: {fault}"] if fault else []


SUBSCRIPTION: Final = ObjectKind(
    Subscription,
    columns=(
        Column("Receiver", at("spec", "receiver"), "Receiver that is notified"),
        Column("Delivering", condition("Delivering"), "Whether the last attempt to send has succeeded"),
        Column("Waiting", at("status", "waitingNotifications"), "Notifications not delivered yet", "integer"),
        Column("Delivered", at("status", "deliveredNotifications"), "Notifications delivered", "integer", wide=True),
        Column(
            "Dropped",
            at("status", "droppedNotifications"),
            "Notifications dropped after three days",
            "integer",
            wide=True,
        ),
    ),
    selectable_fields={"spec.receiver": lambda subscription: subscription.spec.receiver},
    status_schema=SubscriptionStatus,
    status=Status(_inputs, _status),
    warnings=_warnings,
    rights=_rights,
)
