"""The settings that decide who is admitted, in the names and shape of Kueue's Configuration, and what they come to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from admission.controller.state.policy import Policy, WaitForPodsReady
from admission.engine import Accounting, AdmissionFairSharing, Transformation
from admission.engine import Policy as EnginePolicy
from admission.kinds.rules import EVERYTHING_IS_LABELLED, Unlabelled
from admission.model.base import FieldFaultsError, Model, QualifiedName
from admission.model.errors import InvalidQuantity
from admission.model.quantity import parse_quantity
from admission.store.retention import Retention

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST: Final = 10 * 365 * 86400.0


def parse_duration(value: object) -> float:
    """Seconds of a duration such as `90s`, `1h30m` or `7d`, as Kubernetes and Go write it. Raises ValueError."""
    expected = "expected a duration such as 90s, 1h30m or 7d"
    if value == 0 and not isinstance(value, bool):
        return 0.0
    if not isinstance(value, str):
        raise ValueError(f"{expected}, in quotes")  # noqa: TRY004  pydantic reports ValueErrors only
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", value)
    if "".join(number + unit for number, unit in parts) != value or not parts:
        if value == "0":
            return 0.0
        raise ValueError(f'"{value}" is no duration; {expected}')
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if seconds > _LONGEST:
        raise ValueError(f'"{value}" is longer than ten years')
    return seconds


def _factor(value: object) -> str:
    if not isinstance(value, str | int | float):
        raise ValueError("must be a quantity such as 1 or 500m")  # noqa: TRY004
    try:
        parse_quantity(value)
    except InvalidQuantity as error:
        raise ValueError(error.causes[0][1]) from error
    return value if isinstance(value, str) else repr(value)


Duration = Annotated[float, BeforeValidator(parse_duration)]
Count = Annotated[int, Field(strict=True, ge=0, lt=2**31)]
Strategy = Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"]
_STRATEGIES: Final[tuple[Strategy, ...]] = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")


class FairSharingSettings(Model):
    """Fair sharing by dominant resource share, in all cohorts. That the object is there switches it on."""

    enable: bool = True
    preemption_strategies: tuple[Strategy, ...] = _STRATEGIES
    """One of the two, or both in this order."""

    @model_validator(mode="after")
    def _known_order(self) -> Self:
        if self.preemption_strategies not in (_STRATEGIES, *((one,) for one in _STRATEGIES)):
            message = f"must be one of {', '.join(_STRATEGIES)}, or both in this order"
            raise FieldFaultsError([("preemptionStrategies", message)])
        return self


class AdmissionFairSharingSettings(Model):
    """LocalQueues that used less come first, in ClusterQueues whose admissionScope says so."""

    usage_half_life_time: Duration
    """After which time past usage counts half; 0s forgets it at once."""
    usage_sampling_interval: Duration = 300.0
    """An admission costs at once what it would use in this time."""
    resource_weights: Mapping[QualifiedName, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(
        default_factory=dict
    )
    """How much a unit (core, byte, device) of each resource counts; 1 if not named."""


class ResourceTransformation(Model):
    """What pods request under one name counts under others."""

    input: QualifiedName
    strategy: Literal["Retain", "Replace"] = "Retain"
    """Whether the input itself still counts."""
    multiply_by: QualifiedName | None = None
    """A resource whose amount multiplies that of the input."""
    outputs: Mapping[QualifiedName, Annotated[str, BeforeValidator(_factor)]] = Field(default_factory=dict)
    """So much of each for every unit of the input; a negative amount is an allowance."""


class ResourcesSettings(Model):
    """What of a pod's requests counts, and as what."""

    exclude_resource_prefixes: Annotated[tuple[str, ...], Field(max_length=64)] = ()
    transformations: Annotated[tuple[ResourceTransformation, ...], Field(max_length=64)] = ()
    quota_check_strategy: Literal["BlockUndeclared", "IgnoreUndeclared"] = "BlockUndeclared"
    """What becomes of requests of resources that a ClusterQueue has no quota of."""

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        inputs = [one.input for one in self.transformations]
        for position, name in enumerate(inputs):
            if name in inputs[:position]:
                raise FieldFaultsError([(f"transformations[{position}].input", f'"{name}" is transformed already')])
        for position, prefix in enumerate(self.exclude_resource_prefixes):
            if not prefix:
                message = "must not be empty: that would exclude every resource"
                raise FieldFaultsError([(f"excludeResourcePrefixes[{position}]", message)])
        return self


class RequeuingStrategy(Model):
    """What becomes of a workload that was evicted because its pods were not ready in time."""

    timestamp: Literal["Eviction", "Creation"] = "Eviction"
    """Since when it counts as waiting then."""
    backoff_limit_count: Count | None = None
    """How often it may come back before it is deactivated; not given: always."""
    backoff_base_seconds: Count = 60
    backoff_max_seconds: Count = 3600


class WaitForPodsReadySettings(Model):
    """All pods of an admitted workload have to be ready in time. That the object is there switches it on."""

    enable: bool = True
    timeout: Duration = 1800.0
    recovery_timeout: Duration | None = None
    """After a pod that was ready is so no more; by default the timeout, and 0s: as long as it takes."""
    block_admission: bool = False
    requeuing_strategy: RequeuingStrategy = RequeuingStrategy()

    @model_validator(mode="after")
    def _takes_time(self) -> Self:
        if not self.timeout:
            raise FieldFaultsError([("timeout", "must be more than 0s")])
        return self


def policy(
    *,
    fair_sharing: FairSharingSettings | None,
    admission_fair_sharing: AdmissionFairSharingSettings | None,
    resources: ResourcesSettings | None,
    wait_for_pods_ready: WaitForPodsReadySettings | None,
    unlabelled: Unlabelled = EVERYTHING_IS_LABELLED,
) -> Policy:
    """What these settings come to."""
    engine: dict[str, Any] = {}
    if fair_sharing is not None and fair_sharing.enable:
        engine |= {"fair_sharing": True, "preemption_strategies": fair_sharing.preemption_strategies}
    if admission_fair_sharing is not None:
        usage = AdmissionFairSharing(
            half_life=admission_fair_sharing.usage_half_life_time,
            sampling_interval=admission_fair_sharing.usage_sampling_interval,
            resource_weights=admission_fair_sharing.resource_weights,
        )
        engine["policies"] = (usage,)
    if resources is not None:
        engine["ignore_undeclared"] = resources.quota_check_strategy == "IgnoreUndeclared"
        engine["accounting"] = Accounting(
            excluded_prefixes=resources.exclude_resource_prefixes,
            transformations=tuple(map(_transformation, resources.transformations)),
        )
    return Policy(engine=EnginePolicy(**engine), pods_ready=_pods_ready(wait_for_pods_ready), unlabelled=unlabelled)


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
    """How long what is over stays in the database. Usage that was summed up stays for ever."""

    finished: Duration = Retention().finished
    """Finished workloads, with their story and their rows of the ledger."""
    audit: Duration = Retention().audit
    """Records of who wrote what through the API."""

    def policy(self) -> Retention:
        """For the store."""
        return Retention(finished=self.finished, audit=self.audit)
