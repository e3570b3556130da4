"""The unit in which people count how much of a resource was used for how long."""

from __future__ import annotations

from typing import Final, NamedTuple

_GIBI: Final = 2**30
_HOUR: Final = 3600


class UsageUnit(NamedTuple):
    """A unit of amounts over time."""

    name: str
    """`core-hours`, `GiB-hours`, or `hours` of one of whatever else there is."""
    seconds: int
    """Resource-seconds in one of it: of cpu core-seconds, of memory byte-seconds."""


def is_in_bytes(resource: str) -> bool:
    """Whether a resource is counted in bytes."""
    return resource in ("memory", "storage", "ephemeral-storage") or resource.startswith("hugepages-")


def usage_unit(resource: str) -> UsageUnit:
    """The unit for a resource."""
    if is_in_bytes(resource):
        return UsageUnit("GiB-hours", _GIBI * _HOUR)
    return UsageUnit("core-hours" if resource == "cpu" else "hours", _HOUR)
