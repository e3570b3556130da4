"""The engine on virtual time: scenarios, traces, what-if."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from admission.simulate.recorded import Player

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["simulate"]


def simulate(document: Mapping[str, Any], cycles: int | None = None) -> dict[str, Any]:
    """The decisions of each cycle of a scenario, and the state at the end.

    The scenario is played for `cycles` cycles, or until nothing changes any more. Raises InvalidObject for queue
    objects and Workloads that are not valid.
    """
    return {"id": document.get("id", ""), **Player(dict(document)).play(cycles)}
