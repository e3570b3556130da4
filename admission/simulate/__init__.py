"""Simulation: runs the decision engine on virtual time, for scenarios and for estimated starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from admission.simulate.player import Player

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["simulate"]


def simulate(document: Mapping[str, Any], cycles: int | None = None) -> dict[str, Any]:
    """Play a scenario, and return the decisions of each cycle and the final state.

    It ends after `cycles` cycles, or when nothing changes any more. Raises InvalidObject for invalid queue objects and
    Workloads.
    """
    return {"id": document.get("id", ""), **Player(dict(document)).play(cycles)}
