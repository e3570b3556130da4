"""Queue objects that admins write: ClusterQueue, Cohort, LocalQueue and others, as in Kueue's `v1beta2` API.

Fields, defaults and limits are Kueue's. Attributes are the fields in snake_case; enum values are Kueue's strings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from admission.model import kind_names
from admission.model.base import (
    FieldFaultsError,
    Int32,
    Labels,
    LabelSelector,
    LabelValue,
    Model,
    Name,
    ObjectMeta,
    OptionalName,
    OptionalQualifiedName,
    PositiveDuration,
    QualifiedName,
)
from admission.model.budgets import BudgetRequestSpec, BudgetSpec
from admission.model.calendars import Calendar
from admission.model.clusters import ClusterSpec
from admission.model.drains import DrainSpec
from admission.model.durations import parse_duration
from admission.model.price_books import PriceBookSpec
from admission.model.provisioning import CONTROLLER, ProvisioningRequestConfigSpec
from admission.model.quantity import amount
from admission.model.quotas import (
    FairSharing,
    ResourceGroup,
    ResourceGroups,
    calendar_faults,
    group_faults,
    limit_faults,
    quotas,
    with_calendar,
    with_quotas_kept,
)
from admission.model.references import ReferenceField
from admission.model.reservations import ReservationSpec
from admission.model.subscriptions import SubscriptionSpec
from admission.model.topology import HOSTNAME
from admission.model.user_limits import UserLimitSpec
from admission.model.workload import LOCAL

if TYPE_CHECKING:
    from collections.abc import Iterator

StopPolicy: TypeAlias = Literal["None", "Hold", "HoldAndDrain"]
FungibilityPolicy: TypeAlias = Literal["MayStopSearch", "TryNextFlavor"]
TaintEffect: TypeAlias = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]

_LONGEST_DELAY = 365 * 24 * 3600  # seconds
_LONGEST_PAST = 7 * 24 * 3600  # seconds


class FlavorFungibility(Model):
    """Whether the search for a flavor stops at one in which the workload has to borrow or to preempt."""

    when_can_borrow: FungibilityPolicy = "MayStopSearch"
    """Whether a flavor in which the workload fits by borrowing is taken, or the next flavor is tried first."""
    when_can_preempt: FungibilityPolicy = "TryNextFlavor"
    """Whether a flavor in which the workload fits by preemption is taken, or the next flavor is tried first."""
    preference: Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"] | None = None
    """Whether borrowing or preemption is preferred, if every flavor needs one of them; not given: borrowing."""


class BorrowWithinCohort(Model):
    """Whether a workload that has to borrow may preempt in other ClusterQueues (classical preemption only)."""

    policy: Literal["Never", "LowerPriority"] = "Never"
    """Never, or workloads of lower priority than the preemptor."""
    max_priority_threshold: Int32 | None = None
    """Only workloads of at most this priority are preempted; not given: all of lower priority than the preemptor."""


class Preemption(Model):
    """Which workloads may be preempted for a workload of this ClusterQueue."""

    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "Never"
    """Which workloads of the same ClusterQueue may be preempted."""
    time_slice: PositiveDuration | None = None
    """How long a workload runs before others of the same priority in the ClusterQueue may preempt it, and it queues
    behind them, such as `1h`: so they take turns. An extension; not given: they may not."""
    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = "Never"
    """Which workloads of other ClusterQueues that have borrowed its quota may be preempted."""
    borrow_within_cohort: BorrowWithinCohort = BorrowWithinCohort()
    """Whether workloads of other ClusterQueues may be preempted for a workload that has to borrow."""

    @model_validator(mode="after")
    def _slices_need_preemption(self) -> Self:
        if self.within_cluster_queue == "Never" and self.time_slice is not None:
            raise FieldFaultsError([("timeSlice", "withinClusterQueue must not be Never with it")])
        return self

    @model_validator(mode="after")
    def _borrowing_needs_reclaiming(self) -> Self:
        if self.reclaim_within_cohort == "Never" and self.borrow_within_cohort.policy != "Never":
            raise FieldFaultsError([("borrowWithinCohort.policy", "must be Never while reclaimWithinCohort is Never")])
        return self


class AdmissionCheckRule(Model):
    """An admission check, and the flavors for which it is required."""

    name: Name
    """The name of the AdmissionCheck."""
    on_flavors: Annotated[tuple[Name, ...], Field(max_length=64)] = ()
    """The ResourceFlavors for which the check is required; empty: all."""


class AdmissionChecksStrategy(Model):
    """The admission checks that a ClusterQueue requires."""

    admission_checks: Annotated[tuple[AdmissionCheckRule, ...], Field(max_length=64)] = ()
    """The checks, all of which must be Ready before a workload that holds quota may start."""


class AdmissionScope(Model):
    """Whether admission fair sharing orders the LocalQueues, or the users, of a ClusterQueue."""

    admission_mode: Literal["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"]
    """Whether workloads of LocalQueues with less recent usage come first."""
    between: Literal["LocalQueues", "Users"] = "LocalQueues"
    """Whose usage in the ClusterQueue counts: that of LocalQueues, or of the users who have submitted the workloads. An
    extension: Kueue compares LocalQueues."""


class OverQuota(Model):
    """Eviction of workloads when quota was lowered below the usage. An extension: Kueue lets them run."""

    evict_after_seconds: Annotated[int, Field(strict=True, ge=0, le=_LONGEST_DELAY)] = 300
    """Seconds for which the usage may exceed the quota; then workloads are evicted until it does not any more."""


_ExecutionTime: TypeAlias = Annotated[int, Field(strict=True, ge=1, le=999_999_999)]


class TimeLimits(Model):
    """Maximum execution times of workloads. An extension: in Kueue only their users limit them.

    A time limit that is changed applies to workloads that are not admitted yet.
    """

    default_seconds: _ExecutionTime | None = None
    """The time limit of workloads without one; not given: `maxSeconds`."""
    max_seconds: _ExecutionTime | None = None
    """The longest time limit that workloads may have; those with a longer one are not admitted. Not given: any."""

    @model_validator(mode="after")
    def _default_is_permitted(self) -> Self:
        default, longest = self.default_seconds, self.max_seconds
        if default is not None and longest is not None and default > longest:
            raise FieldFaultsError([("defaultSeconds", f"{default} is more than the maxSeconds of {longest}")])
        return self


class MinimumRuntime(Model):
    """Protection of workloads that were admitted a short time ago from one kind of preemption."""

    min_admit_duration: PositiveDuration
    """How long a workload is not preempted since its admission, such as `20m`."""


class AfterPreemptions(Model):
    """Protection of workloads that were preempted again and again."""

    times: Annotated[int, Field(strict=True, ge=1, le=20)]
    """Number of preemptions of a workload from which on it is protected."""
    within: PositiveDuration
    """The time before its admission in which it was preempted so often, at most `7d`."""
    min_admit_duration: PositiveDuration
    """How long it is not preempted since that admission."""

    @model_validator(mode="after")
    def _past_is_bounded(self) -> Self:
        if parse_duration(self.within) > _LONGEST_PAST:
            raise FieldFaultsError([("within", f"{self.within} is longer than 7d")])
        return self


class PreemptionProtection(Model):
    """Workloads that are not preempted for some time. An extension: the names are those of Kueue's KEP 9876."""

    within_cluster_queue: MinimumRuntime | None = None
    """Protection from workloads of the same ClusterQueue; not given: none."""
    reclaim_within_cohort: MinimumRuntime | None = None
    """Protection from workloads of other ClusterQueues that reclaim their quota; not given: none."""
    fair_sharing: MinimumRuntime | None = None
    """Protection from workloads of other ClusterQueues with a lower share (fair sharing); not given: none."""
    after_preemptions: AfterPreemptions | None = None
    """Protection from all of them for workloads that were preempted again and again; not given: none."""


