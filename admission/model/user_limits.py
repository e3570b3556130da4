"""Spec of a UserLimit: what one person may have running and waiting. An extension: Kueue has no such object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self, TypeAlias

from pydantic import Field, model_validator

from admission.model.base import FieldFaultsError, Model, OptionalName, QualifiedName, Quantity
from admission.model.quantity import amount

Subject: TypeAlias = Annotated[str, Field(min_length=1, max_length=1024)]
"""Name of a user or group, as the API server has authenticated it."""
_Number: TypeAlias = Annotated[int, Field(strict=True, ge=0, le=10**7)]


class UserLimitSpec(Model):
    """What each user may have at the same time, in a ClusterQueue or in all of them."""

    cluster_queue: OptionalName = ""
    """The ClusterQueue in which it counts; not given: all of them together."""
    users: Annotated[tuple[Subject, ...], Field(max_length=1024)] = ()
    """The users for whom it holds, instead of limits for groups and for everybody."""
    groups: Annotated[tuple[Subject, ...], Field(max_length=1024)] = ()
    """Groups for whose members it holds, instead of limits for everybody. Neither users nor groups: everybody."""
    together: bool = False
    """Whether all of them share it, instead of each user having it. Such a limit replaces no other one."""
    running: _Number | None = None
    """Workloads that hold quota; not given: no limit."""
    pending: _Number | None = None
    """Workloads that wait to be admitted: others are held until one of these has been; not given: no limit."""
    submitted: _Number | None = None
    """Workloads that wait or hold quota: others are held until one of these has ended; not given: no limit."""
    resources: Annotated[Mapping[QualifiedName, Quantity], Field(max_length=16)] = Field(default_factory=dict)
    """Amount by resource that the pods of workloads that hold quota may request; no limit of others."""

    @model_validator(mode="after")
    def _is_not_empty(self) -> Self:
        subjects = (*self.users, *self.groups)
        if not subjects and not self.resources and (self.running, self.pending, self.submitted) == (None,) * 3:
            raise FieldFaultsError([("", "limits nothing: give running, pending, submitted or resources")])
        return self

    def amounts(self) -> dict[str, int]:
        """Return `resources` in the model's units: thousandths of a core, bytes, devices."""
        return {name: amount(name, quantity) for name, quantity in self.resources.items()}
