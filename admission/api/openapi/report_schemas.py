"""Schemas of subresources and reports for OpenAPI; see `admission.api.kinds.object_schemas` for those of objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from admission.api.kinds.object_schemas import ClusterCapacity, Impact
from admission.model.answers import Time
from admission.model.base import Model, Quantity


class AppliedQuota(Model):
    """A quota that an entry of a calendar gives now."""

    flavor: str
    """ResourceFlavor."""
    resource: str
    """Resource."""
    quota: Quantity
    """The nominal quota that applies."""
    entry: str
    """Name of the entry."""
    until: Time
    """When this occurrence of the entry ends."""


class ChangedQuota(Model):
    """A quota before and after a change."""

    flavor: str
    """ResourceFlavor."""
    resource: str
    """Resource."""
    from_: Quantity = Field(alias="from")
    """Nominal quota before the change."""
    to: Quantity
    """Nominal quota after the change."""
    entry: str
    """Name of the entry that gives it; empty: it is as usual again."""


class CalendarChange(Model):
    """A change of quotas by a calendar."""

    at: Time
    """When it happens."""
    quotas: tuple[ChangedQuota, ...]
    """The quotas that change."""


class CalendarPreview(Model):
    """Coming changes of quota by the calendar of a ClusterQueue or Cohort."""

    time_zone: str
    """Time zone of the calendar."""
    applied: tuple[AppliedQuota, ...] = ()
    """Quotas that are not as usual now."""
    changes: tuple[CalendarChange, ...] = ()
    """The next changes, at most `limit` of them (10 by default), within a year."""
    impact: Impact | None = None
    """What the first change would do, if it found the workloads of now that have not reached their time limits then;
    with evictions by `overQuota` after it. Not set: there is no change."""


class ContainerState(Model):
    """State of a container of a pod."""

    name: str
    """Name of the container."""
    state: str
    """One of waiting, running and terminated."""
    reason: str
    """Reason of the state, such as Completed."""
    message: str
    """More about the reason."""
    restarts: int
    """How often it was restarted."""
    exit_code: int | None = None
    """Exit code of one that has terminated."""


class WorkloadPod(Model):
    """A pod of a workload."""

    name: str
    """Name of the pod."""
    uid: str
    """Uid of the pod."""
    phase: str
    """Phase, such as Running."""
    cluster: str
    """Cluster in which it is."""
    node: str
    """Node that it is bound to."""
    reason: str
    """Reason of the phase."""
    message: str
    """More about the reason."""
    start_time: str | None
    """When the node accepted it."""
    is_ending: bool
    """Whether it is being deleted."""
    containers: tuple[ContainerState, ...]
    """Its containers, in the order of its spec."""
    other_containers: tuple[str, ...]
    """Names of its init containers and ephemeral containers."""


class WorkloadPods(Model):
    """Pods of a workload, in the cluster in which they run."""

    items: tuple[WorkloadPod, ...]
    """The pods."""


class Rollback(Model):
    """Request to restore an earlier version of an object."""

    revision: str
    """Revision of the version to restore, from the object's history."""


class CancelledObject(Model):
    """An object that a cancellation deletes."""

    api_version: str
    """API group and version of its kind."""
    kind: str
    """Its kind."""
    namespace: str
    """Its namespace."""
    name: str
    """Its name."""
    uid: str
    """Its uid; another object of the name is not deleted."""


class Cancellation(Model):
    """Request to cancel a workload (`uid`), or the response (`objects`)."""

    uid: str | None = None
    """Uid of the workload that is meant; if another one has its name by now, nothing is deleted."""
    objects: tuple[CancelledObject, ...] | None = None
    """What was deleted; with `dryRun`, what would be."""


