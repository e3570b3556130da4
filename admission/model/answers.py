"""Answers of the API about workloads and about histories: OpenAPI describes them, and the client reads them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, WithJsonSchema

from admission.model.base import Labels, Model, Quantity

Time: TypeAlias = Annotated[datetime, WithJsonSchema({"type": "string"})]
"""A time in RFC 3339 format, in UTC: `2026-01-02T12:05:30Z`."""


class EstimatedStart(Model):
    """Estimated start of a pending workload, as quantiles."""

    p50: Time
    """Half of the workloads with such an estimate start before this time."""
    p90: Time
    """Nine of ten workloads with such an estimate start before this time."""
    made_at: Time
    """Time of the estimate."""
    share_held: float | None = None
    """Share of past estimates for which the workload had started by p90, from 0 to 1."""


class Reference(Model):
    """Reference to the object that a response is about."""

    name: str = ""
    """Name of the object."""
    namespace: str = ""
    """Namespace of the object."""
    uid: str = ""
    """Uid of the object."""
    creation_timestamp: Time | None = None
    """Time of its creation."""
    labels: Labels = Field(default_factory=dict)
    """Labels of the object."""
    owner_references: tuple[Mapping[str, Any], ...] = ()
    """The Kubernetes object that is queued."""


class PendingWorkload(Model):
    """A pending workload, with its position and reason."""

    metadata: Reference
    """The workload."""
    user: str
    """User who submitted it; empty: unknown."""
    requests: Mapping[str, str]
    """Total requests of its pods."""
    priority: int
    """Its priority."""
    local_queue_name: str
    """Name of its LocalQueue."""
    position_in_cluster_queue: int
    """Position in the ClusterQueue, from 1; 0: it has none."""
    position_in_local_queue: int
    """Position in the LocalQueue, from 1; 0: it has none."""
    queued_at: Time | None = None
    """Time since which it waits, by Sluice's clock; not set if it is not known yet."""
    reason: str
    """Reason why it waits, for programs."""
    message: str
    """Reason why it waits, for people."""
    needs: str | None = None
    """What it needs and what is free of it now: `8 GPU (a100): 0 of 24 free`; not set if it does not lack quota."""
    estimated_start: EstimatedStart | None = None
    """Estimated start; not set while too little data is known."""


class PendingWorkloadsSummary(Model):
    """Pending workloads of a queue, in order."""

    items: tuple[PendingWorkload, ...]
    """The workloads, the first in the queue first."""


class DependencyLink(Model):
    """Another workload that a workload starts after, or that starts after it."""

    object: str
    """Its name, with the kind if the annotation has one."""
    condition: str
    """What the one waits for of the other: that it has Succeeded, or has Ended in any way."""
    name: str | None = None
    """Name of its workload, the last one with the name; not set: there is none."""
    object_kind: str | None = None
    """Kind of its object."""
    state: str | None = None
    """State of its workload, as in `status.state`."""
    outcome: str | None = None
    """Succeeded or Failed; empty: it has not finished."""


class TriedFlavor(Model):
    """A flavor that was tried for a pod set."""

    pod_set: str
    """Name of the pod set."""
    flavor: str
    """Name of the ResourceFlavor."""
    reason: str
    """Reason why it does not fit, for programs."""
    obstacles: tuple[str, ...]
    """Reasons why it does not fit, for people."""


class MissingQuota(Model):
    """Missing quota for one resource in one flavor; an amount that is not set is unlimited."""

    flavor: str
    """Name of the ResourceFlavor."""
    resource: str
    """Name of the resource."""
    asked: Quantity | None = None
    """Amount that all pod sets together request."""
    free: Quantity | None = None
    """Amount that its ClusterQueue could use now, including borrowing."""
    borrowable: Quantity | None = None
    """The part of `free` that would be borrowed."""
    most: Quantity | None = None
    """Amount that its ClusterQueue could use if nothing else was in use."""
    used: Quantity | None = None
    """Amount that its ClusterQueue uses."""
    used_by_others: Quantity | None = None
    """Amount that all other ClusterQueues of its Cohorts use."""
    refused_by: str
    """The queue or Cohort that is the limit, and by which quota: `Cohort research: nominalQuota`."""
    hint: str
    """What would help."""


