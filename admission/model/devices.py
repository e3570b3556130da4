"""Rules by which devices of dynamic resource allocation (DRA) count against quota: `resources.deviceClassMappings`.

Names and rules are Kueue's (`apis/config/v1beta2/configuration_types.go` and `pkg/dra` at ff69552).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceSource:
    """Where the amount of a device is read from, instead of counting whole devices."""

    driver: str
    name: str
    """Name of a counter in the devices' `consumesCounters`, or of a capacity, such as `gpu.example.com/memory`."""
    selector: str
    """CEL expression of the devices that it concerns."""
    is_capacity: bool = False


@dataclass(frozen=True, slots=True)
class DeviceClassMapping:
    """The quota resource `name` for the devices of these DeviceClasses."""

    name: str
    device_classes: tuple[str, ...]
    sources: tuple[DeviceSource, ...] = ()
    """Empty: each device counts as one."""


@dataclass(frozen=True, slots=True)
class DeviceRules:
    """All mappings. Without any, nothing of DRA is watched."""

    mappings: tuple[DeviceClassMapping, ...] = ()
    ignore_unmapped: bool = False
    """Whether devices of classes in no mapping do not count; else a workload that requests some cannot be admitted."""

    @property
    def refuses_all(self) -> bool:
        """Whether no workload that requests devices by claim can be admitted."""
        return not self.mappings and not self.ignore_unmapped

    def of(self, device_class: str) -> tuple[DeviceClassMapping, ...]:
        """Return the mappings of a DeviceClass: several only if each has sources."""
        return tuple(each for each in self.mappings if device_class in each.device_classes)
