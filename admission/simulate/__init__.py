"""The engine on virtual time: scenarios, traces, what-if."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from admission.simulate.parts import SUITES
from admission.simulate.recorded import Player
from admission.simulate.single import schedule

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["simulate"]


def simulate(document: Mapping[str, Any], cycles: int | None = None) -> dict[str, Any]:
    """What is decided in a scenario, played for `cycles` cycles or until nothing changes any more.

    For a test case of another suite, the fields of its own answer. Raises InvalidObject for objects that cannot be.
    """
    suite = document.get("suite", "")
    case = dict(document)
    if suite in SUITES:
        answer = SUITES[suite](case)
    elif suite.startswith("schedule"):
        answer = schedule(case)
    else:
        answer = Player(case).play(cycles)
    return {"id": document.get("id", ""), **answer}