class Objective(Model):
    """A wished wait, by which reports, a metric and an alert judge the queue; it decides nothing. An extension."""

    percentile: Annotated[int, Field(strict=True, ge=1, le=99)] = 90
    """How many of a hundred workloads are to start in time."""
    wait: PositiveDuration
    """The time from the creation of a workload within which they are to start, such as `2h`."""


class Aging(Model):
    """What workloads gain by waiting in a ClusterQueue. An extension: in Kueue time only orders equal priorities."""

    priority_interval: PositiveDuration | None = None
    """The time in which a waiting workload gains a priority of 1 in the order of the queue, such as `10m`; not given:
    none. Preemption compares priorities without it."""
    strict_after: PositiveDuration | None = None
    """The time after which a waiting workload is not overtaken any more, as in a StrictFIFO queue; not given: never."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.priority_interval is None and self.strict_after is None:
            raise FieldFaultsError([("priorityInterval", "give this, strictAfter or both")])
        return self


class MigrationConstraints(Model):
    """When workloads move to a preferred flavor."""

    last_acceptable_flavor_name: Name | None = None
    """The last flavor, in the order of the ClusterQueue, to which workloads move; not given: any that is preferred to
    their own."""
    minimum_runtime: PositiveDuration | None = None
    """How long a workload runs at least before it moves, such as `30m`. An extension; not given: it moves at once."""


class Migration(Model):
    """Whether and when admitted workloads move to a flavor that comes before their own."""

    mode: Literal["TryPreferredFlavors", "RetainFirstAdmission"] = "TryPreferredFlavors"
    """Whether a workload moves, by an eviction, when it fits in a preferred flavor, or stays where it was admitted."""
    constraints: MigrationConstraints | None = None
    """When it moves; only with mode TryPreferredFlavors."""

    @model_validator(mode="after")
    def _constraints_need_moves(self) -> Self:
        if self.constraints is not None and self.mode != "TryPreferredFlavors":
            raise FieldFaultsError([("constraints", "needs mode TryPreferredFlavors")])
        return self


class ConcurrentAdmissionPolicy(Model):
    """Workloads are tried in each flavor by itself, and may move to a preferred one while they run."""

    migration: Migration = Migration()
    """Whether and when they move."""


_MOST_VARIANTS = 16


_PATTERN = r"[a-z0-9.*-]{1,253}"
Patterns = Annotated[
    tuple[Annotated[str, Field(pattern=f"^{_PATTERN}$", min_length=1, max_length=253)], ...], Field(max_length=64)
]
"""Names of objects, in which each `*` stands for any characters."""


class CopyAlong(Model):
    """Objects of a workload's namespace that are copied to the cluster in which it runs, if its pods name them."""

    config_maps: Patterns = ()
    """Names of ConfigMaps, in which each `*` stands for any characters."""
    secrets: Patterns = ()
    """The same of Secrets. Tokens of service accounts are never copied."""


