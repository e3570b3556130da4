"""Resources and amounts in messages for users: `8 GPU`, `1.5 CPU`, `64Gi memory`; and of usage, such as core-hours."""

from __future__ import annotations

from typing import Final, NamedTuple

from admission.model.quantity import UNLIMITED, format_amount

_WORDS: Final = {"cpu": "CPU", "memory": "memory", "ephemeral-storage": "local storage"}
_GPU: Final = "/gpu"
"""End of the name of GPUs of all vendors that have them in whole units: `nvidia.com/gpu`, `amd.com/gpu`."""


def resource_word(resource: str) -> str:
    """Return the word that people use for a resource: `GPU` for `nvidia.com/gpu`; for others its name."""
    return "GPU" if resource.endswith(_GPU) else _WORDS.get(resource, resource)


def amount_number(resource: str, amount: int) -> str:
    """Return an amount without its resource: `8`, `1.5` (of CPU), `64Gi`; `unlimited` from UNLIMITED on."""
    if amount >= UNLIMITED:
        return "unlimited"
    if resource == "cpu" and amount % 1000:
        return f"{amount / 1000:.3f}".rstrip("0")
    return format_amount(resource, amount)


def amount_text(resource: str, amount: int) -> str:
    """Return an amount and its resource: `8 GPU`, `1.5 CPU`, `64Gi memory`; and of usage, such as core-hours."""
    return f"{amount_number(resource, amount)} {resource_word(resource)}"


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
