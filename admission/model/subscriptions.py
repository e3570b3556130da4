"""Spec of a Subscription: the workloads and events to notify of, the receiver, and the rate limit."""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from admission.model.base import FieldFaultsError, Model, Name, OptionalName

SubscribedEvent: TypeAlias = Literal["Admitted", "Preempted", "Finished", "QuotaChanged", "BudgetUsed", "Idle"]

_SHORTEST_WAIT = 60  # seconds
_LONGEST_WAIT = 365 * 24 * 3600


class SubscriptionSpec(Model):
    """The events to notify of, of which workloads, and the receiver."""

    receiver: Name
    """Where notifications go: a receiver of `notifications.receivers` in the configuration of `sluice serve`."""
    events: Annotated[tuple[SubscribedEvent, ...], Field(max_length=6)] = ()
    """The events: Admitted, Preempted and Finished concern a workload, and Idle one that has not used what it holds for
    as long as the setting usageMetrics says; QuotaChanged a ClusterQueue, BudgetUsed Budgets of the namespace, or all:
    50, 80 or 100 % were spent or reserved."""
    pending_longer_than_seconds: Annotated[int, Field(strict=True, ge=_SHORTEST_WAIT, le=_LONGEST_WAIT)] | None = None
    """Also notify of workloads that have been pending for this long, once each time they wait; not given: do not."""
    scope: Literal["Namespace", "Cluster"] = "Namespace"
    """Workloads of the Subscription's own namespace, or of all namespaces. Cluster requires the right to list workloads
    in all namespaces."""
    clusters: Annotated[tuple[Name, ...], Field(max_length=64)] = ()
    """Clusters whose workloads are included, beside those of the cluster in which Sluice runs. Requires the right to
    list workloads in each."""
    cluster_queue: OptionalName = ""
    """Only events of this ClusterQueue; empty: of all."""
    local_queue: OptionalName = ""
    """Only workloads of this LocalQueue of the namespace; empty: of all."""
    user: Annotated[str, Field(max_length=1024)] = ""
    """Only workloads that this user has submitted; empty: those of all users."""
    limit_per_hour: Annotated[int, Field(strict=True, ge=1, le=1000)] = 60
    """Most notifications sent per hour; one more at the end of the hour counts those that were not sent."""

    @model_validator(mode="after")
    def _says_what(self) -> Self:
        faults = []
        if not self.events and self.pending_longer_than_seconds is None:
            faults.append(("events", "name at least one event, or give pendingLongerThanSeconds"))
        if self.scope == "Cluster" and self.local_queue:
            faults.append(("localQueue", "is of one namespace: leave it out, or use scope Namespace"))
        if faults:
            raise FieldFaultsError(faults)
        return self
