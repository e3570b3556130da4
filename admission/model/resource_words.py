"""Resources and amounts in messages for users: `8 GPU`, `1.5 CPU`, `64Gi memory`."""

from __future__ import annotations

from typing import Final

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
    """Return an amount and its resource: `8 GPU`, `1.5 CPU`, `64Gi memory`."""
    return f"{amount_number(resource, amount)} {resource_word(resource)}"
