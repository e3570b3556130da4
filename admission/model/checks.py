"""Reports of admission checks about a workload that holds quota: the fields of Kueue's `status.admissionChecks`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from admission.model.base import FieldFaultsError, Labels, Model, Name, QualifiedName
from admission.model.queues import FlavorToleration

CheckState: TypeAlias = Literal["Pending", "Ready", "Retry", "Rejected"]
"""Pending: not decided. Ready: may start. Retry: is evicted and requeued. Rejected: is evicted and deactivated."""


class PodSetUpdate(Model):
    """What a check adds to the pods of one pod set. It may repeat values of the pod template, but not change them."""

    name: Name
    """The name of the pod set."""
    labels: Labels = Field(default_factory=dict)
    """Labels to add to the pods."""
    annotations: Mapping[QualifiedName, str] = Field(default_factory=dict)
    """Annotations to add to the pods."""
    node_selector: Labels = Field(default_factory=dict)
    """Labels that the nodes of the pods must have, in addition."""
    tolerations: Annotated[tuple[FlavorToleration, ...], Field(max_length=8)] = ()
    """Tolerations to add to the pods."""


class CheckReport(Model):
    """The state of one admission check for a workload."""

    name: Name
    """The name of the AdmissionCheck."""
    state: CheckState
    """Pending: not decided yet. Ready: the workload may start. Retry: evict it and try again later. Rejected: evict and
    deactivate it."""
    message: Annotated[str, Field(max_length=32768)] = ""
    """Why, for users."""
    requeue_after_seconds: Annotated[int, Field(strict=True, ge=0, lt=2**31)] | None = None
    """With Retry: seconds before the evicted workload is tried again."""
    pod_set_updates: Annotated[tuple[PodSetUpdate, ...], Field(max_length=18)] = ()
    """With Ready: what is added to its pods."""

    @model_validator(mode="after")
    def _one_update_for_each_pod_set(self) -> Self:
        names = [update.name for update in self.pod_set_updates]
        for position, name in enumerate(names):
            if name in names[:position]:
                raise FieldFaultsError([(f"podSetUpdates[{position}].name", f'"{name}" is named twice')])
        return self