class WorkloadExplanation(Model):
    """Explanation of a workload's state: its position, why it waits, and what would help."""

    state: str
    """State: Pending, Admitted, ..."""
    reason: str
    """Reason for the state, for programs."""
    message: str
    """Reason for the state, for people, and what helps; the same text as in its conditions and events."""
    sentences: tuple[str, ...]
    """The answer as `sluice why` prints it, the headline first, one paragraph each; lines of lists begin with two
    spaces."""
    details: tuple[str, ...]
    """What `sluice why --verbose` prints below, in the same form."""
    standing: str
    """Position in the queue as text, as `sluice position` prints it."""
    cluster_queue: str
    """ClusterQueue in which it waits or has quota."""
    not_before: Time | None = None
    """End of its requeue backoff, as after PodsReadyTimeout: it is not considered before. None: it has none."""
    position_in_cluster_queue: int | None = None
    """Position in the ClusterQueue, from 1; 0: it has none."""
    position_in_local_queue: int | None = None
    """Position in the LocalQueue, from 1; 0: it has none."""
    waiting_in_cluster_queue: int | None = None
    """Number of workloads with a position in the ClusterQueue."""
    waiting_in_local_queue: int | None = None
    """Number of workloads with a position in the LocalQueue."""
    ahead: int | None = None
    """Total number of workloads ahead of it in the ClusterQueue."""
    ahead_first: tuple[str, ...] = ()
    """The first of those in its own namespace, as NAMESPACE/NAME."""
    used_by: tuple[str, ...] = ()
    """The largest admitted workloads of its own namespace that use what is missing, as NAMESPACE/NAME."""
    used_by_others: int | None = None
    """Number of all other workloads that use what is missing."""
    attempts: tuple[TriedFlavor, ...] = ()
    """Flavors that were tried, and the obstacle in each."""
    lacks: tuple[MissingQuota, ...] = ()
    """Missing quota by flavor and resource."""
    prospects: tuple[Mapping[str, Any], ...] = ()
    """How much of the missing quota preemption could free in the ClusterQueue and in its Cohort, with a hint."""
    remedies: tuple[Mapping[str, str], ...] = ()
    """Changes, each of which would let it start now: what to change, and a hint in words. Those that change least come
    first."""
    waits_for: tuple[DependencyLink, ...] = ()
    """Workloads that it starts after (annotation `sluice.dev/after`)."""
    waited_for_by: tuple[DependencyLink, ...] = ()
    """The oldest pending workloads that start after it."""
    waited_for_by_others: int | None = None
    """Number of all other pending workloads that start after it."""
    estimated_start: EstimatedStart | None = None
    """Estimated start; not set while too little data is known."""
    no_estimate: str | None = None
    """Why there is no estimate, and when there will be."""


class HistoryLine(Model):
    """An event in the history of a workload."""

    at: Time
    """Time of the event."""
    state: str
    """State of the workload from then on."""
    reason: str
    """Reason for the event, for programs."""
    message: str
    """Reason for the event, for people."""


class HeldQuota(Model):
    """Quota that a workload had or has, from the ledger."""

    start: Time = Field(alias="from")
    """Begin of the admission."""
    end: Time | None = Field(default=None, alias="to")
    """End of the admission; not set: the workload still has the quota."""
    end_reason: str | None = None
    """Reason for the end."""
    cluster_queue: str
    """Name of the ClusterQueue."""
    pod_set: str
    """Name of the pod set."""
    count: int
    """Number of pods."""
    flavor: str
    """Name of the ResourceFlavor."""
    resource: str
    """Name of the resource."""
    amount: Quantity
    """Amount of the resource."""


class ReasonTime(Model):
    """Time that a workload waited for one reason."""

    reason: str
    """Reason of the wait; Queued before the first decision."""
    seconds: float
    """Total seconds that it waited for this reason."""


class HistoryFold(Model):
    """Events in which a workload was admitted and evicted again and again."""

    first: int
    """Index of the first of these events in `items`."""
    last: int
    """Index of the last one."""
    rounds: int
    """Number of its admissions, each of which ended with an eviction."""
    preemptors: int
    """Number of different workloads for which it was preempted."""


class WorkloadHistory(Model):
    """History of a workload: events, admissions and waiting times."""

    items: tuple[HistoryLine, ...]
    """Events, the oldest first."""
    folds: tuple[HistoryFold, ...] = ()
    """Events that may be shown as one line each."""
    admissions: tuple[HeldQuota, ...]
    """Quota that it had, from the ledger."""
    waited: tuple[ReasonTime, ...] = ()
    """Waiting time by reason; the times add up to the whole wait."""


class Difference(Model):
    """A field that a version has changed."""

    op: Literal["add", "remove", "replace"]
    """Kind of change."""
    path: str
    """Path of the field, as in `spec.resourceGroups[0].flavors[0].name`."""
    before: Any = None
    """Value before the change."""
    after: Any = None
    """Value after the change."""


class Version(Model):
    """A version of a queue object."""

    revision: str
    """Revision of the version, to give to a rollback."""
    at: Time
    """Time of the write."""
    operation: Literal["create", "replace", "delete"]
    """Operation that wrote it."""
    user: str
    """User who wrote it."""
    reason: str
    """Reason that the user gave."""
    diff: tuple[Difference, ...]
    """Fields that it has changed."""
    object: Mapping[str, Any]
    """The object in this version."""


class HistoryList(Model):
    """Versions of a queue object."""

    items: tuple[Version, ...]
    """The versions, the newest first."""