class Dispatch(Model):
    """Workloads may run in other clusters than that of their object: Sluice creates copies of them there."""

    order: Literal["Name", "Cost", "Spread"] = "Name"
    """The order in which clusters are tried: by name, the cheapest first (Cost), or the least used first (Spread)."""
    clusters: Annotated[tuple[Name, ...], Field(max_length=64)] = ()
    """Clusters that are tried before all others, in this order. They need not have joined."""
    price_book: Name | None = None
    """The PriceBook whose prices of the day order the clusters by Cost."""
    spillover_after_seconds: Annotated[int, Field(strict=True, ge=0, le=31_536_000)] = 0
    """Seconds for which a workload must have waited before a second cluster is tried, too, and as many more before a
    third is; 0: all are tried at once."""
    copy_along: CopyAlong = CopyAlong()
    """What is copied to the cluster in which a workload runs; not given: nothing."""

    @model_validator(mode="after")
    def _has_prices_for_cost(self) -> Self:
        if (self.order == "Cost") is (self.price_book is None):
            raise FieldFaultsError([("priceBook", "name a PriceBook with order: Cost, and only then")])
        return self


class ClusterQueueSpec(Model):
    """A leaf of the quota tree: quota, and how workloads get it."""

    resource_groups: ResourceGroups = ()
    """The quota: for each group of resources, the flavors that have quota of them."""
    cohort_name: OptionalName = ""
    """The Cohort whose members lend each other unused quota; empty: none."""
    queueing_strategy: Literal["BestEffortFIFO", "StrictFIFO"] = "BestEffortFIFO"
    """Whether a workload that does not fit lets later ones pass (BestEffortFIFO) or blocks them (StrictFIFO)."""
    backfill: Literal["WithinTimeLimits"] | None = None
    """With StrictFIFO, WithinTimeLimits: later workloads may start before the first one if its start does not move, as
    estimated by the time limits of all. Not given: they may not. An extension: Kueue has no backfill."""
    namespace_selector: LabelSelector | None = None
    """Which namespaces may use it, by their labels; an empty selector: all, not given: none."""
    flavor_fungibility: FlavorFungibility = FlavorFungibility()
    """When to take a flavor that needs borrowing or preemption instead of trying the next one."""
    preemption: Preemption = Preemption()
    """Which workloads may be preempted for pending ones of this ClusterQueue."""
    admission_checks_strategy: AdmissionChecksStrategy | None = None
    """Admission checks that workloads must pass, beside getting quota, before they start."""
    stop_policy: StopPolicy = "None"
    """Hold: admit no more workloads. HoldAndDrain: also evict those that run. None: work as usual."""
    fair_sharing: FairSharing | None = None
    """Its weight in fair sharing of the Cohort's unused quota; not given: 1."""
    admission_scope: AdmissionScope | None = None
    """Admission fair sharing between its LocalQueues; not given: none."""
    over_quota: OverQuota | None = None
    """Eviction when its quota was lowered below the usage; not given: running workloads may run on."""
    time_limits: TimeLimits | None = None
    """Maximum execution times of its workloads; not given: those that their users set."""
    preemption_protection: PreemptionProtection | None = None
    """For how long its workloads are not preempted after their admission; not given: they may be at any time."""
    aging: Aging | None = None
    """What its workloads gain by waiting; not given: nothing."""
    calendar: Calendar | None = None
    """Other nominal quotas for a time; not given: they are always the same. An extension: Kueue has no calendar."""
    objective: Objective | None = None
    """How long its workloads may wait, as a wish that is reported on; not given: none."""
    concurrent_admission_policy: ConcurrentAdmissionPolicy | None = None
    """Whether its workloads move to flavors that come first in its order; not given: they stay."""
    dispatch: Dispatch | None = None
    """Whether workloads whose `managedBy` says so run in one of the clusters that have joined; not given: none does. An
    extension: Kueue has MultiKueue."""

    @model_validator(mode="after")
    def _flavors_are_ordered(self) -> Self:
        if self.concurrent_admission_policy is None:
            return self
        field, faults = "concurrentAdmissionPolicy", []
        if len(self.resource_groups) != 1:
            faults.append((field, "needs exactly one resource group, as its flavors are the order of preference"))
        elif len(self.resource_groups[0].flavors) > _MOST_VARIANTS:
            faults.append((field, f"permits {_MOST_VARIANTS} flavors at most"))
        if self.queueing_strategy != "BestEffortFIFO":
            faults.append((field, "needs queueingStrategy BestEffortFIFO"))
        constraints = self.concurrent_admission_policy.migration.constraints
        last = None if constraints is None else constraints.last_acceptable_flavor_name
        if last is not None and last not in {each.name for group in self.resource_groups for each in group.flavors}:
            path = f"{field}.migration.constraints.lastAcceptableFlavorName"
            faults.append((path, f"{last} is no flavor of the ClusterQueue"))
        if faults:
            raise FieldFaultsError(faults)
        return self

    @model_validator(mode="after")
    def _groups_are_consistent(self) -> Self:
        faults = [
            *group_faults(self.resource_groups),
            *limit_faults(self.resource_groups, self.cohort_name, "cohortName"),
            *calendar_faults(self.resource_groups, self.calendar),
        ]
        if self.backfill is not None and self.queueing_strategy != "StrictFIFO":
            faults.append(("backfill", "needs queueingStrategy: StrictFIFO; in others later workloads start anyway"))
        for path, quota in quotas(self.resource_groups):
            if (
                quota.from_nodes is None
                and quota.lending is not None
                and quota.lending > amount(quota.name, quota.nominal_quota)
            ):
                message = f"{quota.lending_limit} is more than the nominalQuota of {quota.nominal_quota}"
                faults.append((f"{path}.lendingLimit", message))
        if faults:
            raise FieldFaultsError(faults)
        return self


