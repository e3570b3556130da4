"""Amounts as people say them."""

from __future__ import annotations

from typing import Final

from admission.cli.demo.plan import GPU

_NAMES: Final = {"cpu": "CPU", GPU: "GPU", "memory": "Memory"}


def name_of(resource: str) -> str:
    """`CPU` for `cpu`."""
    return _NAMES.get(resource, resource)


def plain(resource: str, amount: int) -> float:
    """An amount in units of the resource: 1.5 for 1500 milli-CPUs."""
    return amount / 1000 if resource == "cpu" else float(amount)


def shown(resource: str, amount: int) -> str:
    """The same as a text, with no more digits than needed."""
    return f"{round(plain(resource, amount), 1):g}"
