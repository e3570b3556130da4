"""Spec of a Reservation: quota of a ClusterQueue that is kept for some of its workloads for a time. Kueue has none."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from admission.model.base import FieldFaultsError, Model, Name, Namespace, QualifiedName, Quantity
from admission.model.local_times import LocalTime, TimeZone, zone
from admission.model.quantity import amount


class ReservedQuota(Model):
    """The amount of one resource in one flavor that is kept."""

    flavor: Name
    """The ResourceFlavor."""
    resource: QualifiedName
    """The resource, such as nvidia.com/gpu."""
    amount: Quantity
    """How much of it."""


class ReservationHolders(Model):
    """The workloads for which quota is kept: those that match each list that is given."""

    users: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=1024)], ...], Field(max_length=256)] = ()
    """Workloads that one of these users has submitted, as the webhook has recorded it; empty: by anybody."""
    namespaces: Annotated[tuple[Namespace, ...], Field(max_length=256)] = ()
    """Workloads of one of these namespaces; empty: of any."""
    local_queues: Annotated[tuple[Name, ...], Field(max_length=256)] = ()
    """Workloads of a LocalQueue with one of these names; empty: of any."""

    def match(self, user: str, namespace: str, local_queue: str) -> bool:
        """Whether quota is kept for a workload with these properties."""
        return (
            (not self.users or user in self.users)
            and (not self.namespaces or namespace in self.namespaces)
            and (not self.local_queues or local_queue in self.local_queues)
        )


class ReservedTopology(Model):
    """Domains of a topology, such as racks, of which no other workload gets a node."""

    level: QualifiedName
    """The label of nodes that names a level of the flavor's Topology, such as `cloud.example.com/rack`."""
    count: Annotated[int, Field(strict=True, ge=1, le=64)] = 1
    """How many domains of this level."""
    domains: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=1024)], ...], Field(max_length=64)] = ()
    """Which: the values of the levels from the top, with `/` between them, such as `block-1/rack-7`. Not given: Sluice
    chooses those with least in the way, and writes them here."""

    @model_validator(mode="after")
    def _names_as_many_as_it_counts(self) -> Self:
        if self.domains and len(set(self.domains)) != self.count:
            raise FieldFaultsError([("domains", f"has {len(set(self.domains))}, and count is {self.count}")])
        return self


class ReservationSpec(Model):
    """Quota of a ClusterQueue that others do not use from a time to a time."""

    cluster_queue: Name
    """The ClusterQueue whose workloads use it. What it may borrow can be reserved, too."""
    quotas: Annotated[tuple[ReservedQuota, ...], Field(min_length=1, max_length=64)]
    """What is kept."""
    topology: ReservedTopology | None = None
    """Where, if the flavor has a Topology: whole domains of it; not given: anywhere."""
    holders: ReservationHolders = ReservationHolders()
    """The workloads of the ClusterQueue for which it is kept; not given: all of them."""
    start: LocalTime
    """When it begins: a time on the wall clock of `timeZone`."""
    end: LocalTime
    """When it ends. Workloads that run then run on."""
    time_zone: TimeZone = "UTC"
    """The time zone of both, such as Europe/Berlin."""
    at_start: Literal["Wait", "Preempt"] = "Wait"
    """What happens to other workloads that hold what is kept at its start: Wait: they run on, and it is short until
    they end. Preempt: they are evicted, the lowest priority first."""
    release_unused_after_seconds: Annotated[int, Field(strict=True, ge=60, le=10**7)] | None = None
    """It ends early when no workload has used it for so long; not given: never."""
    released_at: str = Field(default="", max_length=64)
    """When it has ended early (RFC 3339). Sluice writes it; it stays until start or end are changed."""

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        faults = []
        if self.ends <= self.begins:
            faults.append(("end", f"is not after start, {self.start}"))
        known: set[tuple[str, str]] = set()
        for position, each in enumerate(self.quotas):
            if (each.flavor, each.resource) in known:
                faults.append((f"quotas[{position}]", f"{each.resource} of {each.flavor} is reserved already"))
            known.add((each.flavor, each.resource))
            if amount(each.resource, each.amount) == 0:
                faults.append((f"quotas[{position}].amount", "must be more than 0"))
        if faults:
            raise FieldFaultsError(faults)
        return self

    @property
    def begins(self) -> float:
        """When it begins, in seconds since the epoch."""
        return _instant(self.start, self.time_zone)

    @property
    def ends(self) -> float:
        """When it ends, in seconds since the epoch."""
        return _instant(self.end, self.time_zone)

    @property
    def amounts(self) -> dict[tuple[str, str], int]:
        """What is kept, as amounts by flavor and resource."""
        return {(each.flavor, each.resource): amount(each.resource, each.amount) for each in self.quotas}


def _instant(local: str, time_zone: str) -> float:
    return datetime.fromisoformat(local).replace(tzinfo=zone(time_zone)).timestamp()