class Usage(Model):
    """Usage of one group of the report, in resource-seconds (for cpu: core-seconds)."""

    from_: Time | None = Field(default=None, alias="from")
    """Begin of the interval; or of the figures within the period. Only if the report is divided into such."""
    to: Time | None = None
    """End of the figures within the period."""
    partial: bool | None = None
    """Whether the figures are those of a part of the period only."""
    period: str | None = None
    """Day or month of the report's time zone, as 2026-11-22 or 2026-11, if the report is divided by period."""
    namespace: str | None = None
    """Namespace; also set if the report is grouped by queue."""
    queue: str | None = None
    """Name of the LocalQueue."""
    cluster_queue: str | None = None
    """Name of the ClusterQueue."""
    user: str | None = None
    """User who submitted the workloads."""
    flavor: str | None = None
    """Name of the ResourceFlavor."""
    priority: int | None = None
    """Priority of the workloads."""
    kind: str | None = None
    """Kind of the workloads, such as Job; also set if the report is grouped by workload."""
    workload: str | None = None
    """Name of the workload's Kubernetes object."""
    labels: dict[str, str] | None = None
    """Labels of the queues that the report is grouped by; the value is empty for those without."""
    others: int | None = None
    """Number of groups that are not in the `top` of the report, and summed up in this item."""
    resource: str
    """Name of the resource."""
    amount_seconds: float
    """Total usage."""
    nominal_seconds: float
    """The part within nominal quota."""
    borrowed_seconds: float
    """The part beyond nominal quota."""
    quota_seconds: float | None = None
    """With `quota`: nominal quota of the group's ClusterQueues over the time, as it was then."""
    idle_seconds: float | None = None
    """With `quota`: the part of it that no workload of these ClusterQueues used; it may have been lent."""
    measured_seconds: float | None = None
    """With `measured`: the part of the amount of which it is known how much of it was used."""
    used_seconds: float | None = None
    """With `measured`: the part of that which was used; the rest was idle."""
    idle_cost: str | None = None
    """With `measured`: what the rest cost by the PriceBook; null: it has no price."""


class UsageTotal(Model):
    """Usage of one resource by all groups of the report, and their quota, in which no ClusterQueue counts twice."""

    resource: str
    """Name of the resource."""
    amount_seconds: float
    """Total usage."""
    nominal_seconds: float
    """The part within nominal quota."""
    borrowed_seconds: float
    """The part beyond nominal quota."""
    quota_seconds: float
    """Nominal quota of the ClusterQueues."""
    idle_seconds: float
    """The part of it that no workload of these ClusterQueues used."""


class QuotaStep(Model):
    """Nominal quota from a time on."""

    from_: Time = Field(alias="from")
    """Since when."""
    amount: str
    """The quota."""


class QuotaSteps(Model):
    """Nominal quota of one resource over the time of a report."""

    resource: str
    """Name of the resource."""
    steps: tuple[QuotaStep, ...]
    """In order of time; before the first there was none."""


class QuotaChange(Model):
    """Change of one nominal quota."""

    flavor: str
    """Name of the ResourceFlavor."""
    resource: str
    """Name of the resource."""
    from_: str = Field(alias="from")
    """The quota before."""
    to: str
    """The quota since then."""


class QueueEvent(Model):
    """Change of a queue object, or an outage, that explains usage."""

    time: Time
    """When it was made."""
    until: Time | None = None
    """Of an outage: its end."""
    kind: str
    """ClusterQueue, Cohort, LocalQueue or Outage."""
    namespace: str | None = None
    """Namespace of the LocalQueue."""
    name: str
    """Name of the object; empty for an outage."""
    type: str
    """Created, Deleted, QuotaChanged, Stopped, Resumed or Outage, in which nothing was decided."""
    message: str | None = None
    """Of an outage: its cause."""
    changes: tuple[QuotaChange, ...] | None = None
    """Of QuotaChanged: what."""


class Unpriced(Model):
    """A resource of a flavor that has no price."""

    flavor: str
    """The ResourceFlavor."""
    resource: str
    """The resource."""


class _TimeReport(Model):
    """Common part of reports about a time."""

    from_: Time = Field(alias="from")
    """Begin of the reported time."""
    to: Time
    """End of the reported time."""
    timezone: str
    """Time zone of dates, months, quarters and periods."""
    calendar_period: str | None = None
    """The month or quarter that was asked for, as 2026-11 or 2026-Q4."""
    partial: bool | None = None
    """Whether the figures are those of a part of this month or quarter only, such as one that is not over."""


