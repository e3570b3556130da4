"""What the nodes of a cluster can allocate together, as last seen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Capacity:
    """Numbers of nodes, and sums over them in amounts of `admission.model.quantity`."""

    nodes: int = 0
    ready: int = 0
    """Nodes whose condition Ready is True."""
    schedulable: int = 0
    """Nodes that are ready and not cordoned, so that they get new pods."""
    allocatable: Mapping[str, int] = field(default_factory=dict)
    """By resource, of all nodes."""
    usable: Mapping[str, int] = field(default_factory=dict)
    """The part of it that schedulable nodes have."""
    message: str = ""
    """What of the nodes is not counted; empty: all is."""


@dataclass(frozen=True, slots=True)
class SeenCapacity:
    """The capacity of a cluster, and when it was seen."""

    seen: float | None
    """Unix time (s); None: never."""
    capacity: Capacity
    failure: str = ""
    """Why the last look failed; empty: it did not."""

    @property
    def message(self) -> str:
        """Return what is to be said about it; empty: nothing."""
        return self.failure or self.capacity.message
