"""The queue objects that an admin writes, with the fields, defaults and limits of Kueue's `v1beta2` API.

Attributes are the fields in snake_case. Enums stay the strings that Kubernetes users know.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self, TypeAlias

from pydantic import Field, model_validator

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
    QualifiedName,
)
from admission.model.quotas import FairSharing, ResourceGroups, group_faults, limit_faults, quotas
from admission.model.references import Reference
from admission.model.subscriptions import SubscriptionSpec

StopPolicy: TypeAlias = Literal["None", "Hold", "HoldAndDrain"]
FungibilityPolicy: TypeAlias = Literal["MayStopSearch", "TryNextFlavor"]
TaintEffect: TypeAlias = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]

_LONGEST_DELAY = 365 * 24 * 3600  # seconds


class FlavorFungibility(Model):
    """Whether the search for a flavor stops at one in which the workload has to borrow or to preempt."""

    when_can_borrow: FungibilityPolicy = "MayStopSearch"
    """Whether a flavor in which the workload fits by borrowing is taken, or the next one tried first."""
    when_can_preempt: FungibilityPolicy = "TryNextFlavor"
    """Whether a flavor in which the workload fits by preempting is taken, or the next one tried first."""
    preference: Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"] | None = None
    """Which of the two is preferred, if every flavor needs one of them."""


class BorrowWithinCohort(Model):
    """Whether a workload that has to borrow may preempt in other ClusterQueues (classical preemption only)."""

    policy: Literal["Never", "LowerPriority"] = "Never"
    """Never, or workloads of lower priority."""
    max_priority_threshold: Int32 | None = None
    """Only workloads of at most this priority are preempted; not given: all of lower priority than the new one."""


class Preemption(Model):
    """Whose quota a workload of this ClusterQueue may take."""

    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "Never"
    """Which workloads of the same ClusterQueue may be preempted."""
    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = "Never"
    """Which workloads of other ClusterQueues that have borrowed its quota may be preempted."""
    borrow_within_cohort: BorrowWithinCohort = BorrowWithinCohort()
    """Whether workloads of other ClusterQueues may be preempted so that it can borrow."""

    @model_validator(mode="after")
    def _borrowing_needs_reclaiming(self) -> Self:
        if self.reclaim_within_cohort == "Never" and self.borrow_within_cohort.policy != "Never":
            raise FieldFaultsError([("borrowWithinCohort.policy", "must be Never while reclaimWithinCohort is Never")])
        return self


class AdmissionCheckRule(Model):
    """An admission check, and the flavors that need it; none listed: all."""

    name: Name
    """The AdmissionCheck."""
    on_flavors: Annotated[tuple[Name, ...], Field(max_length=64)] = ()
    """The ResourceFlavors whose workloads need it; empty: all."""


class AdmissionChecksStrategy(Model):
    """Which admission checks a ClusterQueue asks for."""

    admission_checks: Annotated[tuple[AdmissionCheckRule, ...], Field(max_length=64)] = ()
    """All of which must be Ready before a workload that has got quota may start."""


class AdmissionScope(Model):
    """Whether LocalQueues that used less come first."""

    admission_mode: Literal["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"]
    """Whether the LocalQueues of this ClusterQueue take turns by what they have used."""


class OverQuota(Model):
    """What becomes of running workloads when quota was lowered below their use. An extension: Kueue lets them run."""

    evict_after_seconds: Annotated[int, Field(strict=True, ge=0, le=_LONGEST_DELAY)] = 300
    """How long the ClusterQueue may use more than it is allowed to; then what it uses beyond its quota is evicted."""


class ClusterQueueSpec(Model):
    """A leaf of the quota tree."""

    resource_groups: ResourceGroups = ()
    """The quota: for each group of resources, the flavors in which there is some."""
    cohort_name: OptionalName = ""
    """The Cohort whose members lend each other idle quota; empty: none."""
    queueing_strategy: Literal["BestEffortFIFO", "StrictFIFO"] = "BestEffortFIFO"
    """Whether a workload that does not fit lets later ones pass (BestEffortFIFO) or blocks them (StrictFIFO)."""
    namespace_selector: LabelSelector | None = None
    """Which namespaces may submit, by their labels; an empty selector: all, not given: none."""
    flavor_fungibility: FlavorFungibility = FlavorFungibility()
    """When to take a flavor that needs borrowing or preemption instead of trying the next one."""
    preemption: Preemption = Preemption()
    """Which running workloads may be stopped for waiting ones."""
    admission_checks_strategy: AdmissionChecksStrategy | None = None
    """Conditions beside quota that workloads must meet before they start."""
    stop_policy: StopPolicy = "None"
    """Hold: admit nothing more. HoldAndDrain: evict what runs, too. None: work as usual."""
    fair_sharing: FairSharing | None = None
    """Its weight when the idle quota of the Cohort is divided."""
    admission_scope: AdmissionScope | None = None
    """How its LocalQueues share it."""
    over_quota: OverQuota | None = None
    """Whether it converges to a quota that was lowered below its use; None: what runs may run on."""

    @model_validator(mode="after")
    def _groups_are_consistent(self) -> Self:
        faults = [
            *group_faults(self.resource_groups),
            *limit_faults(self.resource_groups, self.cohort_name, "cohortName"),
        ]
        for path, quota in quotas(self.resource_groups):
            if quota.lending is not None and quota.lending > quota.nominal:
                message = f"{quota.lending_limit} is more than the nominalQuota of {quota.nominal_quota}"
                faults.append((f"{path}.lendingLimit", message))
        if faults:
            raise FieldFaultsError(faults)
        return self


class CohortSpec(Model):
    """An inner node of the quota tree; its quota is on top of that of its members."""

    parent_name: OptionalName = ""
    """The Cohort that it is a member of; empty: it is the root of a tree."""
    resource_groups: ResourceGroups = ()
    """Quota that all members may borrow."""
    fair_sharing: FairSharing | None = None
    """Its weight when the idle quota of the parent is divided."""

    @model_validator(mode="after")
    def _groups_are_consistent(self) -> Self:
        faults = [
            *group_faults(self.resource_groups),
            *limit_faults(self.resource_groups, self.parent_name, "parentName"),
        ]
        if faults:
            raise FieldFaultsError(faults)
        return self


class LocalQueueSpec(Model):
    """The queue of a namespace, served by one ClusterQueue."""

    cluster_queue: Name
    """The ClusterQueue that its workloads wait in."""
    stop_policy: StopPolicy = "None"
    """Hold: admit nothing more of it. HoldAndDrain: evict what runs, too. None: work as usual."""
    fair_sharing: FairSharing | None = None
    """Its weight beside the other LocalQueues of the ClusterQueue, if that has an admissionScope."""


class Taint(Model):
    """A taint of the nodes of a flavor."""

    key: QualifiedName
    """The key of the taint."""
    value: LabelValue = ""
    """The value of the taint."""
    effect: TaintEffect
    """What becomes of pods that do not tolerate it."""


class FlavorToleration(Model):
    """A toleration that is given to the pods that get the flavor; the fields are a pod toleration's."""

    key: OptionalQualifiedName = ""
    """The taint that is tolerated; empty: all, with operator Exists."""
    operator: Literal["Equal", "Exists"] = "Equal"
    """Whether the value of the taint must be the same, too."""
    value: LabelValue = ""
    """The value of the taint, with operator Equal."""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    """The effect that is tolerated; empty: every one."""
    toleration_seconds: Annotated[int, Field(strict=True)] | None = None
    """For so many seconds, with effect NoExecute; not given: for ever."""

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
    """A kind of node."""

    node_labels: Annotated[Labels, Field(max_length=8)] = Field(default_factory=dict)
    """The labels of these nodes; pods that get the flavor are bound to them by node selectors."""
    node_taints: Annotated[tuple[Taint, ...], Field(max_length=8)] = ()
    """The taints of these nodes; only workloads that tolerate them get the flavor."""
    tolerations: Annotated[tuple[FlavorToleration, ...], Field(max_length=8)] = ()
    """What pods that get the flavor tolerate in addition."""
    topology_name: Name | None = None
    """Not acted on: Sluice does not look at the topology of nodes."""

    @model_validator(mode="after")
    def _topology_needs_labels(self) -> Self:
        if self.topology_name is not None and not self.node_labels:
            raise FieldFaultsError([("nodeLabels", "must not be empty when topologyName is set")])
        return self


