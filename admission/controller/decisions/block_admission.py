"""Kueue's `waitForPodsReady.blockAdmission`: one admission at a time, when all admitted workloads have ready pods."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from admission.engine.vocabulary import SLICE_REPLACED
from admission.model import sentences

if TYPE_CHECKING:
    from admission.engine import Engine
    from admission.engine.events import Decisions

WAITING = "WaitingForPodsReady", sentences.BEHIND_UNREADY
"""Reason and message of pending workloads that were not tried because of it."""


def one_at_a_time(engine: Engine, *, now: float, blocked: bool) -> Decisions:
    """Run cycles as `Engine.settle` does, but keep at most one admission, and none if `blocked`. Evictions are kept.

    `blocked`: pods of an admitted workload are not ready. A workload that never becomes ready blocks all others until
    its timeout, so that a timeout is required. The replacement of a slice is undone together with its admission.
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