class CohortSpec(Model):
    """An inner node of the quota tree; its own quota is in addition to that of its members."""

    parent_name: OptionalName = ""
    """The parent Cohort; empty: it is the root of a tree."""
    resource_groups: ResourceGroups = ()
    """Quota that all members may borrow."""
    fair_sharing: FairSharing | None = None
    """Its weight in fair sharing of the parent's unused quota; not given: 1."""
    calendar: Calendar | None = None
    """Other nominal quotas for a time; not given: they are always the same. An extension: Kueue has no calendar."""

    @model_validator(mode="after")
    def _groups_are_consistent(self) -> Self:
        faults = [
            *group_faults(self.resource_groups),
            *limit_faults(self.resource_groups, self.parent_name, "parentName"),
            *calendar_faults(self.resource_groups, self.calendar),
        ]
        if faults:
            raise FieldFaultsError(faults)
        return self


class LocalQueueSpec(Model):
    """The queue of a namespace, which points to one ClusterQueue."""

    cluster_queue: Name
    """The ClusterQueue in which its workloads are queued."""
    stop_policy: StopPolicy = "None"
    """Hold: admit no more workloads. HoldAndDrain: also evict those that run. None: work as usual."""
    fair_sharing: FairSharing | None = None
    """Its weight in admission fair sharing, if the ClusterQueue has an admissionScope; not given: 1."""
    time_limits: TimeLimits | None = None
    """Maximum execution times of its workloads, within those of the ClusterQueue; not given: those of the
    ClusterQueue."""