class _Named(Model):
    kind: ClassVar[str]
    plural: ClassVar[str]
    short_names: ClassVar[tuple[str, ...]] = ()
    """What users may call it on a command line beside kind and plural."""
    namespaced: ClassVar[bool] = False
    references: ClassVar[tuple[Reference, ...]] = ()
    """The fields that name other queue objects."""

    metadata: ObjectMeta
    """The name, labels and versions of the object."""

    @property
    def name(self) -> str:
        """`metadata.name`."""
        return self.metadata.name

    @property
    def key(self) -> tuple[str, str, str]:
        """(kind, namespace or "", name): what identifies a queue object."""
        return self.kind, self.metadata.namespace, self.metadata.name


class ResourceFlavor(_Named):
    """A kind of node (labels, taints) that quota is given in."""

    kind = "ResourceFlavor"
    plural = "resourceflavors"
    short_names = ("rf", "flavor", "flavors")

    spec: ResourceFlavorSpec = ResourceFlavorSpec()
    """Which nodes, and how pods get there."""


class ClusterQueue(_Named):
    """A leaf of the quota tree: nominal quota, borrowing and lending limit for each flavor and resource."""

    kind = "ClusterQueue"
    plural = "clusterqueues"
    short_names = ("cq",)
    references = (
        Reference("Cohort", "spec.cohortName", column="parent", needed=False),
        Reference("ResourceFlavor", "spec.resourceGroups[].flavors[].name"),
        Reference("AdmissionCheck", "spec.admissionChecksStrategy.admissionChecks[].name"),
    )

    spec: ClusterQueueSpec = ClusterQueueSpec()
    """Quota, and how it is given away."""


