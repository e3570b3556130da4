"""What every replica tells of the one that leads: why nothing is decided, and what its last audit has found."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


class LastAudit(NamedTuple):
    """What the last look at database, cluster and memory has found."""

    at: float
    """When that was, in seconds since the epoch."""
    differences: Mapping[str, int]
    """How many, by problem; empty: all agree."""


class LeaderView(Protocol):
    """What is known of the leader, be it this process or another."""

    def standstill(self) -> str:
        """What keeps Sluice from deciding, as a sentence; empty: nothing does, as far as is known."""

    def last_audit(self) -> LastAudit | None:
        """None: there was none since the start of the leader, or nobody leads."""


class NoLeader:
    """Where nothing is known of one: an API by itself."""

    def standstill(self) -> str:
        """Nothing is known of that."""
        return ""

    def last_audit(self) -> LastAudit | None:
        """There is nothing to compare with."""
        return None
