"""Spec of a ProvisioningRequestConfig: how an autoscaler is asked for nodes before a workload starts.

Fields, defaults and limits are Kueue's. The requests themselves are of `autoscaling.x-k8s.io/v1`, which an autoscaler
of the cluster answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from admission.model.base import FieldFaultsError, Model, Name, QualifiedName

CONTROLLER: Final = "kueue.x-k8s.io/provisioning-request"
"""`spec.controllerName` of the AdmissionChecks that the leader answers by itself."""
_Seconds = Annotated[int, Field(strict=True, ge=0, lt=2**31)]
_Value = Annotated[str, Field(max_length=255)]


class ProvisioningRetryStrategy(Model):
    """When a request that has failed, or whose booking has expired, is made again."""

    backoff_limit_count: Annotated[int, Field(strict=True, ge=0, lt=2**31)] = 3
    """How often a request is made again; then the workload is deactivated."""
    backoff_base_seconds: _Seconds = 60
    """Seconds before the first repetition; each further one takes twice as long."""
    backoff_max_seconds: _Seconds = 1800
    """Seconds before a repetition at most."""

    def pause(self, attempt: int) -> int:
        """Return the seconds to wait after an attempt, of which 1 is the first."""
        return min(self.backoff_base_seconds << min(attempt - 1, 31), self.backoff_max_seconds)


class ProvisioningNodeSelector(Model):
    """A label of the provisioned nodes."""

    key: QualifiedName
    """The key of the label."""
    value_from_provisioning_class_detail: Annotated[str, Field(min_length=1, max_length=32768)]
    """The key of `status.provisioningClassDetails` of the request that has the label's value."""


class ProvisioningPodSetUpdates(Model):
    """What is added to the pods of a workload whose nodes were provisioned."""

    node_selector: Annotated[tuple[ProvisioningNodeSelector, ...], Field(max_length=8)] = ()
    """Labels that their nodes must have."""


class ProvisioningRequestConfigSpec(Model):
    """How nodes are requested."""

    provisioning_class_name: Name
    """The mode of provisioning, such as `check-capacity.autoscaling.x-k8s.io`."""
    parameters: Annotated[Mapping[_Value, _Value], Field(max_length=100)] = Field(default_factory=dict)
    """Parameters of the mode. An annotation `provreq.kueue.x-k8s.io/KEY` of a Job adds or replaces one."""
    managed_resources: Annotated[tuple[QualifiedName, ...], Field(max_length=100)] = ()
    """Only nodes for pods that request one of these resources are requested; empty: for all pods."""
    retry_strategy: ProvisioningRetryStrategy = ProvisioningRetryStrategy()
    """When a request is made again."""
    pod_set_updates: ProvisioningPodSetUpdates = ProvisioningPodSetUpdates()
    """What is added to the pods, beside the annotations by which the autoscaler knows them."""
    pod_set_merge_policy: Literal["IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"] | None = None
    """Which pod sets are requested together: those with equal templates, or with equal requests and constraints of
    scheduling. Not given: none."""

    @model_validator(mode="after")
    def _base_is_within_the_maximum(self) -> Self:
        retry = self.retry_strategy
        if retry.backoff_base_seconds > retry.backoff_max_seconds:
            message = f"{retry.backoff_base_seconds} is more than the backoffMaxSeconds of {retry.backoff_max_seconds}"
            raise FieldFaultsError([("retryStrategy.backoffBaseSeconds", message)])
        return self