class Cohort(_Named):
    """An inner node of the quota tree."""

    kind = "Cohort"
    plural = "cohorts"
    short_names = ("co",)
    references = (
        Reference("Cohort", "spec.parentName", column="parent", needed=False),
        Reference("ResourceFlavor", "spec.resourceGroups[].flavors[].name"),
    )

    spec: CohortSpec = CohortSpec()
    """Its place in the tree, and quota of its own."""

    @model_validator(mode="after")
    def _not_its_own_parent(self) -> Self:
        if self.spec.parent_name == self.name:
            raise FieldFaultsError([("spec.parentName", "must not be the Cohort itself")])
        return self


class LocalQueue(_Named):
    """The queue of a namespace, served by one ClusterQueue; the queue label of a Job names it."""

    kind = "LocalQueue"
    plural = "localqueues"
    short_names = ("lq", "queue", "queues")
    references = (Reference("ClusterQueue", "spec.clusterQueue", column="cluster_queue"),)
    namespaced = True

    spec: LocalQueueSpec
    """Where it leads, and whether it is open."""


class WorkloadPriorityClass(_Named):
    """A named priority. Changing the value does not touch workloads that are queued already."""

    kind = "WorkloadPriorityClass"
    plural = "workloadpriorityclasses"
    short_names = ("wpc",)

    value: Int32
    """The priority: the higher, the earlier."""
    description: Annotated[str, Field(max_length=2048)] = ""
    """What the class is for."""


class AdmissionCheckParameters(Model):
    """The object that configures a check; only the check's controller reads it."""

    api_group: Name
    """The API group of that object, such as `kueue.x-k8s.io`."""
    kind: Annotated[str, Field(min_length=1, max_length=63)]
    """The kind of that object, such as `ProvisioningRequestConfig`."""
    name: Name
    """The name of that object."""


class AdmissionCheckSpec(Model):
    """Who answers the check, and with which configuration."""

    controller_name: Annotated[str, Field(min_length=1, max_length=153)]
    """The controller that reports whether workloads pass, by its domain-prefixed name."""
    parameters: AdmissionCheckParameters | None = None
    """What configures the check, if its controller wants that."""


class AdmissionCheck(_Named):
    """A condition beside quota that workloads must meet before they start, judged by an external controller."""

    kind = "AdmissionCheck"
    plural = "admissionchecks"
    short_names = ("ac",)

    spec: AdmissionCheckSpec
    """Who answers, and how that is configured."""


class Subscription(_Named):
    """Who is notified of what happens to the workloads of a namespace. An extension: Kueue has no such object."""

    kind = "Subscription"
    plural = "subscriptions"
    short_names = ("sub", "subs")
    namespaced = True

    spec: SubscriptionSpec
    """What is told, and to whom."""


QueueObject: TypeAlias = (
    ResourceFlavor | ClusterQueue | Cohort | LocalQueue | WorkloadPriorityClass | AdmissionCheck | Subscription
)
QUEUE_OBJECTS: tuple[type[QueueObject], ...] = (
    ResourceFlavor,
    WorkloadPriorityClass,
    AdmissionCheck,
    Cohort,
    ClusterQueue,
    LocalQueue,
    Subscription,
)
"""All of them, each kind before those that name it."""
