"""Matching of events to Subscriptions, within their hourly limits."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from admission.apimachinery.patches import differences
from admission.engine.vocabulary import PREEMPTED
from admission.model.queues import ClusterQueue
from admission.notifications.bodies import left_out_event, quota_event, workload_event
from admission.store.notifications import Notification, SubscriptionState, WorkloadScope
from admission.store.records import IDLE, State

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from admission.model.queues import Subscription
    from admission.model.subscriptions import SubscribedEvent
    from admission.store.notifications import QuotaVersion, WorkloadEvent
    from admission.store.records import Document

HOUR: Final = 3600.0

_ADMITTED: Final = "Admitted"
"""Reason of a workload that holds quota and may run; with admission checks that are not Ready the reason differs."""
_QUOTA_FIELDS: Final = ("resourceGroups", "cohortName", "parentName", "stopPolicy", "fairSharing")
"""Fields of a ClusterQueue or Cohort that determine how much it may use."""


def scope_of(subscription: Subscription) -> WorkloadScope:
    """Return the filter for the workloads of a Subscription."""
    spec = subscription.spec
    namespace = subscription.metadata.namespace if spec.scope == "Namespace" else ""
    return WorkloadScope(namespace, spec.cluster_queue, spec.local_queue, spec.user)


def event_type(one: WorkloadEvent) -> SubscribedEvent | None:
    """Return the event of a Subscription that a workload's transition is; None: it is not reported."""
    if one.state is State.FINISHED:
        return "Finished"
    if one.state is State.ADMITTED and one.reason == _ADMITTED:
        return "Admitted"
    if one.state is State.ADMITTED and one.reason == IDLE:
        return "Idle"
    if one.state is State.EVICTING and one.reason == PREEMPTED:
        return "Preempted"
    return None


@dataclass(slots=True)
class NotificationBatch:
    """New notifications of one Subscription, within its hourly limit."""

    subscription: Subscription
    state: SubscriptionState
    """State of the Subscription, updated by each notification."""
    now: float
    """Seconds since the epoch."""
    source: str
    """`source` of the CloudEvents."""
    notifications: list[Notification] = field(default_factory=list)
    """Notifications to put into the outbox."""

    def __post_init__(self) -> None:
        hour = self.now - self.now % HOUR
        if self.state.hour is not None and self.state.hour >= hour:
            return
        if self.state.hour is not None and self.state.left_out:
            self.notifications.append(self._notification(self._left_out_event(self.state.hour)))
        self.state = replace(self.state, hour=hour, in_hour=0, left_out={})

    @property
    def uid(self) -> str:
        """Uid of the Subscription."""
        return self.subscription.metadata.uid

    def add(self, event: Document) -> None:
        """Add a notification, or count it as left out if the limit is reached."""
        if self.state.in_hour < self.subscription.spec.limit_per_hour:
            self.notifications.append(self._notification(event))
            self.state = replace(self.state, in_hour=self.state.in_hour + 1)
        else:
            self.count_left_out(event["type"], 1)

    def count_left_out(self, type_: str, number: int) -> None:
        """Count notifications of a type that are not sent because of the limit."""
        left_out = dict(self.state.left_out)
        left_out[type_] = left_out.get(type_, 0) + number
        self.state = replace(self.state, left_out=left_out)

    def process_event(self, one: WorkloadEvent) -> None:
        """Add a notification if the Subscription includes this event."""
        event = event_type(one)
        if (
            event is not None
            and event in self.subscription.spec.events
            and _is_within(one, scope_of(self.subscription))
        ):
            self.add(workload_event(self.source, event.lower(), one, at=one.at))

    def process_quota_change(self, version: QuotaVersion, own_queues: Collection[str]) -> None:
        """Add a notification if the Subscription includes this change of a ClusterQueue or Cohort.

        `own_queues`: ClusterQueues of the namespace's LocalQueues.
        """
        spec = self.subscription.spec
        if "QuotaChanged" not in spec.events:
            return
        if spec.scope == "Namespace" and (version.kind != ClusterQueue.kind or version.name not in own_queues):
            return
        if spec.cluster_queue and (version.kind != ClusterQueue.kind or version.name != spec.cluster_queue):
            return
        if changes := quota_changes(version):
            self.add(quota_event(self.source, version, changes))

    def _left_out_event(self, hour: float) -> Document:
        metadata = self.subscription.metadata
        named = {"namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid}
        return left_out_event(self.source, named, self.state.left_out, hour=hour)

    def _notification(self, event: Document) -> Notification:
        return Notification(self.uid, event, self.now)


def quota_changes(version: QuotaVersion) -> list[Document]:
    """Return the quota fields that a version has changed; for a new or deleted object all its quota fields."""
    before, after = _quota_fields(version.before), _quota_fields(version.after)
    return [*differences({"spec": before}, {"spec": after})]


def _quota_fields(content: Document | None) -> Document:
    spec: Mapping[str, object] = (content or {}).get("spec") or {}
    return {name: spec[name] for name in _QUOTA_FIELDS if name in spec}


def _is_within(one: WorkloadEvent, scope: WorkloadScope) -> bool:
    return (
        scope.namespace in ("", one.namespace)
        and scope.cluster_queue in ("", one.cluster_queue)
        and scope.local_queue in ("", one.local_queue)
        and scope.user in ("", one.user)
    )
