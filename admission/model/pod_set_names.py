"""Names of pod sets in messages. Those of pods that are grouped by what they request are hashes, which say nothing."""

from __future__ import annotations

import re
from typing import Final

ROLE: Final = re.compile(r"[0-9a-f]{32}-[0-9a-f]{6}", re.ASCII)
"""A name that was computed from what the pods request and where they may run."""


def is_computed(name: str) -> bool:
    """Whether the name of a pod set is computed, and not one that a user gave."""
    return ROLE.fullmatch(name) is not None


def subject(name: str) -> str:
    """Return the beginning of a sentence: `Pod set main does`, or `Its pods do` for a computed name."""
    return "Its pods do" if is_computed(name) else f"Pod set {name} does"


def titled(name: str) -> str:
    """Return `pod set main`, or `its pods` for a computed name."""
    return "its pods" if is_computed(name) else f"pod set {name}"
