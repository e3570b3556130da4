"""Subresources and reports, described as `admission.api.kinds.object_schemas` describes objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from admission.api.kinds.object_schemas import EstimatedStart, Time
from admission.model.base import Labels, Model, Quantity


class Reference(Model):
    """Which object an answer is about."""

    name: str = ""
    """Its name."""
    namespace: str = ""
    """Its namespace."""
    uid: str = ""
    """Its uid."""
    creation_timestamp: Time = ""
    """When it was created."""
    labels: Labels = Field(default_factory=dict)
    """Its labels."""
    owner_references: tuple[Mapping[str, Any], ...] = ()
    """The Kubernetes object that it is."""


class PendingWorkload(Model):
    """One that waits."""

    metadata: Reference
    """The workload."""
    priority: int
    """Its priority."""
    local_queue_name: str
    """The LocalQueue that it waits in."""
    position_in_cluster_queue: int
    """Its place in the ClusterQueue, from 1; 0: none."""
    position_in_local_queue: int
    """Its place in the LocalQueue, from 1; 0: none."""
    queued_at: Time | None = None
    """Since when it waits, by the clock of Sluice; none if that was not read yet."""
    reason: str
    """Why it waits, for programs."""
    message: str
    """Why it waits, for people."""
    estimated_start: EstimatedStart | None = None
    """When it will probably start; not given while too little is known."""


class PendingWorkloadsSummary(Model):
    """Who waits in a queue, in order."""

    items: tuple[PendingWorkload, ...]
    """The first ones first."""


class WorkloadExplanation(Model):
    """Where a workload stands, and why it waits."""

    state: str
    """Pending, Admitted, ..."""
    reason: str
    """Why, for programs."""
    message: str
    """Why, for people, and what helps: the sentence of its conditions and events."""
    sentences: tuple[str, ...]
    """All that there is to say, a paragraph each, as `sluice why` prints them; lines of lists begin with two spaces."""
    standing: str
    """Where in the line it stands, as `sluice position` prints it."""
    cluster_queue: str
    """Where it waits."""
    not_before: Time | None = None
    """It takes no part in decisions until then."""
    position_in_cluster_queue: int | None = None
    """Its place in the ClusterQueue, from 1; 0: none."""
    position_in_local_queue: int | None = None
    """Its place in the LocalQueue, from 1; 0: none."""
    ahead: int | None = None
    """How many are ahead of it in all."""
    ahead_first: tuple[str, ...] = ()
    """The first of them, as NAMESPACE/NAME."""
    attempts: tuple[Mapping[str, Any], ...] = ()
    """Which flavors were tried, and what was in the way of each."""
    lacks: tuple[Mapping[str, Any], ...] = ()
    """What is missing where: asked, free, borrowable, the most there could be, who refuses, what would help."""
    prospects: tuple[Mapping[str, Any], ...] = ()
    """Where what is missing could come from."""
    remedies: tuple[Mapping[str, str], ...] = ()
    """Changes with each of which it could start now: what is changed, and a hint in words."""
    estimated_start: EstimatedStart | None = None
    """When it will probably start; not given while too little is known."""


class HistoryLine(Model):
    """Something that happened to a workload."""

    at: Time
    """When."""
    state: str
    """What it was from then on."""
    reason: str
    """Why, for programs."""
    message: str
    """Why, for people."""


class HeldQuota(Model):
    """Quota that a workload held."""

    from_: Time = Field(alias="from")
    """Since when."""
    to: Time | None = None
    """Until when; not given: it holds it."""
    end_reason: str | None = None
    """Why it ended."""
    cluster_queue: str
    """Of which ClusterQueue."""
    pod_set: str
    """For which pod set."""
    count: int
    """For how many pods."""
    flavor: str
    """Of which ResourceFlavor."""
    resource: str
    """Of which resource."""
    amount: Quantity
    """How much."""


class ReasonTime(Model):
    """How long a workload waited for one reason."""

    reason: str
    """Why it waited; Queued before the first decision."""
    seconds: float
    """How long, all times together."""


class WorkloadHistory(Model):
    """The story of a workload."""

    items: tuple[HistoryLine, ...]
    """What happened, the oldest first."""
    admissions: tuple[HeldQuota, ...]
    """What it held."""
    waited: tuple[ReasonTime, ...] = ()
    """How long it waited for what; the times add up to the whole wait."""


class Difference(Model):
    """A field that a version has changed."""

    op: Literal["add", "remove", "replace"]
    """How."""
    path: str
    """Which field, as in `spec.resourceGroups[0].flavors[0].name`."""
    before: Any = None
    """Its value before."""
    after: Any = None
    """Its value after."""


class Version(Model):
    """A version of a queue object."""

    revision: str
    """Names it, for a rollback."""
    at: Time
    """When it was written."""
    operation: Literal["create", "replace", "delete"]
    """How it came about."""
    user: str
    """Who wrote it."""
    reason: str
    """Why, in the words of the user."""
    diff: tuple[Difference, ...]
    """What it has changed."""
    object: Mapping[str, Any]
    """The object then."""


class HistoryList(Model):
    """The versions of a queue object."""

    items: tuple[Version, ...]
    """The newest first."""


class Rollback(Model):
    """Which version an object shall have again."""

    revision: str
    """Of the version, as its history tells it."""


class Usage(Model):
    """What was used by one of those that the report is divided by, in resource-seconds (of cpu: core-seconds)."""

    from_: Time | None = Field(default=None, alias="from")
    """The beginning of the part of the time, if an interval divides it into parts."""
    period: str | None = None
    """The day or the month (UTC), as 2026-11-22 or 2026-11."""
    namespace: str | None = None
    """The namespace, also where it is divided by queue."""
    queue: str | None = None
    """The LocalQueue."""
    cluster_queue: str | None = None
    """The ClusterQueue."""
    user: str | None = None
    """Who submitted the workloads."""
    flavor: str | None = None
    """The ResourceFlavor."""
    priority: int | None = None
    """The priority of the workloads."""
    kind: str | None = None
    """The kind of the workloads, such as Job, also where it is divided by workload."""
    workload: str | None = None
    """The workload: the name of its Kubernetes object."""
    others: int | None = None
    """So many that the report leaves out are added up here: all but the largest (`top`)."""
    resource: str
    """The resource."""
    amount_seconds: float
    """All of it."""
    nominal_seconds: float
    """The part within nominal quota."""
    borrowed_seconds: float
    """The part beyond it."""


class UsageReport(Model):
    """Who used how much."""

    from_: Time = Field(alias="from")
    """The beginning of the time that it is about ..."""
    to: Time
    """... and its end."""
    by: tuple[str, ...]
    """What it is divided by."""
    period: str | None = None
    """day or month, where it is divided by time."""
    interval_seconds: int | None = None
    """The length of the parts that the time is divided into, if it is."""
    items: tuple[Usage, ...]
    """One for each that used something."""


class PendingGroup(Model):
    """The pending workloads of one LocalQueue that wait for the same reason; or, divided by user, those of one user."""

    cluster_queue: str | None = None
    """Where the LocalQueue leads; empty if there is no such LocalQueue."""
    namespace: str | None = None
    """Of the LocalQueue."""
    queue: str | None = None
    """The LocalQueue."""
    reason: str | None = None
    """Why they wait; empty while they have not been evaluated."""
    user: str | None = None
    """Who has submitted them, where that divides the report; empty if it is not known."""
    count: int
    """How many they are."""
    oldest: Time
    """Since when the first of them waits."""


class PendingReport(Model):
    """How many workloads wait in which queue for which reason, or of whom."""

    items: tuple[PendingGroup, ...]
    """Those that wait for longest first."""


class PreemptedWorkload(Model):
    """A workload that was preempted."""

    namespace: str
    """Its namespace."""
    name: str
    """Its name."""


class PreemptionInVain(Model):
    """A workload that waits, though others were preempted for it five minutes ago or more."""

    namespace: str
    """Of the workload that waits."""
    name: str
    """Its name."""
    cluster_queue: str
    """Where it waits."""
    victims: tuple[PreemptedWorkload, ...]
    """Those that were preempted for it since it ran last, and that have not ended."""
    preempted_at: Time
    """When the last of them was."""


class AuditProblem(Model):
    """What differs between database, cluster and the leader's memory."""

    problem: str
    """Which problem."""
    count: int
    """How many differences of this kind there are."""


