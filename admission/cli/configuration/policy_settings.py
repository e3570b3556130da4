"""Settings of admission policies and retention, with the names and structure of Kueue's Configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from admission.controller.state.policy import ControllerPolicy, FailureRecoveryRules, UsageRules, WaitForPodsReady
from admission.engine import (
    Accounting,
    AdmissionFairSharing,
    Budgets,
    Dependencies,
    Reservations,
    TopologyRules,
    Transformation,
    UserLimits,
)
from admission.engine import Policy as EnginePolicy
from admission.engine.topology.placement import Rules as PlacementRules
from admission.kinds.device_selectors import LONGEST, SelectorError, selector
from admission.kinds.rules import EVERYTHING_IS_LABELLED, Unlabelled
from admission.model.base import FieldFaultsError, Model, Name, QualifiedName
from admission.model.devices import DeviceClassMapping, DeviceRules, DeviceSource
from admission.model.durations import format_duration, parse_duration
from admission.model.errors import InvalidQuantity
from admission.model.quantity import parse_quantity
from admission.store.retention import Retention


def _factor(value: object) -> str:
    if not isinstance(value, str | int | float):
        raise ValueError("must be a quantity such as 1 or 500m")  # noqa: TRY004
    try:
        parse_quantity(value)
    except InvalidQuantity as error:
        raise ValueError(error.causes[0][1]) from error
    return value if isinstance(value, str) else repr(value)


Duration = Annotated[float, BeforeValidator(parse_duration), PlainSerializer(format_duration, when_used="json")]
Count = Annotated[int, Field(strict=True, ge=0, lt=2**31)]
Strategy = Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"]
_STRATEGIES: Final[tuple[Strategy, ...]] = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")


class FairSharingSettings(Model):
    """Fair sharing by dominant resource share, in all cohorts. Enabled if the object is present."""

    enable: bool = True
    """Set to false to disable fair sharing and keep its settings."""
    preemption_strategies: tuple[Strategy, ...] = _STRATEGIES
    """Rules by which a workload may preempt others in its cohort: either or both, in this order. Default: both."""

    @model_validator(mode="after")
    def _known_order(self) -> Self:
        if self.preemption_strategies not in (_STRATEGIES, *((one,) for one in _STRATEGIES)):
            message = f"must be one of {', '.join(_STRATEGIES)}, or both in this order"
            raise FieldFaultsError([("preemptionStrategies", message)])
        return self


class AdmissionFairSharingSettings(Model):
    """Admission in the order of LocalQueues' recent usage, in ClusterQueues whose `admissionScope` enables it."""

    usage_half_life_time: Duration
    """Time after which past usage counts half; 0s: past usage does not count. Required."""
    usage_sampling_interval: Duration = 300.0
    """Period whose usage an admission adds to its LocalQueue at once, as an entry penalty. Default: 5m."""
    resource_weights: Mapping[QualifiedName, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(
        default_factory=dict
    )
    """Weight of a unit (core, byte, device) by resource; 1 for resources that are not listed."""


class ResourceTransformation(Model):
    """Conversion of the requests for one resource into requests for others, for quota."""

    input: QualifiedName
    """Resource that pods request."""
    strategy: Literal["Retain", "Replace"] = "Retain"
    """Retain (the default): the input counts as well; Replace: only the outputs count."""
    multiply_by: QualifiedName | None = None
    """Resource whose requested amount multiplies that of the input."""
    outputs: Mapping[QualifiedName, Annotated[str, BeforeValidator(_factor)]] = Field(default_factory=dict)
    """Amount of each output resource per unit of the input; a negative amount reduces that of other transformations."""


class DeviceSelectorExpression(Model):
    """An expression that selects devices."""

    expression: Annotated[str, Field(min_length=1, max_length=LONGEST)]
    """CEL expression about `device`, as in a DeviceClass."""

    @model_validator(mode="after")
    def _compiles(self) -> Self:
        try:
            selector(self.expression)
        except SelectorError as error:
            raise FieldFaultsError([("expression", str(error))]) from error
        return self


class DeviceSelectorSettings(Model):
    """Devices that a source concerns."""

    cel: DeviceSelectorExpression
    """By an expression."""


class _DeviceSourceSettings(Model):
    driver: Annotated[Name, Field(max_length=63)]
    """DRA driver of the devices: `spec.driver` of their ResourceSlices."""
    device_selector: DeviceSelectorSettings
    """Devices whose quota it is, such as those of one GPU model."""


class CounterSourceSettings(_DeviceSourceSettings):
    """A counter that partitions of a device consume, such as the memory of a GPU that is divided by MIG."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
    """Name of the counter in `consumesCounters` of the devices."""


class CapacitySourceSettings(_DeviceSourceSettings):
    """A capacity of devices that several claims may consume, such as the bandwidth of a network card."""

    name: Annotated[str, Field(pattern=r"^([A-Za-z0-9.-]{1,63}/)?[A-Za-z_][A-Za-z0-9_]{0,31}$")]
    """Name of the capacity, such as `gpu.example.com/memory`."""


class DeviceSourceSettings(Model):
    """Where the amount of a device is read from: either of the two."""

    counter: CounterSourceSettings | None = None
    """Counter of a partitionable device."""
    capacity: CapacitySourceSettings | None = None
    """Capacity of a device that is shared."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.counter is None) == (self.capacity is None):
            raise ValueError("exactly one source type must be set per entry: counter or capacity")
        return self

    def source(self) -> DeviceSource:
        """Return the rule."""
        found = self.counter or self.capacity
        assert found is not None
        expression = found.device_selector.cel.expression
        return DeviceSource(found.driver, found.name, expression, is_capacity=self.counter is None)


class DeviceClassMappingSettings(Model):
    """The quota resource of devices that are requested by ResourceClaims (dynamic resource allocation)."""

    name: QualifiedName
    """Resource that ClusterQueues have quota of, such as `example.com/gpu`."""
    device_class_names: Annotated[tuple[QualifiedName, ...], Field(min_length=1, max_length=8)]
    """DeviceClasses whose devices count as this resource."""
    sources: Annotated[tuple[DeviceSourceSettings, ...], Field(max_length=64)] = ()
    """Counters or capacities by which they count. Default: each device counts as one."""

    @model_validator(mode="after")
    def _are_of_one_kind(self) -> Self:
        if len({one.counter is None for one in self.sources}) > 1:
            raise FieldFaultsError([("sources", "cannot mix counter and capacity sources in the same mapping")])
        for position, name in enumerate(self.device_class_names):
            if name in self.device_class_names[:position]:
                raise FieldFaultsError([(f"deviceClassNames[{position}]", f'"{name}" is named twice')])
        return self

    @property
    def counters(self) -> frozenset[str]:
        """Names of the counters."""
        return frozenset(one.counter.name for one in self.sources if one.counter is not None)


def _mapping_faults(mappings: tuple[DeviceClassMappingSettings, ...]) -> list[tuple[str, str]]:
    """Return the faults between mappings: a class may be in several only if each counts another counter of it."""
    faults = []
    of: dict[str, list[DeviceClassMappingSettings]] = {}
    for position, mapping in enumerate(mappings):
        at = f"deviceClassMappings[{position}]"
        if any(mapping.name == other.name for other in mappings[:position]):
            faults.append((f"{at}.name", f'"{mapping.name}" has a mapping already'))
        for number, name in enumerate(mapping.device_class_names):
            for other in of.setdefault(name, []):
                if not mapping.counters or not other.counters:
                    faults.append((f"{at}.deviceClassNames[{number}]", f'"{name}" is mapped to {other.name} already'))
                elif twice := sorted(mapping.counters & other.counters):
                    message = f'"{name}" counts the counter {twice[0]} as {other.name} already'
                    faults.append((f"{at}.deviceClassNames[{number}]", message))
            of[name].append(mapping)
    return faults


class ResourcesSettings(Model):
    """Which resource requests of pods count against quota, and as which resources."""

    exclude_resource_prefixes: Annotated[tuple[str, ...], Field(max_length=64)] = ()
    """Resources whose names begin with one of these prefixes do not count."""
    transformations: Annotated[tuple[ResourceTransformation, ...], Field(max_length=64)] = ()
    """Conversions of requests, at most one for each input resource."""
    quota_check_strategy: Literal["BlockUndeclared", "IgnoreUndeclared"] = "BlockUndeclared"
    """Handling of requests for resources without quota in the ClusterQueue.

    BlockUndeclared (the default): they block admission; IgnoreUndeclared: they do not count."""
    device_class_mappings: Annotated[tuple[DeviceClassMappingSettings, ...], Field(max_length=16)] = ()
    """Quota resources of devices that are requested by ResourceClaims. Without any, no ResourceClaim is read."""
    unmapped_device_classes: Literal["Block", "Ignore"] = "Block"
    """Handling of requests for devices of a DeviceClass that no mapping names.

    Block (the default): they block admission; Ignore: they do not count."""

    @model_validator(mode="after")
    def _inputs_are_unique(self) -> Self:
        inputs = [one.input for one in self.transformations]
        for position, name in enumerate(inputs):
            if name in inputs[:position]:
                raise FieldFaultsError([(f"transformations[{position}].input", f'"{name}" is transformed already')])
        for position, prefix in enumerate(self.exclude_resource_prefixes):
            if not prefix:
                message = "must not be empty: that would exclude every resource"
                raise FieldFaultsError([(f"excludeResourcePrefixes[{position}]", message)])
        if faults := _mapping_faults(self.device_class_mappings):
            raise FieldFaultsError(faults)
        return self

    def devices(self) -> DeviceRules:
        """Return the rules for devices by claim."""
        mappings = tuple(
            DeviceClassMapping(one.name, one.device_class_names, tuple(each.source() for each in one.sources))
            for one in self.device_class_mappings
        )
        return DeviceRules(mappings, ignore_unmapped=self.unmapped_device_classes == "Ignore")


class TopologySettings(Model):
    """Placement by topology, for flavors that name a Topology."""

    balanced_placement: bool = False
    """Spread pods evenly over as few domains as possible if they prefer a level (Kueue's TASBalancedPlacement)."""
    respect_node_affinity_preferred: bool = False
    """Prefer the nodes of the pods' preferred node affinity (Kueue's TASRespectNodeAffinityPreferred)."""


class FailureRecoverySettings(Model):
    """Forced end of pods that stay terminating on unreachable nodes, if annotated as safe to forcefully delete."""

    forceful_termination_grace_period: Duration = FailureRecoveryRules().grace
    """Time after the end of a pod's own grace period. Default: 1m."""

    def rules(self) -> FailureRecoveryRules:
        """Return the controller's rules."""
        return FailureRecoveryRules(self.forceful_termination_grace_period)


class RequeuingStrategy(Model):
    """Requeueing of workloads that were evicted because their pods were not ready in time."""

    timestamp: Literal["Eviction", "Creation"] = "Eviction"
    """Eviction (the default): requeue at the end of the queue; Creation: keep the position in the queue."""
    backoff_limit_count: Count | None = None
    """Requeues after which the workload is deactivated. Default: no limit."""
    backoff_base_seconds: Count = 60
    """Backoff in seconds before the first requeue; it doubles with each further one. Default: 60."""
    backoff_max_seconds: Count = 3600
    """Longest backoff in seconds. Default: 3600."""


class WaitForPodsReadySettings(Model):
    """Eviction of admitted workloads whose pods are not all ready in time. Enabled if the object is present."""

    enable: bool = True
    """Set to false to disable it and keep its settings."""
    timeout: Duration = 1800.0
    """Time from admission until all pods have to be ready. Default: 30m."""
    recovery_timeout: Duration | None = None
    """Time for a pod that is no longer ready to recover; 0s: no limit. Default: `timeout`."""
    block_admission: bool = False
    """Admit no further workload while pods of an admitted workload are not ready. Default: false."""
    requeuing_strategy: RequeuingStrategy = RequeuingStrategy()
    """How evicted workloads are requeued."""

    @model_validator(mode="after")
    def _timeout_is_positive(self) -> Self:
        if not self.timeout:
            raise FieldFaultsError([("timeout", "must be more than 0s")])
        return self


def policy(
    *,
    fair_sharing: FairSharingSettings | None,
    admission_fair_sharing: AdmissionFairSharingSettings | None,
    resources: ResourcesSettings | None,
    wait_for_pods_ready: WaitForPodsReadySettings | None,
    topology: TopologySettings,
    failure_recovery: FailureRecoverySettings | None = None,
    lost_timeout: float = 900.0,
    unlabelled: Unlabelled = EVERYTHING_IS_LABELLED,
    measured: UsageRules | None = None,
) -> ControllerPolicy:
    """Return the policy of the controller and its engine that these settings describe."""
    rules = PlacementRules(balanced=topology.balanced_placement, prefers=topology.respect_node_affinity_preferred)
    # Budgets come first: a time at which they are asked again passes only when they are asked.
    policies = Budgets(), Dependencies(), Reservations(), UserLimits()
    engine: dict[str, Any] = {"topology": TopologyRules(rules), "policies": policies}
    if fair_sharing is not None and fair_sharing.enable:
        engine |= {"fair_sharing": True, "preemption_strategies": fair_sharing.preemption_strategies}
    if admission_fair_sharing is not None:
        usage = AdmissionFairSharing(
            half_life=admission_fair_sharing.usage_half_life_time,
            sampling_interval=admission_fair_sharing.usage_sampling_interval,
            resource_weights=admission_fair_sharing.resource_weights,
        )
        engine["policies"] = (*engine["policies"], usage)
    if resources is not None:
        engine["ignore_undeclared"] = resources.quota_check_strategy == "IgnoreUndeclared"
        engine["accounting"] = Accounting(
            excluded_prefixes=resources.exclude_resource_prefixes,
            transformations=tuple(map(_transformation, resources.transformations)),
        )
    devices = DeviceRules() if resources is None else resources.devices()
    pods_ready = _pods_ready(wait_for_pods_ready)
    recovery = None if failure_recovery is None else failure_recovery.rules()
    return ControllerPolicy(EnginePolicy(**engine), pods_ready, unlabelled, devices, recovery, lost_timeout, measured)


def _transformation(rule: ResourceTransformation) -> Transformation:
    return Transformation(
        input=rule.input,
        outputs={name: parse_quantity(amount) for name, amount in rule.outputs.items()},
        replace=rule.strategy == "Replace",
        multiply_by=rule.multiply_by or "",
    )


def _pods_ready(settings: WaitForPodsReadySettings | None) -> WaitForPodsReady | None:
    if settings is None or not settings.enable:
        return None
    strategy = settings.requeuing_strategy
    recovery = settings.timeout if settings.recovery_timeout is None else settings.recovery_timeout
    return WaitForPodsReady(
        timeout=settings.timeout,
        recovery_timeout=recovery or None,
        block_admission=settings.block_admission,
        count_from_eviction=strategy.timestamp == "Eviction",
        backoff_limit=strategy.backoff_limit_count,
        backoff_base=float(strategy.backoff_base_seconds),
        backoff_max=float(strategy.backoff_max_seconds),
    )


class RetentionSettings(Model):
    """How long finished workloads and audit records stay in the database. Aggregated usage is kept indefinitely."""

    finished: Duration = Retention().finished
    """Time to keep finished workloads, with their history and ledger rows. Default: 90d."""
    audit: Duration = Retention().audit
    """Time to keep audit records of writes through the API. Default: 365d."""

    def policy(self) -> Retention:
        """Return the store's retention policy."""
        return Retention(finished=self.finished, audit=self.audit)