class Taint(Model):
    """A taint of the nodes of a flavor."""

    key: QualifiedName
    """The key of the taint."""
    value: LabelValue = ""
    """The value of the taint."""
    effect: TaintEffect
    """The effect on pods that do not tolerate the taint."""


class FlavorToleration(Model):
    """A toleration that is added to pods with the flavor; the fields are those of a pod's toleration."""

    key: OptionalQualifiedName = ""
    """The taint that is tolerated; empty: all, with operator Exists."""
    operator: Literal["Equal", "Exists"] = "Equal"
    """Equal: the value of the taint must be the same. Exists: any value."""
    value: LabelValue = ""
    """The value of the taint, with operator Equal."""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    """The effect that is tolerated; empty: all."""
    toleration_seconds: Annotated[int, Field(strict=True)] | None = None
    """With effect NoExecute, seconds for which the taint is tolerated; not given: without limit."""

    @model_validator(mode="after")
    def _operator_fits(self) -> Self:
        if not self.key and self.operator != "Exists":
            raise FieldFaultsError([("operator", "must be Exists when key is empty")])
        if self.operator == "Exists" and self.value:
            raise FieldFaultsError([("value", "must be empty when operator is Exists")])
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            raise FieldFaultsError([("effect", "must be NoExecute when tolerationSeconds is set")])
        return self


class ResourceFlavorSpec(Model):
    """A kind of node, by labels and taints."""

    node_labels: Annotated[Labels, Field(max_length=8)] = Field(default_factory=dict)
    """The labels of these nodes; they are added to the node selectors of pods with the flavor."""
    node_taints: Annotated[tuple[Taint, ...], Field(max_length=8)] = ()
    """The taints of these nodes; only workloads that tolerate them get the flavor."""
    tolerations: Annotated[tuple[FlavorToleration, ...], Field(max_length=8)] = ()
    """Tolerations that are added to pods with the flavor."""
    topology_name: Name | None = None
    """The Topology in whose domains its pods are placed; empty: they are not placed by topology."""
    clusters: Annotated[tuple[Name, ...], Field(max_length=64)] = ()
    """The Clusters that have these nodes: workloads in other clusters do not get the flavor. Empty: all. Extension."""
    cluster_selector: LabelSelector | None = None
    """The Clusters that have these nodes, by their labels, instead of `clusters`. Extension."""

    @property
    def cluster(self) -> str:
        """The cluster of its nodes, if it names a Topology: the domains of two clusters are never one tree."""
        return self.clusters[0] if self.clusters else LOCAL

    @model_validator(mode="after")
    def _fields_are_consistent(self) -> Self:
        faults = []
        if self.topology_name is not None and not self.node_labels:
            faults.append(("nodeLabels", "must not be empty when topologyName is set"))
        if self.clusters and self.cluster_selector is not None:
            faults.append(("clusterSelector", "must not be set together with clusters"))
        if self.topology_name is not None and (len(self.clusters) > 1 or self.cluster_selector is not None):
            where = "clusters" if self.clusters else "clusterSelector"
            faults.append((where, "must be one of clusters if topologyName is set; create a flavor for each cluster"))
        if faults:
            raise FieldFaultsError(faults)
        return self


class TopologyLevel(Model):
    """A level of a Topology."""

    node_label: QualifiedName
    """The label of nodes whose value is the same within a domain of the level, such as a rack."""


