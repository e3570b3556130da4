"""The shape in which objects travel through the sandbox: raw JSON, treated as immutable once it is stored."""

from __future__ import annotations

import secrets
from typing import Any

# A Kubernetes object as JSON. Whoever receives a stored one must not change it: it is shared with every reader.
Object = dict[str, Any]

# Kubernetes leaves out vowels and digits that look like them, so that no word appears by chance.
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def random_suffix(length: int = 5) -> str:
    """What the API server appends to `generateName`."""
    return "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(length))


def labels_of(obj: Object) -> dict[str, str]:
    """The labels of an object, empty if it has none."""
    found: dict[str, str] = obj["metadata"].get("labels") or {}
    return found