class UsageReport(_TimeReport):
    """Report of usage, by group."""

    by: tuple[str, ...]
    """Fields by which the usage is grouped."""
    period: str | None = None
    """day or month, if the report is divided by period."""
    interval_seconds: int | None = None
    """Length of the intervals, if the report is divided into intervals."""
    measured: bool | None = None
    """Whether anything was measured in this time, so that a report with `measured` says what was idle."""
    book: str | None = None
    """With `measured`: the PriceBook by which idle hours are priced, if there is one."""
    currency: str | None = None
    """With `measured`: its currency."""
    books: tuple[str, ...] | None = None
    """With `measured`: the PriceBooks of which one has to be named, as none is called `default`: nothing is priced."""
    unpriced: tuple[Unpriced, ...] | None = None
    """With `measured`: what was idle and has no price in it."""
    items: tuple[Usage, ...]
    """One item for each group with usage (or quota, if asked for), resource and interval or period."""
    totals: tuple[UsageTotal, ...] | None = None
    """With `quota`: the sums by resource."""
    quotas: tuple[QuotaSteps, ...] | None = None
    """With `quota` and `interval`: nominal quota of the queues that the filters name, or of all."""
    events: tuple[QueueEvent, ...] | None = None
    """With `quota` and `interval`: what was changed in these queues, in order of time."""
    capacity: dict[str, str] | None = None
    """With `quota`, in the report of all namespaces: what the nodes of all (or the given) flavors can allocate now."""


class PendingGroup(Model):
    """Pending workloads of one LocalQueue with the same reason; or, by user, those of one user."""

    cluster_queue: str | None = None
    """ClusterQueue of the LocalQueue; empty if there is no such LocalQueue."""
    namespace: str | None = None
    """Namespace of the LocalQueue."""
    queue: str | None = None
    """Name of the LocalQueue."""
    reason: str | None = None
    """Reason why they wait; empty while they have not been evaluated."""
    user: str | None = None
    """User who submitted them, if the report is by user; empty if unknown."""
    count: int
    """Number of workloads."""
    oldest: Time
    """Time since which the first of them waits."""


class PendingReport(Model):
    """Numbers of pending workloads, by LocalQueue and reason or by user."""

    items: tuple[PendingGroup, ...]
    """The groups, the longest wait first."""


class PreemptedWorkload(Model):
    """A workload that was preempted."""

    namespace: str
    """Namespace of the workload."""
    name: str
    """Name of the workload."""
    cluster: str
    """Cluster of its object."""


class PreemptionInVain(Model):
    """A workload that still waits five minutes or more after others were preempted for it."""

    namespace: str
    """Namespace of the waiting workload."""
    name: str
    """Name of the waiting workload."""
    cluster: str
    """Cluster of its object."""
    cluster_queue: str
    """ClusterQueue in which it waits."""
    victims: tuple[PreemptedWorkload, ...]
    """Workloads that were preempted for it since it ran last, and have not finished."""
    preempted_at: Time
    """Time of the last of these preemptions."""


class AuditProblem(Model):
    """Differences of one kind between database, cluster and the leader's memory."""

    problem: str
    """Kind of difference."""
    count: int
    """Number of differences of this kind."""


class AuditSummary(Model):
    """Result of the leader's last audit."""

    at: Time
    """Time of the audit."""
    differences: tuple[AuditProblem, ...]
    """Differences by kind; empty: database, cluster and memory agree."""


class NotQueuedObject(Model):
    """An object with a queue label that is not queued."""

    kind: str
    """Kind of the object."""
    namespace: str
    """Namespace of the object."""
    name: str
    """Name of the object."""
    message: str
    """Why it is not queued, as a sentence that names the object."""


class NotQueuedObjects(Model):
    """The objects with a queue label that are not queued."""

    count: int
    """Number of these objects."""
    items: tuple[NotQueuedObject, ...]
    """The first 100 of them, by kind, namespace and name."""


class WorkloadInTrouble(Model):
    """A workload that somebody should look at."""

    namespace: str
    """Namespace of its object."""
    name: str
    """Name of its object."""
    cluster: str
    """Cluster of its object."""
    user: str
    """User who submitted it; empty: unknown."""
    cluster_queue: str
    """ClusterQueue in which it is or was; empty: none."""
    reason: str
    """What is wrong, for programs."""
    message: str
    """What is wrong, for people."""
    at: Time
    """When it failed; since when its pods should run, or it waits."""