class TopologySpec(Model):
    """The levels at which nodes are near to each other."""

    levels: Annotated[tuple[TopologyLevel, ...], Field(min_length=1, max_length=16)]
    """The levels, from the widest to the narrowest."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The node labels of the levels."""
        return tuple(level.node_label for level in self.levels)

    @model_validator(mode="after")
    def _levels_are_consistent(self) -> Self:
        labels = self.labels
        faults = [
            (f"levels[{at}].nodeLabel", f'"{label}" is a level already; name each level once')
            for at, label in enumerate(labels)
            if label in labels[:at]
        ]
        if HOSTNAME in labels[:-1]:
            faults.append((f"levels[{labels.index(HOSTNAME)}].nodeLabel", f"{HOSTNAME} can only be the last level"))
        if faults:
            raise FieldFaultsError(faults)
        return self


class _Named(Model):
    kind: ClassVar[str]
    plural: ClassVar[str]
    short_names: ClassVar[tuple[str, ...]] = ()
    """Further names of the kind on a command line, beside kind and plural."""
    namespaced: ClassVar[bool] = False
    references: ClassVar[tuple[ReferenceField, ...]] = ()
    """The fields that name other queue objects."""

    metadata: ObjectMeta
    """The name, labels and versions of the object."""

    @property
    def name(self) -> str:
        """`metadata.name`."""
        return self.metadata.name

    @property
    def key(self) -> tuple[str, str, str]:
        """Identity of the queue object: (kind, namespace or "", name)."""
        return self.kind, self.metadata.namespace, self.metadata.name


class ResourceFlavor(_Named):
    """A kind of node (labels, taints) for which ClusterQueues have quota."""

    kind, plural, short_names, namespaced = kind_names.RESOURCE_FLAVOR
    references = (ReferenceField("Topology", "spec.topologyName"), ReferenceField("Cluster", "spec.clusters[]"))

    spec: ResourceFlavorSpec = ResourceFlavorSpec()
    """The nodes of the flavor, and what is added to pods to run there."""


class ClusterQueue(_Named):
    """A leaf of the quota tree: nominal quota, borrowing and lending limit for each flavor and resource."""

    kind, plural, short_names, namespaced = kind_names.CLUSTER_QUEUE
    references = (
        ReferenceField("Cohort", "spec.cohortName", column="parent", needed=False),
        ReferenceField("ResourceFlavor", "spec.resourceGroups[].flavors[].name"),
        ReferenceField("AdmissionCheck", "spec.admissionChecksStrategy.admissionChecks[].name"),
        ReferenceField("PriceBook", "spec.dispatch.priceBook"),
    )

    spec: ClusterQueueSpec = ClusterQueueSpec()
    """Quota, and how workloads get it."""


class Cohort(_Named):
    """An inner node of the quota tree."""

    kind, plural, short_names, namespaced = kind_names.COHORT
    references = (
        ReferenceField("Cohort", "spec.parentName", column="parent", needed=False),
        ReferenceField("ResourceFlavor", "spec.resourceGroups[].flavors[].name"),
    )

    spec: CohortSpec = CohortSpec()
    """Its place in the tree, and quota of its own."""

    @model_validator(mode="after")
    def _not_its_own_parent(self) -> Self:
        if self.spec.parent_name == self.name:
            raise FieldFaultsError([("spec.parentName", "must not be the Cohort itself")])
        return self


class LocalQueue(_Named):
    """The queue of a namespace, which points to one ClusterQueue; the queue label of a Job names it."""

    kind, plural, short_names, namespaced = kind_names.LOCAL_QUEUE
    references = (ReferenceField("ClusterQueue", "spec.clusterQueue", column="cluster_queue"),)

    spec: LocalQueueSpec
    """The ClusterQueue, and whether the LocalQueue is stopped."""


class WorkloadPriorityClass(_Named):
    """A named priority. A change of the value does not affect existing workloads."""

    kind, plural, short_names, namespaced = kind_names.WORKLOAD_PRIORITY_CLASS

    value: Int32
    """The priority: workloads with a higher one come first."""
    description: Annotated[str, Field(max_length=2048)] = ""
    """What the class is for."""


