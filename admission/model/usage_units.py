"""Units of usage over time for reports, by resource: core-hours, GiB-hours."""

from __future__ import annotations

from typing import Final, NamedTuple

_GIBI: Final = 2**30
_HOUR: Final = 3600


class UsageUnit(NamedTuple):
    """A unit of usage over time."""

    name: str
    """`core-hours`, `GiB-hours`, or `hours` of one unit of any other resource."""
    seconds: int
    """Resource-seconds per unit: core-seconds of cpu, byte-seconds of memory."""


def is_in_bytes(resource: str) -> bool:
    """Whether a resource is counted in bytes."""
    return resource in ("memory", "storage", "ephemeral-storage") or resource.startswith("hugepages-")


def usage_unit(resource: str) -> UsageUnit:
    """Return the unit for a resource."""
    if is_in_bytes(resource):
        return UsageUnit("GiB-hours", _GIBI * _HOUR)
    return UsageUnit("core-hours" if resource == "cpu" else "hours", _HOUR)