class WorkloadsInTrouble(Model):
    """Workloads with the same kind of trouble."""

    count: int
    """Number of all of them."""
    items: tuple[WorkloadInTrouble, ...]
    """The first of them."""


class AttentionReport(Model):
    """Problems that an admin should look into, beside the queues' own."""

    failed: WorkloadsInTrouble
    """Workloads that have failed in the last hour, the last one first."""
    not_started: WorkloadsInTrouble
    """Admitted workloads of which pods find no node or do not start, the last admission first."""
    impossible: WorkloadsInTrouble
    """Pending workloads that can never run as they are, the longest wait first."""
    standstill: str | None = None
    """Why no decisions are made at present; not set: they are made."""
    evicted_again: WorkloadsInTrouble
    """Unfinished workloads that were evicted three times or more in the last hour, those with most evictions first."""
    preemptions_in_vain: tuple[PreemptionInVain, ...]
    """Preemptions without effect of the last day, the latest first."""
    last_audit: AuditSummary | None = None
    """Result of the last audit; not set: the leader has made none yet."""
    not_queued: NotQueuedObjects | None = None
    """Objects that run without quota although they have a queue label; not set: there are none, as far as is known."""
    webhook_fault: str | None = None
    """Why the API server does not reach the webhooks; not set: it does, as far as is known."""


class NamespaceReport(Model):
    """Namespaces of which the caller may list the workloads."""

    all: bool
    """Whether the caller may list those of all namespaces."""
    namespaces: tuple[str, ...]
    """Namespaces with LocalQueues of which the caller may list the workloads."""


class FlavorNodes(Model):
    """Nodes of one ResourceFlavor."""

    flavor: str
    """Name of the ResourceFlavor."""
    nodes: int
    """Number of schedulable nodes with its labels."""
    allocatable: Mapping[str, str]
    """Total allocatable resources of these nodes."""


class NodeReport(Model):
    """Nodes and their capacity by ResourceFlavor."""

    items: tuple[FlavorNodes, ...]
    """One item for each ResourceFlavor."""


class ClusterUsage(Model):
    """Quota of one flavor and resource that workloads of a cluster hold."""

    flavor: str
    """Name of the ResourceFlavor."""
    resource: str
    """Name of the resource."""
    used: str
    """The quota that they hold."""


class ClusterQueueInCluster(Model):
    """What one ClusterQueue has in a cluster."""

    name: str
    """Name of the ClusterQueue."""
    pending_workloads: int
    """Number of its pending workloads whose objects are in the cluster."""
    usage: tuple[ClusterUsage, ...]
    """The quota that its workloads there hold."""


class ClusterItem(Model):
    """A cluster, and what it runs."""

    name: str
    """Its name; `local` is the cluster of Sluice itself."""
    labels: Mapping[str, str]
    """Labels of its Cluster."""
    state: str
    """Active, Connecting, Lost, Draining or Disabled."""
    since: str | None = None
    """Since when it is in this state; not set for `local`."""
    message: str | None = None
    """Why it is in this state; not set if it is active."""
    uid: str | None = None
    """Uid of its namespace kube-system; not set if it is not known, and for `local`."""
    capacity: ClusterCapacity | None = None
    """What its nodes have; not set before the first look, and for `local` if no other cluster has joined."""
    pending_workloads: int
    """Number of its pending workloads."""
    reserving_workloads: int
    """Number of its workloads that hold quota."""
    usage: tuple[ClusterUsage, ...]
    """The quota that they hold."""
    cluster_queues: tuple[ClusterQueueInCluster, ...]
    """The same for each ClusterQueue that has workloads there, by name."""
    flavors: tuple[str, ...]
    """Names of the ResourceFlavors that its workloads may get."""


class ClusterReport(Model):
    """State, workloads and usage by cluster."""

    items: tuple[ClusterItem, ...]
    """One item for each cluster, `local` first."""


class DrainItem(Model):
    """A workload that runs on a node, or in a flavor."""

    namespace: str
    """Its namespace; empty if the user may not read it."""
    name: str
    """Its name; empty likewise."""
    kind: str
    """Kind of its object."""
    local_queue: str
    """Its LocalQueue; empty if the user may not read its namespace."""
    priority: int
    """Its priority."""
    pods: int | None
    """Number of its pods on the node; null for a flavor."""
    admitted_at: str | None
    """When it was admitted."""
    ends_by: str | None
    """When its time limit stops it at the latest; null: it has none."""