class AdmissionCheckParameters(Model):
    """Reference to the object that configures a check; only the check's controller reads it."""

    api_group: Name
    """The API group of that object, such as `kueue.x-k8s.io`."""
    kind: Annotated[str, Field(min_length=1, max_length=63)]
    """The kind of that object, such as `ProvisioningRequestConfig`."""
    name: Name
    """The name of that object."""


class AdmissionCheckSpec(Model):
    """The controller of the check, and its configuration."""

    controller_name: Annotated[str, Field(min_length=1, max_length=153)]
    """The domain-prefixed name of the controller that reports whether workloads pass."""
    parameters: AdmissionCheckParameters | None = None
    """The object that configures the check, if its controller needs one."""


class AdmissionCheck(_Named):
    """A condition beside quota that workloads must pass before they start, reported by an external controller."""

    kind, plural, short_names, namespaced = kind_names.ADMISSION_CHECK

    spec: AdmissionCheckSpec
    """Which controller reports the check, and how it is configured."""

    @property
    def is_part_of_kueue(self) -> bool:
        """Whether its controller is a part of Kueue, which answers Kueue's workloads only."""
        return self.provisioning_config is None and self.spec.controller_name.startswith("kueue.x-k8s.io/")

    @property
    def provisioning_config(self) -> str | None:
        """The ProvisioningRequestConfig by which its requests are made; None: another controller answers it."""
        if self.spec.controller_name != CONTROLLER:
            return None
        return "" if self.spec.parameters is None else self.spec.parameters.name


class ProvisioningRequestConfig(_Named):
    """How an autoscaler is asked for nodes by AdmissionChecks with the controller of ProvisioningRequests."""

    kind, plural, short_names, namespaced = kind_names.PROVISIONING_REQUEST_CONFIG

    spec: ProvisioningRequestConfigSpec
    """The mode of provisioning, and when a request is repeated."""


class Topology(_Named):
    """Levels of node labels, such as block, rack and host: how near nodes are to each other."""

    kind, plural, short_names, namespaced = kind_names.TOPOLOGY

    spec: TopologySpec
    """The levels."""


class Budget(_Named):
    """Hours of resources that workloads may use in a period. An extension: Kueue has no such object."""

    kind, plural, short_names, namespaced = kind_names.BUDGET
    references = (
        ReferenceField("Budget", "spec.parent"),
        ReferenceField("ClusterQueue", "spec.scope.clusterQueues[]", needed=False),
        ReferenceField("Cohort", "spec.scope.cohorts[]", needed=False),
        ReferenceField("ResourceFlavor", "spec.resources[].flavors[]", needed=False),
        ReferenceField("PriceBook", "spec.resources[].priceBook"),
    )

    spec: BudgetSpec
    """The workloads, the hours, and the period."""

    @model_validator(mode="after")
    def _not_its_own_parent(self) -> Self:
        if self.spec.parent == self.name:
            raise FieldFaultsError([("spec.parent", "must not be the Budget itself")])
        return self


class Reservation(_Named):
    """Quota that is kept for some workloads for a time. An extension: Kueue has no such object."""

    kind, plural, short_names, namespaced = kind_names.RESERVATION
    references = (
        ReferenceField("ClusterQueue", "spec.clusterQueue", column="cluster_queue", needed=False),
        ReferenceField("ResourceFlavor", "spec.quotas[].flavor", needed=False),
    )

    spec: ReservationSpec
    """What is kept, for whom, and when."""


class Cluster(_Named):
    """A cluster whose Jobs are queued here, too. An extension: Kueue has no such object."""

    kind, plural, short_names, namespaced = kind_names.CLUSTER

    spec: ClusterSpec = ClusterSpec()
    """How Sluice reaches it, and whether its Jobs are started."""

    @model_validator(mode="after")
    def _only_local_is_here(self) -> Self:
        faults = []
        if self.name != LOCAL and self.spec.kubeconfig is None:
            faults.append(("spec.kubeconfig", "give the name of a file in the directory --cluster-credentials"))
        if self.name == LOCAL:
            here = self.spec.model_dump(exclude_defaults=True, by_alias=True).keys() - {"state"}
            faults = [(f"spec.{name}", f"must not be set for {LOCAL}, which Sluice reaches anyway") for name in here]
            if self.spec.state == "Disabled":
                faults.append(("spec.state", f"{LOCAL} cannot be disabled: use Draining"))
        if faults:
            raise FieldFaultsError(faults)
        return self


