"""Quota fields of ClusterQueues and Cohorts, and their cross-field validation (the rules of Kueue's webhooks)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self, TypeAlias

from pydantic import Field, model_validator

from admission.model.base import FieldFaultsError, Model, Name, QualifiedName, Quantity
from admission.model.quantity import amount, parse_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_TOTAL = 256  # flavors, and resources, of all groups of one object together


class ResourceQuota(Model):
    """Quota of one resource in one flavor: nominal quota, borrowing limit and lending limit."""

    name: QualifiedName
    """The resource, such as cpu, memory or nvidia.com/gpu."""
    nominal_quota: Quantity
    """The amount that the queue has for itself."""
    borrowing_limit: Quantity | None = None
    """The most that the queue may borrow from its Cohort above the nominal quota; not given: all unused quota there."""
    lending_limit: Quantity | None = None
    """The most of the unused nominal quota that other queues of the Cohort may borrow; not given: all of it."""

    @property
    def nominal(self) -> int:
        """The nominal quota, as an amount."""
        return amount(self.name, self.nominal_quota)

    @property
    def borrowing(self) -> int | None:
        """The borrowing limit, as an amount; None: no limit."""
        return None if self.borrowing_limit is None else amount(self.name, self.borrowing_limit)

    @property
    def lending(self) -> int | None:
        """The lending limit, as an amount; None: all of the nominal quota."""
        return None if self.lending_limit is None else amount(self.name, self.lending_limit)


class FlavorQuotas(Model):
    """The quota of one flavor: one entry for each covered resource of its group, in the same order."""

    name: Name
    """The ResourceFlavor."""
    resources: Annotated[tuple[ResourceQuota, ...], Field(min_length=1, max_length=64)]
    """The quota of each covered resource, in the order of coveredResources."""


class ResourceGroup(Model):
    """Resources that are always taken from the same flavor, and the flavors in the order in which they are tried."""

    covered_resources: Annotated[tuple[QualifiedName, ...], Field(min_length=1, max_length=64)]
    """The resources that this group has quota for. No two groups of a queue share one."""
    flavors: Annotated[tuple[FlavorQuotas, ...], Field(min_length=1, max_length=64)]
    """The flavors and their quota, in the order in which they are tried."""


ResourceGroups: TypeAlias = Annotated[tuple[ResourceGroup, ...], Field(max_length=16)]


class FairSharing(Model):
    """Weight in fair sharing of unused quota."""

    weight: Quantity = "1"
    """The weight, relative to those of its siblings: its dominant resource share, or the usage of a LocalQueue, is
    divided by it. 0: all others come first."""

    @property
    def value(self) -> float:
        """The weight as the nearest IEEE double."""
        return float(parse_quantity(self.weight))

    @model_validator(mode="after")
    def _countable(self) -> Self:
        if 0 < parse_quantity(self.weight) * 10**9 <= 1:
            raise FieldFaultsError([("weight", f"must be 0 or greater than 1n, but is {self.weight}")])
        return self


def quotas(groups: tuple[ResourceGroup, ...]) -> Iterator[tuple[str, ResourceQuota]]:
    """Yield all quotas with their path below `spec`."""
    for i, group in enumerate(groups):
        for j, flavor in enumerate(group.flavors):
            for k, quota in enumerate(flavor.resources):
                yield f"resourceGroups[{i}].flavors[{j}].resources[{k}]", quota


def group_faults(groups: tuple[ResourceGroup, ...]) -> Iterator[tuple[str, str]]:
    """Yield faults of resource groups, as (path below `spec`, message).

    A resource and a flavor belong to one group only, and each flavor lists the resources of its group, in order.
    """
    resources: set[str] = set()
    flavors: set[str] = set()
    for i, group in enumerate(groups):
        for j, resource in enumerate(group.covered_resources):
            if resource in resources:
                yield f"resourceGroups[{i}].coveredResources[{j}]", f'"{resource}" is covered already'
            resources.add(resource)
        for j, flavor in enumerate(group.flavors):
            path = f"resourceGroups[{i}].flavors[{j}]"
            if flavor.name in flavors:
                yield f"{path}.name", f'"{flavor.name}" is used already; a flavor belongs to one group only'
            flavors.add(flavor.name)
            listed = tuple(quota.name for quota in flavor.resources)
            if listed != group.covered_resources:
                wanted = ", ".join(group.covered_resources)
                yield f"{path}.resources", f"must list exactly the coveredResources in their order ({wanted})"
    for what, count in (("flavors", len(flavors)), ("resources", len(resources))):
        if count > _MAX_TOTAL:
            yield "resourceGroups", f"must not have more than {_MAX_TOTAL} {what} in all"


def limit_faults(groups: tuple[ResourceGroup, ...], parent: str, parent_field: str) -> Iterator[tuple[str, str]]:
    """Yield faults of borrowing and lending limits, which must not be set without a parent."""
    if parent:
        return
    for path, quota in quotas(groups):
        for name, limit in (("borrowingLimit", quota.borrowing_limit), ("lendingLimit", quota.lending_limit)):
            if limit is not None:
                yield f"{path}.{name}", f"must not be set without a {parent_field}"
