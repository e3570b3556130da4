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

StopPolicy: TypeAlias = Literal["None", "Hold", "HoldAndDrain"]
FungibilityPolicy: TypeAlias = Literal["MayStopSearch", "TryNextFlavor"]
TaintEffect: TypeAlias = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class FlavorFungibility(Model):
    """Whether the search for a flavor stops at one in which the workload has to borrow or to preempt."""

    when_can_borrow: FungibilityPolicy = "MayStopSearch"
    when_can_preempt: FungibilityPolicy = "TryNextFlavor"
    preference: Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"] | None = None


class BorrowWithinCohort(Model):
    """Whether a workload that has to borrow may preempt in other ClusterQueues (classical preemption only)."""

    policy: Literal["Never", "LowerPriority"] = "Never"
    max_priority_threshold: Int32 | None = None


class Preemption(Model):
    """Whose quota a workload of this ClusterQueue may take."""

    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "Never"
    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = "Never"
    borrow_within_cohort: BorrowWithinCohort = BorrowWithinCohort()

    @model_validator(mode="after")
    def _borrowing_needs_reclaiming(self) -> Self:
        if self.reclaim_within_cohort == "Never" and self.borrow_within_cohort.policy != "Never":
            raise FieldFaultsError([("borrowWithinCohort.policy", "must be Never while reclaimWithinCohort is Never")])
        return self


class AdmissionCheckRule(Model):
    """An admission check, and the flavors that need it; none listed: all."""

    name: Name
    on_flavors: Annotated[tuple[Name, ...], Field(max_length=64)] = ()


class AdmissionChecksStrategy(Model):
    """Which admission checks a ClusterQueue asks for."""

    admission_checks: Annotated[tuple[AdmissionCheckRule, ...], Field(max_length=64)] = ()


class AdmissionScope(Model):
    """Whether LocalQueues that used less come first."""

    admission_mode: Literal["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"]


class ClusterQueueSpec(Model):
    """A leaf of the quota tree."""

    resource_groups: ResourceGroups = ()
    cohort_name: OptionalName = ""
    queueing_strategy: Literal["BestEffortFIFO", "StrictFIFO"] = "BestEffortFIFO"
    namespace_selector: LabelSelector | None = None
    """Which namespaces may submit; None: none."""
    flavor_fungibility: FlavorFungibility = FlavorFungibility()
    preemption: Preemption = Preemption()
    admission_checks_strategy: AdmissionChecksStrategy | None = None
    stop_policy: StopPolicy = "None"
    fair_sharing: FairSharing | None = None
    admission_scope: AdmissionScope | None = None

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
    resource_groups: ResourceGroups = ()
    fair_sharing: FairSharing | None = None

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
    """A namespace's door to a ClusterQueue."""

    cluster_queue: Name
    stop_policy: StopPolicy = "None"
    fair_sharing: FairSharing | None = None


class Taint(Model):
    """A taint of the nodes of a flavor."""

    key: QualifiedName
    value: LabelValue = ""
    effect: TaintEffect


class FlavorToleration(Model):
    """A toleration that is given to the pods that get the flavor; the fields are a pod toleration's."""

    key: OptionalQualifiedName = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: LabelValue = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    toleration_seconds: Annotated[int, Field(strict=True)] | None = None

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
    node_taints: Annotated[tuple[Taint, ...], Field(max_length=8)] = ()
    tolerations: Annotated[tuple[FlavorToleration, ...], Field(max_length=8)] = ()
    topology_name: Name | None = None

    @model_validator(mode="after")
    def _topology_needs_labels(self) -> Self:
        if self.topology_name is not None and not self.node_labels:
            raise FieldFaultsError([("nodeLabels", "must not be empty when topologyName is set")])
        return self


class _Named(Model):
    kind: ClassVar[str]
    plural: ClassVar[str]
    namespaced: ClassVar[bool] = False

    metadata: ObjectMeta

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

    spec: ResourceFlavorSpec = ResourceFlavorSpec()


class ClusterQueue(_Named):
    """A leaf of the quota tree: nominal quota, borrowing and lending limit for each flavor and resource."""

    kind = "ClusterQueue"
    plural = "clusterqueues"

    spec: ClusterQueueSpec = ClusterQueueSpec()


class Cohort(_Named):
    """An inner node of the quota tree."""

    kind = "Cohort"
    plural = "cohorts"

    spec: CohortSpec = CohortSpec()

    @model_validator(mode="after")
    def _not_its_own_parent(self) -> Self:
        if self.spec.parent_name == self.name:
            raise FieldFaultsError([("spec.parentName", "must not be the Cohort itself")])
        return self


class LocalQueue(_Named):
    """A namespace's door to a ClusterQueue; the label on a Job names it."""

    kind = "LocalQueue"
    plural = "localqueues"
    namespaced = True

    spec: LocalQueueSpec


class WorkloadPriorityClass(_Named):
    """A named priority. Changing the value does not touch workloads that are queued already."""

    kind = "WorkloadPriorityClass"
    plural = "workloadpriorityclasses"

    value: Int32
    description: Annotated[str, Field(max_length=2048)] = ""


QueueObject: TypeAlias = ResourceFlavor | ClusterQueue | Cohort | LocalQueue | WorkloadPriorityClass
QUEUE_OBJECTS: tuple[type[QueueObject], ...] = (ResourceFlavor, WorkloadPriorityClass, Cohort, ClusterQueue, LocalQueue)
"""All of them, each kind before those that name it."""
