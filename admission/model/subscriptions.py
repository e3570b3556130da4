"""What a Subscription asks to be notified of: which workloads, which events, by which receiver, how often."""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from admission.model.base import FieldFaultsError, Model, Name, OptionalName

SubscribedEvent: TypeAlias = Literal["Admitted", "Preempted", "Finished", "QuotaChanged"]

_SHORTEST_WAIT = 60  # seconds
_LONGEST_WAIT = 365 * 24 * 3600


class SubscriptionSpec(Model):
    """What is told, about which workloads, and to whom."""

    receiver: Name
    """Who is notified: a receiver of `notifications.receivers` in the configuration of `sluice serve`."""
    events: Annotated[tuple[SubscribedEvent, ...], Field(max_length=4)] = ()
    """Admitted, Preempted and Finished are told of each workload, QuotaChanged of each ClusterQueue."""
    pending_longer_than_seconds: Annotated[int, Field(strict=True, ge=_SHORTEST_WAIT, le=_LONGEST_WAIT)] | None = None
    """A workload that has waited for so long is told, too, once for each time that it waits; not given: none."""
    scope: Literal["Namespace", "Cluster"] = "Namespace"
    """The workloads of the Subscription's own namespace, or those of all; only who may list those may write Cluster."""
    cluster_queue: OptionalName = ""
    """Only what happens in this ClusterQueue; empty: in all."""
    local_queue: OptionalName = ""
    """Only workloads of this LocalQueue of the namespace; empty: of all."""
    user: Annotated[str, Field(max_length=1024)] = ""
    """Only workloads that this user has submitted; empty: of all."""
    limit_per_hour: Annotated[int, Field(strict=True, ge=1, le=1000)] = 60
    """So many notifications are sent in an hour; what is left out is counted in one more at its end."""

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