class AuditSummary(Model):
    """What the leader's last audit has found."""

    at: Time
    """When it looked."""
    differences: tuple[AuditProblem, ...]
    """None: database, cluster and memory agree."""


class AttentionReport(Model):
    """What an admin should look into, beside what waits."""

    preemptions_in_vain: tuple[PreemptionInVain, ...]
    """The latest first, of one day."""
    last_audit: AuditSummary | None = None
    """None: the leader has made no audit yet."""


class FlavorNodes(Model):
    """The nodes of one ResourceFlavor."""

    flavor: str
    """The ResourceFlavor."""
    nodes: int
    """How many schedulable nodes have its labels."""
    allocatable: Mapping[str, str]
    """What they can give to pods together, by resource."""


class NodeReport(Model):
    """What the nodes of the cluster have, for each ResourceFlavor."""

    items: tuple[FlavorNodes, ...]
    """One for each ResourceFlavor."""


class Written(Model):
    """The object of a write."""

    kind: str
    """Its kind."""
    namespace: str
    """Its namespace, if it has one."""
    name: str
    """Its name."""


class AuditRecord(Model):
    """One write through the API."""

    at: Time
    """When."""
    user: str
    """Who."""
    groups: tuple[str, ...]
    """The groups of the user."""
    source: str
    """The address that the request came from."""
    verb: str
    """create, update, patch, delete or rollback."""
    object: Written
    """What was written."""
    reason: str
    """Why, in the words of the user."""
    before: Mapping[str, Any] | None
    """The object before; null: it was not there."""
    after: Mapping[str, Any] | None
    """The object after; null: it is not there any more."""


class Audit(Model):
    """What differs between database, cluster and the memory of the leader."""

    items: tuple[Mapping[str, Any], ...]
    """All differences: what is found, what should be, and what a repair does about it."""