class Drain(_Named):
    """Nodes or flavors on which nothing starts any more. An extension: Kueue has no such object."""

    kind, plural, short_names, namespaced = kind_names.DRAIN
    references = (ReferenceField("ResourceFlavor", "spec.flavors[]", needed=False),)

    spec: DrainSpec
    """The nodes and flavors, and the times."""


class UserLimit(_Named):
    """What one person may have running and waiting. An extension: Kueue has no such object."""

    kind, plural, short_names, namespaced = kind_names.USER_LIMIT
    references = (ReferenceField("ClusterQueue", "spec.clusterQueue", column="cluster_queue", needed=False),)

    spec: UserLimitSpec
    """Who may have how much."""


class PriceBook(_Named):
    """Prices of resources, for statements of cost. An extension: Kueue has no such object."""

    kind, plural, short_names, namespaced = kind_names.PRICE_BOOK
    references = (ReferenceField("ResourceFlavor", "spec.prices[].flavor", needed=False),)

    spec: PriceBookSpec
    """The prices."""


class BudgetRequest(_Named):
    """A request for more hours of a Budget. An extension: Kueue has no such object."""

    kind, plural, short_names, namespaced = kind_names.BUDGET_REQUEST
    references = (ReferenceField("Budget", "spec.budget", needed=False),)

    spec: BudgetRequestSpec
    """How many hours are asked for, of which Budget."""


class Subscription(_Named):
    """Notifications of events of workloads and ClusterQueues. An extension: Kueue has no such object."""

    kind, plural, short_names, namespaced = kind_names.SUBSCRIPTION

    spec: SubscriptionSpec
    """The events to notify of, and the receiver."""


def quotas_kept(new: QueueObject, old: QueueObject | None) -> QueueObject:
    """Return `new` with the quotas that Sluice itself has written in `old`, the object before, where it has none."""
    if not isinstance(new, ClusterQueue | Cohort):
        return new
    before = old.spec.resource_groups if isinstance(old, ClusterQueue | Cohort) else ()
    return _with_groups(new, with_quotas_kept(new.spec.resource_groups, before))


def quotas_at(item: QueueObject, now: float) -> QueueObject:
    """Return a queue object with the quotas that its calendar has for an instant (s); the same one if it has them."""
    if not isinstance(item, ClusterQueue | Cohort):
        return item
    return _with_groups(item, with_calendar(item.spec.resource_groups, item.spec.calendar, now))


def _with_groups(item: ClusterQueue | Cohort, groups: tuple[ResourceGroup, ...]) -> QueueObject:
    if groups is item.spec.resource_groups:
        return item
    return item.model_copy(update={"spec": item.spec.model_copy(update={"resource_groups": groups})})


def quota_changes(item: QueueObject, now: float, until: float) -> Iterator[tuple[float, QueueObject]]:
    """Yield the changes of a queue object's quotas by its calendar between two instants (s): when, and the object."""
    calendar = item.spec.calendar if isinstance(item, ClusterQueue | Cohort) else None
    if calendar is None:
        return
    before = quotas_at(item, now)
    for at in calendar.changes(now, until):
        changed = quotas_at(before, at)
        if changed is not before:
            yield at, changed
        before = changed


QueueObject: TypeAlias = (
    ResourceFlavor
    | ClusterQueue
    | Cohort
    | LocalQueue
    | WorkloadPriorityClass
    | AdmissionCheck
    | ProvisioningRequestConfig
    | Topology
    | Budget
    | Reservation
    | Drain
    | UserLimit
    | PriceBook
    | BudgetRequest
    | Subscription
    | Cluster
)
QUEUE_OBJECTS: tuple[type[QueueObject], ...] = (
    Topology,
    Cluster,
    ResourceFlavor,
    WorkloadPriorityClass,
    ProvisioningRequestConfig,
    AdmissionCheck,
    Cohort,
    ClusterQueue,
    LocalQueue,
    Budget,
    Reservation,
    Drain,
    UserLimit,
    PriceBook,
    BudgetRequest,
    Subscription,
)
"""The classes of all queue objects, each kind before the kinds that name it."""

MODELS: dict[str, type[QueueObject]] = {cls.kind: cls for cls in QUEUE_OBJECTS}
"""The classes by kind."""
