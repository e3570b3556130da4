"""Quota fields of ClusterQueues and Cohorts, and their cross-field validation (the rules of Kueue's webhooks)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self, TypeAlias

from pydantic import Field, model_validator

from admission.model.base import FieldFaultsError, Model, Name, QualifiedName, Quantity
from admission.model.quantity import amount, parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from admission.model.calendars import Calendar

_MAX_TOTAL = 256  # flavors, and resources, of all groups of one object together


class QuotaFromNodes(Model):
    """A nominal quota that follows the nodes of the flavor. An extension: in Kueue quota is a number.

    The nodes that count are ready, not cordoned, have the labels of the flavor, and no taint that it does not tolerate.
    """

    percent: Annotated[int, Field(strict=True, ge=1, le=100)] = 100
    """The share of what these nodes can allocate."""
    minus: Quantity = "0"
    """What is taken off that share, such as a reserve."""
    min: Quantity = "0"
    """The least that the quota is, however few nodes there are."""
    max: Quantity | None = None
    """The most that the quota is; not given: any amount."""
    shrink_after_seconds: Annotated[int, Field(strict=True, ge=0, le=7 * 24 * 3600)] = 300
    """Seconds for which nodes must be missing before the quota shrinks; it grows at once."""

    def nominal(self, resource: str, capacity: int) -> int:
        """Return the nominal quota of a resource of which the nodes have `capacity`, both as amounts."""
        share = capacity * self.percent // 100 - amount(resource, self.minus)
        most = share if self.max is None else min(share, amount(resource, self.max))
        return max(most, amount(resource, self.min), 0)


class ResourceQuota(Model):
    """Quota of one resource in one flavor: nominal quota, borrowing limit and lending limit."""

    name: QualifiedName
    """The resource, such as cpu, memory or nvidia.com/gpu."""
    nominal_quota: Quantity = "0"
    """The amount that the queue has for itself. Required, unless it is written by Sluice because of `fromNodes`."""
    from_nodes: QuotaFromNodes | None = None
    """Has Sluice write nominalQuota as the nodes of the flavor change; not given: it stays as it is written."""
    current_quota: Quantity | None = None
    """The quota that applies now in place of nominalQuota, as the calendar has it. Sluice writes it."""
    borrowing_limit: Quantity | None = None
    """The most that the queue may borrow from its Cohort above the nominal quota; not given: all unused quota there."""
    lending_limit: Quantity | None = None
    """The most of the unused nominal quota that other queues of the Cohort may borrow; not given: all of it."""

    @property
    def nominal(self) -> int:
        """The nominal quota that applies, as an amount."""
        return amount(self.name, self.nominal_quota if self.current_quota is None else self.current_quota)

    @property
    def borrowing(self) -> int | None:
        """The borrowing limit, as an amount; None: no limit."""
        return None if self.borrowing_limit is None else amount(self.name, self.borrowing_limit)

    @property
    def lending(self) -> int | None:
        """The lending limit, as an amount; None: all of the nominal quota."""
        return None if self.lending_limit is None else amount(self.name, self.lending_limit)

    @model_validator(mode="after")
    def _has_a_nominal_quota(self) -> Self:
        if self.from_nodes is None and "nominal_quota" not in self.model_fields_set:
            raise FieldFaultsError([("nominalQuota", "is required")])
        rule = self.from_nodes
        if rule is not None and rule.max is not None and amount(self.name, rule.max) < amount(self.name, rule.min):
            raise FieldFaultsError([("fromNodes.max", f"{rule.max} is less than min, {rule.min}")])
        return self


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


def quotas_by_flavor(groups: tuple[ResourceGroup, ...]) -> dict[tuple[str, str], ResourceQuota]:
    """Return all quotas by flavor and resource."""
    return {
        (flavor.name, quota.name): quota for group in groups for flavor in group.flavors for quota in flavor.resources
    }


def with_quotas_kept(new: tuple[ResourceGroup, ...], old: tuple[ResourceGroup, ...]) -> tuple[ResourceGroup, ...]:
    """Return `new` with what Sluice has written in `old`, where `new` has none: quotas by nodes, and by a calendar."""
    known = quotas_by_flavor(old)

    def kept(flavor: str, quota: ResourceQuota) -> ResourceQuota:
        before = known.get((flavor, quota.name))
        update: dict[str, str] = {}
        if quota.from_nodes is not None and "nominal_quota" not in quota.model_fields_set:
            update["nominal_quota"] = "0" if before is None else before.nominal_quota
        if before is not None and before.current_quota is not None and quota.current_quota is None:
            update["current_quota"] = before.current_quota
        return quota.model_copy(update=update) if update else quota

    changed = with_quotas(new, kept)
    return new if changed == new else changed


def with_calendar(
    groups: tuple[ResourceGroup, ...], calendar: Calendar | None, now: float
) -> tuple[ResourceGroup, ...]:
    """Return the groups with the quotas that apply at an instant (s since the epoch); the same ones if they do."""
    applied = {} if calendar is None else calendar.at(now)

    def current(flavor: str, quota: ResourceQuota) -> ResourceQuota:
        found = applied.get((flavor, quota.name))
        given = None if found is None else found.nominal_quota
        return quota if quota.current_quota == given else quota.model_copy(update={"current_quota": given})

    if calendar is None and all(quota.current_quota is None for _, quota in quotas(groups)):
        return groups  # nearly always
    changed = with_quotas(groups, current)
    return groups if changed == groups else changed


def with_quotas(
    groups: tuple[ResourceGroup, ...], change: Callable[[str, ResourceQuota], ResourceQuota]
) -> tuple[ResourceGroup, ...]:
    """Return the groups with the quotas that `change` returns for the name of a flavor and a quota of it."""
    return tuple(
        group.model_copy(
            update={
                "flavors": tuple(
                    flavor.model_copy(
                        update={"resources": tuple(change(flavor.name, quota) for quota in flavor.resources)}
                    )
                    for flavor in group.flavors
                )
            }
        )
        for group in groups
    )


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


def calendar_faults(groups: tuple[ResourceGroup, ...], calendar: Calendar | None) -> Iterator[tuple[str, str]]:
    """Yield faults of a calendar, as (path below `spec`, message): it gives quotas that the groups do not have."""
    if calendar is None:
        return
    known = quotas_by_flavor(groups)
    for i, entry in enumerate(calendar.entries):
        for j, quota in enumerate(entry.quotas):
            if (quota.flavor, quota.resource) not in known:
                text = f"resourceGroups have no quota of {quota.resource} in flavor {quota.flavor}"
                yield f"calendar.entries[{i}].quotas[{j}]", text


def limit_faults(groups: tuple[ResourceGroup, ...], parent: str, parent_field: str) -> Iterator[tuple[str, str]]:
    """Yield faults of borrowing and lending limits, which must not be set without a parent."""
    if parent:
        return
    for path, quota in quotas(groups):
        for name, limit in (("borrowingLimit", quota.borrowing_limit), ("lendingLimit", quota.lending_limit)):
            if limit is not None:
                yield f"{path}.{name}", f"must not be set without a {parent_field}"
