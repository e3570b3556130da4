"""Kueue's `waitForPodsReady.blockAdmission`: one admission at a time, none before the pods of the last are ready."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from admission.engine.vocabulary import SLICE_REPLACED
from admission.model import sentences

if TYPE_CHECKING:
    from admission.engine import Engine
    from admission.engine.events import Decisions

WAITING = "WaitingForPodsReady", sentences.behind_unready()
"""Reason and sentence of those whose turn has not come."""


def one_at_a_time(engine: Engine, *, now: float, blocked: bool) -> Decisions:
    """As `Engine.settle`, but for what would be admitted too early: that waits. Evictions are decided all the same.

    A workload that never becomes ready blocks the others until its timeout, which is why there has to be one.
    """
    decisions = engine.settle(now, until_admitted=True)
    admitted = () if blocked else decisions.admitted[:1]
    early = decisions.admitted[len(admitted) :]
    for admit in reversed(early):
        engine.forget(admit)
    undone = {admit.workload.uid for admit in early}
    evicted = tuple(
        evict for evict in decisions.evicted if evict.reason != SLICE_REPLACED or evict.preemptor not in undone
    )
    return replace(decisions, admitted=admitted, evicted=evicted)
