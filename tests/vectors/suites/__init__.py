"""Suites of single cases: each asks one part of the engine one question; the answer has the form of the reference."""

from __future__ import annotations

from typing import Any

from tests.vectors.suites.parts import SUITES
from tests.vectors.suites.single import schedule


def answer_of(case: dict[str, Any]) -> dict[str, Any]:
    """The fields of the answer to a case, by the `suite` that it names."""
    suite = case["suite"]
    return schedule(case) if suite.startswith("schedule") else SUITES[suite](case)
