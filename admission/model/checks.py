"""What an admission check says of a workload that holds quota, in the fields of Kueue's `status.admissionChecks`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from admission.model.base import FieldFaultsError, Labels, Model, Name, QualifiedName
from admission.model.queues import FlavorToleration

CheckState: TypeAlias = Literal["Pending", "Ready", "Retry", "Rejected"]
"""Pending: not known yet. Ready: it may start. Retry: not now, evict it. Rejected: never, deactivate it."""


class PodSetUpdate(Model):
    """What a check adds to the pods of one pod set. It may repeat what is there, but not change it."""

    name: Name
    """Of the pod set."""
    labels: Labels = Field(default_factory=dict)
    """What its pods are labelled with."""
    annotations: Mapping[QualifiedName, str] = Field(default_factory=dict)
    """What its pods are annotated with."""
    node_selector: Labels = Field(default_factory=dict)
    """Labels that their nodes must have."""
    tolerations: Annotated[tuple[FlavorToleration, ...], Field(max_length=8)] = ()
    """What they tolerate."""


class CheckReport(Model):
    """The answer of one check."""

    name: Name
    """Of the AdmissionCheck."""
    state: CheckState
    """Pending: not known yet. Ready: it may start. Retry: evict it, and try later. Rejected: it may never start."""
    message: Annotated[str, Field(max_length=32768)] = ""
    """Why, for people."""
    requeue_after_seconds: Annotated[int, Field(strict=True, ge=0, lt=2**31)] | None = None
    """With Retry: the workload takes no part in cycles for so long."""
    pod_set_updates: Annotated[tuple[PodSetUpdate, ...], Field(max_length=18)] = ()
    """With Ready: what its pods get."""

    @model_validator(mode="after")
    def _one_update_for_each_pod_set(self) -> Self:
        names = [update.name for update in self.pod_set_updates]
        for position, name in enumerate(names):
            if name in names[:position]:
                raise FieldFaultsError([(f"podSetUpdates[{position}].name", f'"{name}" is named twice')])
        return self
