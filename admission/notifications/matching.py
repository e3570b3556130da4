"""Which Subscription is told of what, and how much of it in an hour."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from admission.apimachinery.differences import differences
from admission.engine.vocabulary import PREEMPTED
from admission.model.queues import ClusterQueue
from admission.notifications.bodies import left_out_event, quota_event, workload_event
from admission.store.notifications import Notification, Scope, SubscriptionState
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from admission.model.queues import Subscription
    from admission.model.subscriptions import SubscribedEvent
    from admission.store.notifications import QuotaVersion, WorkloadEvent
    from admission.store.records import Document

HOUR: Final = 3600.0

_ADMITTED: Final = "Admitted"
"""The reason of a workload that holds quota and may run; one whose admission checks are not ready has another."""
_QUOTA_FIELDS: Final = ("resourceGroups", "cohortName", "parentName", "stopPolicy", "fairSharing")
"""What of a ClusterQueue or Cohort says how much it may use."""


def scope_of(subscription: Subscription) -> Scope:
    """The workloads that it is about."""
    spec = subscription.spec
    namespace = subscription.metadata.namespace if spec.scope == "Namespace" else ""
    return Scope(namespace, spec.cluster_queue, spec.local_queue, spec.user)


def event_of(one: WorkloadEvent) -> SubscribedEvent | None:
    """What a line of a workload's story is to a Subscription; None: nothing."""
    if one.state is State.FINISHED:
        return "Finished"
    if one.state is State.ADMITTED and one.reason == _ADMITTED:
        return "Admitted"
    if one.state is State.EVICTING and one.reason == PREEMPTED:
        return "Preempted"
    return None


@dataclass(slots=True)
class Making:
    """The notifications of one Subscription that are made now, within its limit."""

    subscription: Subscription
    state: SubscriptionState
    now: float
    """Seconds since the epoch."""
    source: str
    """`source` of the CloudEvents."""
    made: list[Notification] = field(default_factory=list)

    def __post_init__(self) -> None:
        hour = self.now - self.now % HOUR
        if self.state.hour is not None and self.state.hour >= hour:
            return
        if self.state.hour is not None and self.state.left_out:
            self.made.append(self._outgoing(self._digest(self.state.hour)))
        self.state = replace(self.state, hour=hour, in_hour=0, left_out={})

    @property
    def uid(self) -> str:
        """Of the Subscription."""
        return self.subscription.metadata.uid

    def add(self, event: Document) -> None:
        """Send it, or count it as left out."""
        if self.state.in_hour < self.subscription.spec.limit_per_hour:
            self.made.append(self._outgoing(event))
            self.state = replace(self.state, in_hour=self.state.in_hour + 1)
        else:
            self.leave_out(event["type"], 1)

    def leave_out(self, type_: str, number: int) -> None:
        """Count so many that are not sent."""
        left_out = dict(self.state.left_out)
        left_out[type_] = left_out.get(type_, 0) + number
        self.state = replace(self.state, left_out=left_out)

    def take_in(self, one: WorkloadEvent) -> None:
        """Something has happened to a workload."""
        event = event_of(one)
        if (
            event is not None
            and event in self.subscription.spec.events
            and _is_within(one, scope_of(self.subscription))
        ):
            self.add(workload_event(self.source, event.lower(), one, at=one.at))

    def take_in_quota(self, version: QuotaVersion, own_queues: Collection[str]) -> None:
        """A ClusterQueue or Cohort was written; `own_queues` are the ClusterQueues of the namespace."""
        spec = self.subscription.spec
        if "QuotaChanged" not in spec.events:
            return
        if spec.scope == "Namespace" and (version.kind != ClusterQueue.kind or version.name not in own_queues):
            return
        if spec.cluster_queue and (version.kind != ClusterQueue.kind or version.name != spec.cluster_queue):
            return
        if changes := quota_changes(version):
            self.add(quota_event(self.source, version, changes))

    def _digest(self, hour: float) -> Document:
        metadata = self.subscription.metadata
        named = {"namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid}
        return left_out_event(self.source, named, self.state.left_out, hour=hour)

    def _outgoing(self, event: Document) -> Notification:
        return Notification(self.uid, event, self.now)


def quota_changes(version: QuotaVersion) -> list[Document]:
    """The fields of quota that a version has changed; those of a new or deleted object are all of its own."""
    before, after = _quota_fields(version.before), _quota_fields(version.after)
    return [*differences({"spec": before}, {"spec": after})]


def _quota_fields(content: Document | None) -> Document:
    spec: Mapping[str, object] = (content or {}).get("spec") or {}
    return {name: spec[name] for name in _QUOTA_FIELDS if name in spec}


def _is_within(one: WorkloadEvent, scope: Scope) -> bool:
    return (
        scope.namespace in ("", one.namespace)
        and scope.cluster_queue in ("", one.cluster_queue)
        and scope.local_queue in ("", one.local_queue)
        and scope.user in ("", one.user)
    )