class DrainReport(Model):
    """Workloads that stand in the way of emptying a node or a flavor, the one that ends last first."""

    items: tuple[DrainItem, ...]
    """The workloads."""
    others: int
    """Number of pods on the node that belong to no workload, such as those of DaemonSets; 0 for a flavor."""


class Obstacle(Model):
    """A reason for which workloads waited that missed an objective."""

    reason: str
    """The reason, as that of workloads."""
    seconds: float
    """Sum of the times for which it was the reason, of all these workloads."""
    workloads: int
    """How many of them it kept waiting at some time."""


class ObjectiveWeek(Model):
    """How the objective of a ClusterQueue was met by the workloads that were created in a week."""

    cluster_queue: str
    """The ClusterQueue."""
    week: str
    """The week, as of ISO 8601: `2026-W48`."""
    from_: Time = Field(alias="from")
    """Its first instant."""
    to: Time
    """The first instant behind it; of the present week: now."""
    partial: bool
    """Whether the week is not over, or the database has not all of it any more."""
    wished_since: Time
    """Since when the ClusterQueue has the objective by which the week is judged: that which it had at the end of the
    week, or, if it had none yet, its first one."""
    percentile: int
    """The objective: how many of a hundred workloads are to start in time ..."""
    wished_seconds: float
    """... and within which wait."""
    workloads: int
    """How many started, or waited for longer than that."""
    met: int
    """How many of them started in time."""
    waiting: int
    """How many have not started; they count with the time that they have waited."""
    wait_seconds: float
    """The wait within which the percentile started."""
    is_met: bool
    """Whether the objective was met; also if there were no workloads."""
    obstacles: tuple[Obstacle, ...]
    """What was in the way of those that missed it, the longest first."""


class ObjectiveReport(Model):
    """How the objectives of ClusterQueues were met by week."""

    timezone: str
    """Zone in which weeks begin."""
    items: tuple[ObjectiveWeek, ...]
    """By ClusterQueue and week, the latest week first."""


class CostItem(Model):
    """Usage of a resource in a month that had one price."""

    month: str
    """The month: `2026-10`."""
    from_: str = Field(alias="from")
    """The first day with usage at this price."""
    to: str
    """The last one."""
    cluster_queue: str | None = None
    """ClusterQueue, if it is grouped by it."""
    namespace: str | None = None
    """Namespace, if it is grouped by it or by queue."""
    queue: str | None = None
    """LocalQueue, if it is grouped by it."""
    user: str | None = None
    """User, if it is grouped by it."""
    labels: Mapping[str, str] | None = None
    """Labels, if it is grouped by such."""
    flavor: str
    """The ResourceFlavor."""
    resource: str
    """The resource."""
    unit: str
    """Unit of the hours."""
    hours: float
    """Usage, in this unit."""
    per_hour: str | None
    """The price of an hour; null: there is none."""
    price_from: str | None
    """The day from which it holds; null: always, or there is no price."""
    cost: str | None
    """The cost; null: there is no price."""


class CostReport(_TimeReport):
    """What usage cost by a PriceBook, by month and group."""

    book: str
    """The PriceBook; empty: there is none."""
    currency: str
    """Its currency."""
    provider: str
    """Who charges."""
    by: tuple[str, ...]
    """The groupings."""
    items: tuple[CostItem, ...]
    """By month and group."""


class FlavorCost(Model):
    """What a workload would cost in a flavor."""

    flavor: str
    """The ResourceFlavor."""
    cost: str | None
    """The cost; null: a resource has no price."""


class Quote(Model):
    """What is known of a workload before it is submitted."""

    queue: str
    """The LocalQueue."""
    cluster_queue: str
    """The ClusterQueue that it leads to."""
    pending: int
    """Number of workloads that wait in that ClusterQueue."""
    recent_waits: Mapping[str, float] | None
    """Waits (s) within which half (`p50`) and nine of ten (`p90`) workloads of the last 7 days started; null: none."""
    run_seconds: float | None
    """The run time that the cost is for; null: none is known."""
    run_time_of: Literal["TimeLimit", "Learned", "Unknown"]
    """Where it is from: the time limit, or the median of the user's, else the LocalQueue's, last workloads."""
    currency: str
    """Currency of the costs; empty: there is no PriceBook."""
    costs: tuple[FlavorCost, ...]
    """The cost by flavor, in the order in which the ClusterQueue tries them."""


