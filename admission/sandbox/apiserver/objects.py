"""Kubernetes objects inside of the sandbox: raw JSON, treated as immutable once it is stored."""

from __future__ import annotations

import secrets
from typing import Any

# A Kubernetes object as JSON. A stored object must not be modified: all readers share it.
Object = dict[str, Any]

# Characters of generated names. Kubernetes leaves out vowels and digits that resemble them, so that no words appear.
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def random_suffix() -> str:
    """Return a suffix for `generateName`."""
    return "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(5))


def labels_of(obj: Object) -> dict[str, str]:
    """Return the labels of an object, empty if it has none."""
    found: dict[str, str] = obj["metadata"].get("labels") or {}
    return found
