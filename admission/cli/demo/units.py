"""Names and amounts of resources, for display."""

from __future__ import annotations

from typing import Final

from admission.cli.demo.plan import GPU

_NAMES: Final = {"cpu": "CPU", GPU: "GPU", "memory": "Memory"}


def name_of(resource: str) -> str:
    """Return the display name of a resource: `CPU` for `cpu`."""
    return _NAMES.get(resource, resource)


def plain(resource: str, amount: int) -> float:
    """Return an amount in units of the resource: 1.5 for 1500 milli-CPU."""
    return amount / 1000 if resource == "cpu" else float(amount)


def shown(resource: str, amount: int) -> str:
    """Return an amount as text, with at most one decimal."""
    return f"{round(plain(resource, amount), 1):g}"