class FairShareOfQueue(Model):
    """What a ClusterQueue was entitled to of a resource, and received: cores, bytes or devices times seconds."""

    cluster_queue: str
    """The ClusterQueue."""
    cohort: str
    """Its Cohort; empty: it is in none."""
    resource: str
    """The resource."""
    nominal_seconds: float
    """Its nominal quota."""
    demand_seconds: float
    """What its workloads used or waited for."""
    entitled_seconds: float
    """What it was entitled to: nominal quota with demand, and its share by weight of what others left."""
    received_seconds: float
    """What its workloads used."""
    borrowed_seconds: float
    """The part of that beyond its nominal quota."""
    lent_seconds: float
    """What others borrowed of its nominal quota."""


class Loan(Model):
    """What a ClusterQueue, or a Cohort of its own quota, lent to a ClusterQueue."""

    lender_kind: str
    """ClusterQueue or Cohort; Others: all that are not named; empty: nobody, as quota was below what was in use."""
    lender: str
    """Its name; empty for Others."""
    borrower: str
    """The ClusterQueue that borrowed; empty: all that are not named."""
    flavor: str
    """The ResourceFlavor."""
    resource: str
    """The resource."""
    amount_seconds: float
    """Cores, bytes or devices times seconds."""


class FairnessReport(_TimeReport):
    """What ClusterQueues were entitled to and received, and who lent to whom, from a full hour on."""

    items: tuple[FairShareOfQueue, ...]
    """By ClusterQueue and resource."""
    loans: tuple[Loan, ...]
    """Who lent to whom. The 50 largest lenders and borrowers of each tree and resource are named, others summed up."""


class TopologyRun(Model):
    """Pods of a workload in a domain."""

    workload: int
    """Index in `workloads`."""
    pods: int
    """Number of its pods there."""


class TopologyDomain(Model):
    """A domain of a topology. Amounts are those of all nodes in it."""

    values: tuple[str, ...]
    """Values of the labels of the levels, down to its own."""
    nodes: int
    """Number of nodes."""
    out: int
    """Number of these that get no pods at present."""
    whole: int
    """Number of domains of the last level in it in which nothing runs."""
    capacity: Mapping[str, str]
    """What the nodes hold that are not out."""
    used: Mapping[str, str]
    """What workloads hold that are placed by topology."""
    used_by_others: Mapping[str, str]
    """What all other pods request."""
    free: Mapping[str, str]
    """What is free."""
    runs: tuple[TopologyRun, ...] = ()
    """What runs there, in domains of the last level."""


class TopologyFit(Model):
    """The most free amount of a resource in one domain."""

    resource: str
    """Name of the resource."""
    free: str
    """The free amount."""
    values: tuple[str, ...]
    """The domain."""


class TopologyLevel(Model):
    """A level of a topology, with what would fit into one of its domains now."""

    node_label: str
    """Label of the nodes."""
    domains: int
    """Number of its domains."""
    most_free: tuple[TopologyFit, ...]
    """For each resource the domain with the highest free amount."""
    most_whole: int
    """Number of empty domains of the last level (such as nodes) in the domain that has most of them."""
    most_whole_in: tuple[str, ...]
    """That domain."""


class TopologyOutNode(Model):
    """A node that gets no pods at present."""

    name: str
    """Name of the node."""
    reason: str
    """Why, to be read after the name."""
    values: tuple[str, ...]
    """Its domain; empty if it lacks the label of a level."""


class TopologyWorkload(Model):
    """A workload with pods in the topology; without names if the caller may not list workloads of its namespace."""

    namespace: str = ""
    """Its namespace."""
    name: str = ""
    """Name of the object."""
    workload: str = ""
    """Name of the workload."""
    pods: int
    """Number of its pods in the topology."""


