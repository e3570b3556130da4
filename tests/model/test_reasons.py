"""The reference of reasons covers all reasons in the code, and docs/reasons.md shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from admission.controller.decisions import scheduler
from admission.controller.state import workload_change
from admission.controller.workloads import admitted, observed, scaling
from admission.engine import vocabulary
from admission.model import reasons
from admission.store import records

PAGE = Path(__file__).parents[2] / "docs" / "reasons.md"
NONE_OF_A_WORKLOAD = {
    "ForcefullyTerminated", "Idle", "Learned", "NodeReplaced", "Ordered", "Prioritized", "Reclaimed", "Resized",
    "Suspended",
}  # fmt: skip
"""Reasons that occur only in a workload's history and in the ledger, never in its state."""


def test_reasons_page_contains_the_generated_reference():
    assert reasons.reference() in PAGE.read_text(), (
        "write what `python -m admission.model.reasons` prints into the page"
    )


@pytest.mark.parametrize("module", [vocabulary, workload_change, admitted, observed, scaling, scheduler, records])
def test_each_reason_in_the_code_is_in_the_reference(module):
    words = {
        value
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str) and value.isidentifier() and value[0].isupper()
    }
    if module is scheduler:
        words = {scheduler.BEHIND_UNREADY[0]}
    unknown = words - reasons.names() - NONE_OF_A_WORKLOAD
    assert unknown == set()


def test_no_reason_is_described_twice_in_a_table():
    for table in (reasons.WAITING, reasons.EVICTED, reasons.PREEMPTED, reasons.RUNNING, reasons.FINISHED):
        names = [reason.name for reason in table]
        assert len(names) == len(set(names))