class TopologyReport(Model):
    """State of the topology of a ResourceFlavor."""

    flavor: str
    """Name of the ResourceFlavor."""
    topology: str
    """Name of the Topology."""
    resources: tuple[str, ...]
    """Resources that there is quota for in the flavor."""
    total: TopologyDomain
    """Sum of all domains."""
    levels: tuple[TopologyLevel, ...]
    """Its levels, outermost first."""
    domains: tuple[TopologyDomain, ...]
    """Domains of all levels, outer levels first; with `level` only down to that one."""
    out: tuple[TopologyOutNode, ...]
    """Nodes that get no pods at present."""
    workloads: tuple[TopologyWorkload, ...]
    """Workloads with pods in it."""


class Stay(Model):
    """Pods of a workload in a domain of a topology, for some time."""

    namespace: str
    """Namespace of the workload."""
    queue: str
    """Its LocalQueue."""
    user: str
    """Who submitted it."""
    kind: str
    """Kind of its object; empty, like the name, if the workload is not kept any more."""
    name: str
    """Name of its object."""
    uid: str
    """Uid of its object."""
    pod_set: str
    """Name of the pod set."""
    domain: tuple[str, ...]
    """Values of the domain, for a node its hostname."""
    pods: int
    """Number of pods there."""
    requests: Mapping[str, str]
    """Total requests of these pods."""
    from_: Time = Field(alias="from")
    """Since when the quota was held."""
    to: Time | None = None
    """Until when; missing: it is still held."""
    end_reason: str = ""
    """Why it ended."""


class StayReport(Model):
    """Which workloads had pods on a node."""

    node: str
    """Name of the node, or of another domain."""
    from_: Time = Field(alias="from")
    """Start of the report."""
    to: Time
    """End of the report."""
    items: tuple[Stay, ...]
    """In order of time."""


class Written(Model):
    """The object of a write."""

    kind: str
    """Kind of the object."""
    namespace: str
    """Namespace of the object; empty for cluster-scoped kinds."""
    name: str
    """Name of the object."""


class AuditRecord(Model):
    """Record of one write through the API."""

    at: Time
    """Time of the write."""
    user: str
    """User who wrote."""
    groups: tuple[str, ...]
    """Groups of the user."""
    source: str
    """Address that the request came from."""
    verb: str
    """create, update, patch, delete, rollback or cancel."""
    object: Written
    """The object that was written."""
    reason: str
    """Reason that the user gave."""
    before: Mapping[str, Any] | None
    """The object before the write; null: it did not exist."""
    after: Mapping[str, Any] | None
    """The object after the write; null: it was deleted."""


class Audit(Model):
    """Differences between database, cluster and the leader's memory."""

    items: tuple[Mapping[str, Any], ...]
    """All differences: actual and expected state, and what a repair does."""


class WhatIfGoal(Model):
    """A wished wait, for which the quota that it needs is searched."""

    cluster_queue: str
    """The ClusterQueue whose workloads are to wait no longer, and whose nominal quota may be raised."""
    flavor: str
    """Its flavor to raise."""
    resource: str
    """Its resource to raise."""
    p90_seconds: float
    """Seconds within which nine of ten of its workloads are to start."""


class WhatIfQuestion(Model):
    """A past period that is to be replayed."""

    from_: str = Field(default="30d", alias="from")
    """Start of the period: a time, a date, or a duration before now."""
    to: str = ""
    """End of the period, in the same form; empty: now."""
    month: str = ""
    """Instead of from and to: a month of the calendar, as 2026-10; this or last."""
    quarter: str = ""
    """Instead of from and to: a quarter of the calendar, as 2026-Q3; this or last."""
    timezone: str = ""
    """Zone of dates, month and quarter, as Europe/Berlin; empty: UTC."""
    objects: tuple[Mapping[str, Any], ...] = ()
    """Queue objects that take the place of those that there were; all others are as they were."""
    goal: WhatIfGoal | None = None
    """If given, the answer is the quota that it needs."""


class WhatIf(Model):
    """A line of the answer, of which there are several: progress, and at the end the answer or an error."""

    type: Literal["PROGRESS", "ANSWER", "ERROR"]
    """What the line is."""
    share: float | None = None
    """Share of the work that is done, from 0 to 1."""
    object: Mapping[str, Any] | None = None
    """The answer: waits, preemptions and use of quota as they happened, replayed, and with the changes; or a Status."""
